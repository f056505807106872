"""The authority itself: checks what owners say, logs it, and answers with a receipt.

Every action follows one order: check → seal the content → time stamp → one transaction (entry,
tree, checkpoint, views, job). A receipt is given only after the commit, so whoever has one finds
his entry in the log whatever happens to this process. Saying the same thing twice is harmless: the
receipt of the first time is given again.
"""

from __future__ import annotations

import hashlib
import io
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from cryptography import x509
from sqlalchemy import Connection

from nsmark.core.texts import decode_lines, lines_digest
from nsmark.errors import InputError, KeyFileError
from nsmark.files import write_errors
from nsmark.identity import PublicKey
from nsmark.keyfile import WatermarkKey
from nsmark.keyfile.codec import decode_key
from nsmark_authority.accounts import Accounts
from nsmark_authority.contents import Contents, SealedContent, Upload
from nsmark_authority.errors import (
    AccessDeniedError,
    AuthorityError,
    ConflictError,
    NotFoundError,
    TransparencyError,
    WithdrawnError,
)
from nsmark_authority.folder import (
    AuthorityFolder,
    check_last_checkpoint,
    locked_folder,
    open_folder,
    save_last_checkpoint,
)
from nsmark_authority.jobs import Jobs
from nsmark_authority.permissions import (
    check_defence,
    check_dispute,
    check_filing,
    check_outside_time,
    check_withdrawal,
    require_not_renamed,
)
from nsmark_authority.receipt import Receipt
from nsmark_authority.records import (
    OWNER_SCOPES,
    Account,
    Challenge,
    FiledKey,
    IssuedToken,
    LogEntry,
    Owner,
)
from nsmark_authority.registry import (
    Registry,
    find_dispute,
    find_filing,
    find_owner,
    find_publication,
    find_ruling,
)
from nsmark_authority.sealing import Readable, Staging
from nsmark_authority.settings import AuthoritySettings
from nsmark_authority.stamping import Stamp
from nsmark_authority.statements import (
    Admission,
    AuthorityStatement,
    Defence,
    Deposit,
    Dispute,
    Filing,
    OpenedStatement,
    OwnerStatement,
    Publication,
    Registration,
    Ruling,
    Withdrawal,
    open_statement,
    sign_statement,
)
from nsmark_authority.storage.database import Database
from nsmark_authority.storage.log import Log, is_logged, time_of
from nsmark_authority.storage.views import apply_entry, rebuild_views
from nsmark_authority.transparency.timestamp import load_root_certificates

