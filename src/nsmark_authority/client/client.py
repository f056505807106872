"""The authority's client: signs what an owner says, and checks everything that comes back."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import rfc8785
from pydantic import ValidationError

from nsmark.errors import ClaimError, NsmarkError, UsageError
from nsmark.identity import Identity
from nsmark.keyfile import read_key
from nsmark.keyfile.codec import encode_key
from nsmark_authority.client.answers import member, objects
from nsmark_authority.client.content import Content, read_content, read_suspect
from nsmark_authority.client.http import Body, path_part, require_token
from nsmark_authority.client.multipart import FilePart, UploadCallback, multipart_body
from nsmark_authority.client.outside_time import read_outside_time
from nsmark_authority.client.reader import AuthorityReader, GivenReceipt, another_entry, is_digest
from nsmark_authority.errors import AuthorityError
from nsmark_authority.fields import format_time, refusal_of
from nsmark_authority.receipt import MAX_RECEIPT_BYTES
from nsmark_authority.statements import (
    Defence,
    Deposit,
    Dispute,
    Filing,
    OwnerStatement,
    Registration,
    Statement,
    Withdrawal,
    sign_statement,
)
from nsmark_authority.transparency.strict_base64 import encode_base64

_Said = TypeVar("_Said", bound=Statement)
_MAX_TOKENS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """What a new owner gets."""

    given: GivenReceipt
    token: str = field(repr=False)
    token_id: str
    expires: str


class AuthorityClient(AuthorityReader):
    """One authority, as an owner, a respondent or a bystander talks to it.

    Example:
        >>> client = AuthorityClient("https://authority.example", trust=trusted)  # doctest: +SKIP
        >>> client.file(Path("owner.nsmark"), identity).checked.time  # doctest: +SKIP
    """

    # --- What owners do. ---

    def register(self, identity: Identity, name: str) -> Registered:
        """Register a public key under a name, and get a token.

        Raises:
            ConflictError: The key is registered under another name.
        """
        challenge = self._connection.send("POST", "/v1/challenges", with_token=False)
        nonce = member(challenge.to_json("challenge"), "nonce", str, "challenge")
        if not is_digest(nonce):
            raise AuthorityError("the authority's challenge is malformed", "tell the authority")
        statement = _checked(
            Registration,
            {
                "authority": self.trust.name,
                "public_key": identity.public_key.to_pem(),
                "owner": name,
                "nonce": nonce,
            },
        )
        envelope = sign_statement(statement, identity).to_json()
        answer = self._connection.send("POST", "/v1/owners", Body.of(envelope), with_token=False)
        document = answer.to_json("registration")
        given = self._take(rfc8785.dumps(member(document, "receipt", dict, "registration")))
        found = given.statement(Registration)
        # Whoever registers again gets the receipt of the first time.
        if (found.public_key, found.owner) != (statement.public_key, name):
            raise another_entry()
        token = member(document, "token", str, "registration")
        self._connection.set_token(token)
        return Registered(
            given=given,
            token=token,
            token_id=token_id_of(token),
            expires=member(document, "expires", str, "registration"),
        )

    def file(
        self,
        key_path: Path,
        identity: Identity,
        succeeds: str | None = None,
        *,
        passphrase: bytes | None = None,
        with_model_digest: bool = False,
        on_progress: UploadCallback | None = None,
    ) -> GivenReceipt:
        """File a watermark key; the same key again gives the same receipt.

        Args:
            key_path: The key file; an encrypted one is opened, as the authority must read it.
            identity: That signed the key's claim.
            succeeds: Id of an earlier key whose place it takes.
            passphrase: Of an encrypted key file.
            with_model_digest: Make the marked model's digest public.
            on_progress: Called while it is sent.

        Raises:
            KeyFileError: No intact key.
            ClaimError: The key is another identity's.
        """
        key = read_key(key_path, passphrase)
        if key.signed_claim.public_key != identity.public_key:
            raise ClaimError(
                f"{key_path} was made by another identity", "give the identity that sealed it"
            )
        content = encode_key(key)
        try:
            filing = Filing.of(
                key.signed_claim,
                authority=self.trust.name,
                key_id=key.key_id,
                content=content,
                model_digest=key.model_digest if with_model_digest else None,
                succeeds=succeeds,
            )
        except ValidationError as error:
            raise ClaimError(
                f"the key's claim is none that can be filed: {refusal_of('filing', error)}",
                "make a key with a plain claim; name another predecessor",
            ) from error
        part = FilePart("content", "key.nsmark", content, len(content))
        return self._say("/v1/filings", filing, identity, (part,), on_progress)

    def deposit(
        self,
        path: Path,
        identity: Identity,
        *,
        note: str = "",
        hand_over: bool = True,
        timestamp: Path | None = None,
        timestamp_roots: Path | None = None,
        on_progress: UploadCallback | None = None,
    ) -> GivenReceipt:
        """Date a model folder or a file of recorded outputs, and hand it over sealed.

        Args:
            path: The folder or file.
            identity: Whose deposit it is.
            note: Words for the public log.
            hand_over: Send the content, too; without, only its digest is dated.
            timestamp: A time stamp that one got elsewhere, of the content's SHA-256; the authority
                must know its roots.
            timestamp_roots: PEM file with the roots to check it against.
            on_progress: Called while it is sent.
        """
        content = read_content(path)
        outside = {}
        if timestamp is not None and timestamp_roots is not None:
            found = read_outside_time(timestamp, timestamp_roots, content.sha256)
            outside = {"token": encode_base64(found.token), "proven": format_time(found.time)}
        deposit = _checked(
            Deposit,
            {
                "authority": self.trust.name,
                "public_key": identity.public_key.to_pem(),
                "what": content.what,
                "content_sha256": content.sha256,
                "content_bytes": content.num_bytes,
                "model_digest": content.model_digest,
                "note": note,
                **outside,
            },
        )
        parts = content.parts if hand_over else ()
        return self._say("/v1/deposits", deposit, identity, parts, on_progress)

    def dispute(
        self,
        key_id: str,
        suspect: str,
        identity: Identity,
        *,
        released: str,
        statement: str,
        on_progress: UploadCallback | None = None,
    ) -> GivenReceipt:
        """Open a dispute about a suspect.

        Args:
            key_id: Of an admitted key of one's own; it is revealed by this.
            suspect: As ``verify`` takes it: an endpoint, recorded outputs or a model folder.
            identity: The claimant.
            released: Since when the suspect is public, ``YYYY-MM-DDTHH:MM:SSZ``.
            statement: The claimant's own words.
            on_progress: Called while files are sent.
        """
        named, content = read_suspect(suspect)
        dispute = _checked(
            Dispute,
            {
                "authority": self.trust.name,
                "public_key": identity.public_key.to_pem(),
                "key_id": key_id,
                "suspect": named.to_members(),
                "released": released,
                "statement": statement,
            },
        )
        return self._say("/v1/disputes", dispute, identity, _parts(content), on_progress)

    def answer(
        self,
        dispute: str,
        identity: Identity,
        *,
        evidence: str | None,
        statement: str,
        released: str | None = None,
    ) -> GivenReceipt:
        """Answer a dispute, perhaps with something that one had earlier.

        Args:
            dispute: Entry id.
            identity: The respondent.
            evidence: Entry id of a deposit or filing of his.
            statement: His own words.
            released: Since when the suspect is public, if the claimant is wrong about that.
        """
        defence = _checked(
            Defence,
            {
                "authority": self.trust.name,
                "public_key": identity.public_key.to_pem(),
                "dispute": dispute,
                "evidence": evidence,
                "statement": statement,
                **({} if released is None else {"released": released}),
            },
        )
        return self._say(f"/v1/disputes/{path_part(dispute)}/defences", defence, identity)

    def withdraw(self, subject: str, identity: Identity, *, reason: str) -> GivenReceipt:
        """End a filing or dispute of one's own; what was logged stays.

        Args:
            subject: Entry id.
            identity: Whose it is.
            reason: Words for the public log.
        """
        withdrawal = _checked(
            Withdrawal,
            {
                "authority": self.trust.name,
                "public_key": identity.public_key.to_pem(),
                "subject": subject,
                "reason": reason,
            },
        )
        kind, _ = self.subject(subject)
        if kind == "deposit":
            raise UsageError("a deposit cannot be withdrawn", "name a filing or a dispute")
        place = "disputes" if kind == "dispute" else "filings"
        return self._say(f"/v1/{place}/{path_part(subject)}/withdrawal", withdrawal, identity)

    # --- Tokens. ---

    def tokens(self) -> list[dict[str, Any]]:
        """Return one's tokens; never the tokens themselves."""
        document = self._connection.get("/v1/tokens", with_token=True).to_json("tokens")
        return objects(document, "items", "tokens", _MAX_TOKENS)

    def new_token(self, scopes: Sequence[str], days: int, label: str = "") -> dict[str, Any]:
        """Make another token, which can be seen only now."""
        content = rfc8785.dumps({"scopes": list(scopes), "days": days, "label": label})
        made = self._connection.send("POST", "/v1/tokens", Body.of(content)).to_json("token")
        require_token(member(made, "token", str, "token"))
        return made

    def revoke_token(self, token_id: str) -> None:
        """Make a token worthless."""
        self._connection.send("DELETE", f"/v1/tokens/{path_part(token_id)}")

    def revoke_all_tokens(self) -> int:
        """Make all one's tokens worthless, also the present one; return how many there were."""
        answer = self._connection.send("DELETE", "/v1/tokens").to_json("tokens")
        return len(objects(answer, "items", "tokens", _MAX_TOKENS))

    def _say(
        self,
        path: str,
        statement: OwnerStatement,
        identity: Identity,
        parts: Sequence[FilePart] | None = None,
        on_progress: UploadCallback | None = None,
    ) -> GivenReceipt:
        """Sign and send a statement; with parts, even none, as a form."""
        envelope = sign_statement(statement, identity).to_json()
        plain = Body.of(envelope)
        body = plain if parts is None else multipart_body(envelope, parts, on_progress)
        answer = self._connection.send("POST", path, body, max_bytes=MAX_RECEIPT_BYTES)
        given = self._take(answer.content)
        if given.receipt.entry != envelope:
            raise another_entry()
        return given


def token_id_of(token: str) -> str:
    """Return the name under which a token is listed: no secret."""
    return hashlib.sha256(token.encode("ascii")).hexdigest()[:16]


def _checked(kind: type[_Said], members: dict[str, Any]) -> _Said:
    """Make a statement of what a user typed; what is wrong with it is his to correct."""
    try:
        return kind.from_members(members, f"{kind.kind}")
    except NsmarkError as error:
        raise UsageError(str(error), f"correct what was given; {error.hint}") from error


def _parts(content: Content | None) -> tuple[FilePart, ...]:
    return () if content is None else content.parts