_REMEMBERED = 64
_Said = TypeVar("_Said", bound=OwnerStatement)
_Check = Callable[[Connection], None]
_Then = Callable[[Connection, LogEntry], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """What a new owner gets."""

    owner: Owner
    token: IssuedToken
    receipt: Receipt


def open_authority(settings: AuthoritySettings) -> Authority:
    """Open an authority; the first time, make its folder, keys and database.

    Several processes may open one folder, also at the same time.

    Raises:
        ConfigError: The settings contradict the folder.
        AuthorityError: The database cannot be reached or is an older one, or a part of the folder
            is missing.
        FileAccessError: The folder cannot be read or written.
    """
    with locked_folder(settings.folder):
        folder = open_folder(settings)
        authority = Authority(settings, folder, Database(settings.database))
        try:
            check_last_checkpoint(settings.folder, authority.log.checkpoint)
            save_last_checkpoint(settings.folder, authority.log.checkpoint())
            authority.contents.remove_unreferenced()
        except BaseException:
            authority.database.close()
            raise
    return authority


class Authority:
    """A certification authority; threads may share it."""

    def __init__(
        self, settings: AuthoritySettings, folder: AuthorityFolder, database: Database
    ) -> None:
        self.settings = settings
        self.database = database
        self.name = folder.name
        """The log's origin, which every statement must name."""
        self.log = Log(database, folder.name, folder.identity)
        """Entries, checkpoints, proofs, receipts."""
        self.registry = Registry(database)
        """Owners, filings, deposits, publications, disputes, rulings."""
        self.jobs = Jobs(
            database,
            stale_seconds=settings.job_stale_seconds,
            max_attempts=settings.max_job_attempts,
        )
        """Work in the background."""
        self.accounts = Accounts(database, settings)
        """Challenges, tokens, the audit trail."""
        self.contents = Contents(database, folder.store)
        """Sealed content."""
        self._key_reader = threading.Lock()
        self._identity = folder.identity
        self._stamper = folder.stamper
        roots = settings.evidence_roots
        self._evidence_roots = () if roots is None else load_root_certificates(roots)

    @property
    def public_key(self) -> PublicKey:
        """The key that checkers of receipts must know."""
        return self._identity.public_key

    @property
    def roots(self) -> tuple[x509.Certificate, ...]:
        """Roots of the time stamps that are given now."""
        return self._stamper.roots

    @property
    def is_local_time(self) -> bool:
        """Whether time stamps are only this authority's own word."""
        return self._stamper.is_local

    def close(self) -> None:
        """Close the database."""
        self.database.close()

    # --- What owners do. `document` is a DSSE envelope's JSON, from sign_statement(). ---

    def challenge(self) -> Challenge:
        """Give out the number that a registration must hold."""
        return self.accounts.challenge()

    def register(self, document: bytes) -> Registered:
        """Register a public key, and give its owner a token.

        An owner who lost his token registers again, with a new challenge: he gets a new token, and
        the receipt of the first time.

        Raises:
            TransparencyError: The statement is malformed or not signed by its own key.
            AccessDeniedError: The challenge is not open.
            ConflictError: The key is registered under another name.
        """
        opened, statement = self._open(document, Registration)
        fingerprint = opened.signer.fingerprint
        stamp = self._stamper.stamp(opened.entry)
        with self.database.write() as connection:
            self.accounts.use_challenge(connection, statement.nonce)
            try:
                owner = find_owner(connection, fingerprint)
            except NotFoundError:
                self._append(connection, opened, stamp)
                owner = find_owner(connection, fingerprint)
            require_not_renamed(owner, statement.owner)
            token = self.accounts.issue_in(
                connection, OWNER_SCOPES, fingerprint=fingerprint, label=statement.owner
            )
            self.accounts.note_in(connection, fingerprint, "registration", owner.entry_id, "done")
            receipt = self.log.first_receipt(connection, owner.entry_id)
        return Registered(owner=owner, token=token, receipt=receipt)

    def file_key(self, document: bytes, content: Upload, *, by: Account | None = None) -> Receipt:
        """File a sealed watermark key; its admission is queued.

        Args:
            document: A signed :class:`Filing`.
            content: The key file.
            by: Whose token admitted the call; if an owner's, he must be the signer.

        Raises:
            TransparencyError: The statement is malformed or not signed by the claim's key.
            NotFoundError: The owner is not registered, or the key to be succeeded is not filed.
            KeyFileError: The content is no intact key, or not the one that the statement names.
            InputError: The content is too large, or not what was announced.
            ConflictError: The key was filed before, with another statement.
        """
        opened, statement = self._open(document, Filing, by)
        if (done := self._receipt_of(opened.entry_id)) is not None:
            return done
        with self.database.read() as connection:
            check_filing(connection, statement, opened.entry_id)
        self._require_room(opened.signer, statement.content_bytes, self.settings.max_key_bytes)
        with self.contents.staging() as staging:
            sealed = self.contents.seal(
                staging,
                content,
                sha256=statement.content_sha256,
                num_bytes=statement.content_bytes,
                max_bytes=self.settings.max_key_bytes,
                what="key file",
            )
            self._check_key(statement, sealed)

            def queue(connection: Connection, entry: LogEntry) -> None:
                self.jobs.queue_in(
                    connection, "admission", entry.entry_id, owner=opened.signer.fingerprint
                )

            return self._log(
                opened,
                content=sealed,
                check=lambda c: check_filing(c, statement, opened.entry_id),
                then=queue,
            )

    def deposit(
        self, document: bytes, content: Upload | None = None, *, by: Account | None = None
    ) -> Receipt:
        """Date a model or recorded outputs; the content may come now, later or never.

        To hand it over later, send the same statement with it.

        Args:
            document: A signed :class:`Deposit`.
            content: The recorded outputs, or the files of the model's folder.
            by: Whose token admitted the call; if an owner's, he must be the signer.

        Raises:
            TransparencyError: The statement is malformed or not signed by its own key.
            NotFoundError: The owner is not registered.
            InputError: The content is too large, or not what was announced; or the time stamp from
                outside does not hold.
            ConflictError: He has handed over as much as he may.
        """
        opened, statement = self._open(document, Deposit, by)
        done = self._receipt_of(opened.entry_id)
        if done is not None and (
            content is None or self.contents.handed_over(opened.entry_id) is not None
        ):
            return done
        with self.database.read() as connection:
            find_owner(connection, opened.signer.fingerprint)
        if done is None:
            check_outside_time(statement, self._evidence_roots)
        if content is not None:
            self._require_room(
                opened.signer, statement.content_bytes, self._max_bytes(statement.what)
            )
        with self.contents.staging() as staging:
            sealed = self._seal_suspect(
                staging,
                content,
                statement.what,
                statement.content_sha256,
                statement.content_bytes,
            )
            return self._log(opened, content=sealed)

    def open_dispute(
        self, document: bytes, content: Upload | None = None, *, by: Account | None = None
    ) -> Receipt:
        """Open a dispute; its measurement is queued for when the time to answer is over.

        Args:
            document: A signed :class:`Dispute`.
            content: Recorded outputs or the files of a model's folder, if they are the suspect and
                were not deposited before.
            by: Whose token admitted the call; if an owner's, he must be the signer.

        Raises:
            TransparencyError: The statement is malformed or not signed by its own key.
            NotFoundError: The key is not filed.
            AccessDeniedError: The key is somebody else's.
            ConflictError: The key is not admitted, its claim fell before, the same suspect was
                ruled on before, or too many of his disputes are open.
            InputError: The content is missing, too large, or not what was announced.
        """
        opened, statement = self._open(document, Dispute, by)
        if (done := self._receipt_of(opened.entry_id)) is not None:
            return done
        with self.database.read() as connection:
            check_dispute(connection, statement, self.settings)
        suspect = statement.suspect
        with self.contents.staging() as staging:
            sealed = None
            # Always from the claimant's own hands: what others deposited is sealed, for him too.
            if suspect.content_sha256 is not None:
                if content is None:
                    raise InputError(
                        "the suspect's content was not handed over", "send it with the dispute"
                    )
                num_bytes = suspect.content_bytes or 0
                self._require_room(opened.signer, num_bytes, self._max_bytes(suspect.kind))
                sealed = self._seal_suspect(
                    staging,
                    content,
                    suspect.kind,
                    suspect.content_sha256,
                    num_bytes,
                )

            def queue(connection: Connection, entry: LogEntry) -> None:
                self.jobs.queue_in(
                    connection,
                    "dispute",
                    entry.entry_id,
                    owner=opened.signer.fingerprint,
                    delay_seconds=self.settings.answer_seconds,
                )

            return self._log(
                opened,
                content=sealed,
                check=lambda c: check_dispute(c, statement, self.settings),
                then=queue,
            )

    def answer_dispute(self, document: bytes, *, by: Account | None = None) -> Receipt:
        """Answer a dispute.

        Raises:
            TransparencyError: The statement is malformed or not signed by its own key.
            NotFoundError: There is no such dispute or evidence, or the owner is not registered.
            AccessDeniedError: The evidence is somebody else's.
            ConflictError: The dispute is over or being measured, or it is the claimant who answers.
        """
        opened, statement = self._open(document, Defence, by)
        return self._receipt_of(opened.entry_id) or self._log(
            opened, check=lambda connection: check_defence(connection, statement)
        )

    def withdraw(self, document: bytes, *, by: Account | None = None) -> Receipt:
        """Withdraw a filing, or a dispute that is not ruled yet; its job is cancelled.

        Raises:
            TransparencyError: The statement is malformed or not signed by its own key.
            NotFoundError: There is no such filing or dispute.
            AccessDeniedError: It is somebody else's.
            ConflictError: It is over, or a dispute about the filed key is open.
        """
        opened, statement = self._open(document, Withdrawal, by)

        def cancel(connection: Connection, entry: LogEntry) -> None:
            self.jobs.cancel_in(connection, "admission", statement.subject)
            self.jobs.cancel_in(connection, "dispute", statement.subject)

        return self._receipt_of(opened.entry_id) or self._log(
            opened,
            check=lambda connection: check_withdrawal(connection, statement),
            then=cancel,
        )

    # --- What the authority says. ---

    def publish(
        self,
        what: Literal["word_list", "pool", "control_set"],
        name: str,
        content: bytes,
        *,
        note: str = "",
    ) -> Receipt:
        """Publish a word list or a pool (UTF-8, one per line), or the description of a control set.

        Args:
            what: Kind of material.
            name: A name for people.
            content: What is served from now on.
            note: Where it comes from.

        Raises:
            InputError: It is too large, or not UTF-8.
            ConflictError: It was published before under another name.
        """
        sha256 = hashlib.sha256(content).hexdigest()
        digest = sha256
        if what != "control_set":
            try:
                digest = lines_digest(decode_lines(content))
            except UnicodeDecodeError as error:
                raise InputError("the text to be published is not UTF-8", "convert it") from error
        statement = Publication(
            authority=self.name,
            what=what,
            name=name,
            digest=digest,
            content_sha256=sha256,
            content_bytes=len(content),
            note=note,
        )

        def check(connection: Connection) -> None:
            published = find_publication(connection, what, digest)
            if published is not None:
                raise ConflictError(
                    f"the same was published as {published.name!r}", "it need not be done again"
                )

        with self.contents.staging() as staging:
            sealed = self.contents.seal(
                staging,
                io.BytesIO(content),
                sha256=sha256,
                num_bytes=len(content),
                max_bytes=self.settings.max_publication_bytes,
                what="publication",
            )
            return self._say(statement, content=sealed, check=check)

    def publication_content(self, digest: str) -> bytes:
        """Return the file that was published under a digest.

        Raises:
            NotFoundError: Nothing was.
        """
        found = self.registry.publication(digest)
        return self.contents.read(found.content_sha256, self.settings.max_publication_bytes)

    def record_admission(
        self,
        filing: str,
        *,
        admitted: bool,
        reasons: Sequence[str],
        control_set: str | None,
        versions: Mapping[str, str],
    ) -> Receipt:
        """Log whether a filed key is admitted; said once, it stands.

        Args:
            filing: Entry id.
            admitted: Or refused.
            reasons: Sentences; a refusal needs at least one.
            control_set: Digest of the published control set that it was measured on.
            versions: Of the programs that measured.

        Raises:
            NotFoundError: There is no such filing.
        """
        found = self.registry.filing(filing)
        statement = Admission(
            authority=self.name,
            filing=filing,
            key_id=found.key_id,
            admitted=admitted,
            reasons=tuple(reasons),
            control_set=control_set,
            versions=dict(versions),
        )

        def standing(connection: Connection) -> str | None:
            return find_filing(connection, entry_id=filing).admission

        return self._say(statement, standing=standing)

    def record_ruling(self, ruling: Ruling, report: bytes | None = None) -> Receipt:
        """Log a ruling and keep its report; said once, it stands.

        Args:
            ruling: What was found, with the authority's name and the report's SHA-256 in it.
            report: The report, which is public from now on.

        Raises:
            NotFoundError: There is no such dispute.
            InputError: The report is not the one that the ruling names, or the key not the one
                of the dispute.
            WithdrawnError: The dispute was withdrawn.
        """
        found = None if report is None else hashlib.sha256(report).hexdigest()
        if ruling.authority != self.name or ruling.report_sha256 != found:
            raise InputError(
                "the ruling names another authority or another report",
                "name this authority and the SHA-256 of the report",
            )

        def check(connection: Connection) -> None:
            dispute = find_dispute(connection, ruling.dispute)
            if dispute.state == "withdrawn":
                raise WithdrawnError("the dispute was withdrawn", "nothing is left to be done")
            if dispute.key_id != ruling.key_id:
                raise InputError("the dispute is about another key", "name the key of the dispute")

        def standing(connection: Connection) -> str | None:
            there = find_ruling(connection, ruling.dispute)
            return None if there is None else there.entry_id

        with self.contents.staging() as staging:
            sealed = None
            if report is not None and found is not None:
                sealed = self.contents.seal(
                    staging,
                    io.BytesIO(report),
                    sha256=found,
                    num_bytes=len(report),
                    max_bytes=self.settings.max_publication_bytes,
                    what="report",
                )
            return self._say(ruling, content=sealed, check=check, standing=standing)

    def ruling_report(self, dispute: str) -> bytes:
        """Return the report of a ruling.

        Raises:
            NotFoundError: There is no ruling, or it has no report.
        """
        sha256 = self.registry.ruling(dispute).report_sha256
        if sha256 is None:
            raise NotFoundError("the ruling has no report", "its reasons say why")
        return self.contents.read(sha256, self.settings.max_publication_bytes)

    def read_filed_key(self, filing: FiledKey) -> WatermarkKey:
        """Unseal a filed key: for admission and disputes, never for an answer to anybody."""
        chunks = self.contents.chunks(filing.content_sha256)
        return self._read_key(chunks, filing.content_bytes)

    def rebuild_views(self) -> int:
        """Make every table that follows from the log anew; return the number of entries."""
        with self.database.write() as connection:
            return rebuild_views(connection)

    # --- How an entry is made. ---

    def _open(
        self, document: bytes, kind: type[_Said], by: Account | None = None
    ) -> tuple[OpenedStatement, _Said]:
        opened = open_statement(document, authority=self.name, authority_key=self.public_key)
        statement = opened.statement
        if not isinstance(statement, kind):
            raise TransparencyError(
                f"the statement is a {statement.kind}, not a {kind.kind}",
                "send it where it belongs",
            )
        if by is not None and by.fingerprint not in (None, opened.signer.fingerprint):
            raise AccessDeniedError(
                "the token is of another owner than the signer of the statement",
                "use the token that the signer got when he registered",
            )
        return opened, statement

    def _say(
        self,
        statement: AuthorityStatement,
        *,
        content: SealedContent | None = None,
        check: _Check | None = None,
        standing: Callable[[Connection], str | None] | None = None,
    ) -> Receipt:
        document = sign_statement(statement, self._identity).to_json()
        opened = open_statement(document, authority=self.name, authority_key=self.public_key)
        return self._log(opened, content=content, check=check, standing=standing)

    def _log(
        self,
        opened: OpenedStatement,
        *,
        content: SealedContent | None = None,
        check: _Check | None = None,
        then: _Then | None = None,
        standing: Callable[[Connection], str | None] | None = None,
    ) -> Receipt:
        """Stamp a statement, then write everything that follows from it in one transaction.

        Args:
            opened: What was said.
            content: Sealed content that is kept from now on.
            check: Looks once more, now that nobody else writes, whether it may be said.
            then: Writes what the views do not hold.
            standing: Finds the entry that said it before, perhaps in other words.
        """
        # Before the transaction: another machine may take seconds to answer.
        stamp = self._stamper.stamp(opened.entry)
        if content is not None:
            content.staging.keep()
        with self.database.write() as connection:
            if content is not None:
                self.contents.save(connection, content)
            known = None if standing is None else standing(connection)
            if known is None and is_logged(connection, opened.entry_id):
                known = opened.entry_id
            if known is None:
                if check is not None:
                    check(connection)
                entry = self._append(connection, opened, stamp)
                if then is not None:
                    then(connection, entry)
                who = opened.signer.fingerprint
                self.accounts.note_in(connection, who, entry.kind, entry.entry_id, "logged")
            if content is not None and isinstance(opened.statement, OwnerStatement):
                self._note_giver(connection, opened, content, stamp)
            receipt = self.log.first_receipt(connection, known or opened.entry_id)
        # Not each time: that would cost another wait for the disk.
        if known is None and receipt.index % _REMEMBERED == 0:
            save_last_checkpoint(self.settings.folder, receipt.checkpoint)
        return receipt

    def _note_giver(
        self, connection: Connection, opened: OpenedStatement, content: SealedContent, stamp: Stamp
    ) -> None:
        # The same statement without content may have overtaken this one, with a later stamp.
        announced = time_of(connection, opened.entry_id) or stamp.time
        self.contents.note_giver(
            connection,
            content,
            entry_id=opened.entry_id,
            fingerprint=opened.signer.fingerprint,
            time=max(stamp.time, announced),
        )
        # Once more: others may have come in between with the rest of what he may.
        self._require_quota(connection, opened.signer, 0)

    def _append(self, connection: Connection, opened: OpenedStatement, stamp: Stamp) -> LogEntry:
        entry = self.log.append(
            connection, opened, stamp, self._stamper.roots, is_local=self._stamper.is_local
        )
        apply_entry(connection, entry, opened.statement)
        return entry

    def _receipt_of(self, entry_id: str) -> Receipt | None:
        """Return the receipt that was given for an entry, if it was made before."""
        with self.database.read() as connection:
            if not is_logged(connection, entry_id):
                return None
            return self.log.first_receipt(connection, entry_id)

    def _seal_suspect(
        self, staging: Staging, content: Upload | None, what: str, sha256: str, num_bytes: int
    ) -> SealedContent | None:
        if content is None:
            return None
        is_model = what == "model"
        if isinstance(content, Readable) == is_model:
            raise InputError(
                "a model is sent as the files of its folder, recorded outputs as one file",
                "send it with `nsmark client`",
            )
        return self.contents.seal(
            staging,
            content,
            sha256=sha256,
            num_bytes=num_bytes,
            max_bytes=self._max_bytes(what),
            what="model" if is_model else "file of recorded outputs",
        )

    # --- What is looked at before it is kept. ---

    def _max_bytes(self, what: str) -> int:
        limits = self.settings
        return limits.max_model_bytes if what == "model" else limits.max_recorded_bytes

    def _require_room(self, giver: PublicKey, num_bytes: int, max_bytes: int) -> None:
        """Refuse what would be too much of one owner's, or for the disk."""
        if num_bytes > max_bytes:
            return  # refused when it is sealed, however much room there is
        with self.database.read() as connection:
            self._require_quota(connection, giver, num_bytes)
        with write_errors(self.settings.folder, "see whether the authority's disk is there"):
            free = shutil.disk_usage(self.settings.folder).free
        if free - num_bytes < self.settings.min_free_bytes:
            raise AuthorityError("the authority's disk is almost full", "tell its operator")

    def _require_quota(self, connection: Connection, giver: PublicKey, num_bytes: int) -> None:
        limit = self.settings.max_owner_bytes
        if self.contents.bytes_of(connection, giver.fingerprint) + num_bytes > limit:
            raise ConflictError(
                f"this would be more than the {limit:,} bytes that one owner may hand over",
                "a digest can be deposited without its content",
            )

    def _check_key(self, statement: Filing, sealed: SealedContent) -> None:
        """Read the key as strictly as its format allows; what needs a model is for later."""
        if sealed.manifest is not None:
            raise KeyFileError("a key is one file", "send the .nsmark file")
        key = self._read_key(sealed.staging.chunks(sealed.file), sealed.num_bytes)
        stated = (statement.key_id, statement.public_key, statement.signature_sha256)
        signed = key.signed_claim
        found = (key.key_id, signed.public_key.to_pem(), signed.signature_digest)
        if stated != found or statement.claim != signed.claim.to_mapping():
            raise KeyFileError(
                "the key file is another one than the statement names",
                "make the statement from the very file",
            )
        if statement.model_digest not in (None, key.model_digest):
            raise KeyFileError(
                "the statement names another model than the key", "leave it out, or correct it"
            )

    def _read_key(self, chunks: Iterator[bytes], num_bytes: int) -> WatermarkKey:
        # One at a time: a large key, or a hostile one, takes several times its size in memory.
        with self._key_reader:
            return decode_key(io.BytesIO(b"".join(chunks)), num_bytes)
