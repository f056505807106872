"""Watching an authority's log: that it only grows, and what is said in one's name.

A monitor keeps the last checkpoint it saw and the frontier of the tree below it. At every look it
checks the new checkpoint's signature and its consistency with the old one, reads every new entry,
and checks that all of them together hash to the signed root. Each entry must be a statement signed
by the one who says it. The authority must still show the key, the roots and the kind of time that
were trusted. State moves on only when all of that holds, and only after the alerts were
handed out: what was noticed is never lost, at worst it is told twice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Protocol

from pydantic import Field

from nsmark.errors import InputError, NsmarkError
from nsmark.files import read_bounded, write_json
from nsmark.identity import PublicKey, parse_json_object
from nsmark_authority.client.log_reader import LoggedEntry
from nsmark_authority.client.look_alikes import looks_of
from nsmark_authority.client.seen import require_consistent
from nsmark_authority.client.trust import TrustedAuthority
from nsmark_authority.errors import RewrittenLogError, TransparencyError
from nsmark_authority.fields import AuthorityName, Count, Digest, Pem, Record
from nsmark_authority.statements import (
    Filing,
    OpenedStatement,
    OwnerStatement,
    Registration,
    open_statement,
)
from nsmark_authority.transparency import (
    MAX_NOTE_BYTES,
    Checkpoint,
    Envelope,
    Frontier,
    hash_leaf,
    open_checkpoint,
)
from nsmark_authority.transparency.strict_base64 import decode_base64, encode_base64

STATE_FORMAT: Final = "nsmark/monitor/1"
_MAX_STATE_BYTES = 16 << 20
_MAX_ALERTS = 10_000
_MAX_PEAKS = 63
_SAVE_EVERY_PAGES = 20

AlertKind = Literal["authority", "rewritten", "forged", "name", "key"]


class Alert(Record):
    """Something that the watcher must look at."""

    kind: AlertKind
    """``authority``: it shows another key, other roots or another kind of time than was trusted.
    ``rewritten``: the log does not only grow. ``forged``: an entry is not what it claims.
    ``name``: somebody else's key under one's name, or under one that looks like it. ``key``: an
    entry signed with one's key that one did not expect."""

    message: str
    index: Count | None = None
    """Of the entry."""

    entry_id: Digest | None = None
    earlier: str | None = None
    """Signed checkpoint that was seen before: with the next one, proof to show to others."""

    later: str | None = None
    owner: str | None = None
    """The name that the entry gives."""

    registered_owner: str | None = None
    """The name under which the key that signed it is registered."""


@dataclass(frozen=True, slots=True)
class Watch:
    """Whose name and keys are watched."""

    owners: tuple[str, ...] = ()
    """Names; case, spaces, accents and letters that look alike make no difference."""

    public_keys: tuple[PublicKey, ...] = ()
    """One's own."""

    expected: frozenset[str] = frozenset()
    """Ids of entries that one made, such as those of one's receipts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What one look at the log found."""

    size: int
    """Entries of the log."""

    num_new: int
    """Entries that were read for the first time."""

    alerts: tuple[Alert, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _State:
    """What is remembered between looks."""

    note: bytes | None = None
    """The newest checkpoint seen that agrees with all before it."""

    verified: Frontier = field(default_factory=Frontier)
    """Of the largest tree whose entries were all read and hash to its signed root."""

    reading: Frontier = field(default_factory=Frontier)
    """Of the entries read so far, which no checkpoint confirmed yet if it is larger."""

    pending: tuple[Alert, ...] = ()
    """Found in those entries."""


class _Tree(Record):
    size: Count
    peaks: Annotated[
        tuple[Annotated[str, Field(max_length=44)], ...], Field(max_length=_MAX_PEAKS, strict=False)
    ]


class _Document(Record):
    format: Literal["nsmark/monitor/1"]
    authority: AuthorityName
    public_key: Pem
    checkpoint: Annotated[str, Field(max_length=MAX_NOTE_BYTES)] | None
    verified: _Tree
    reading: _Tree
    pending: Annotated[tuple[Alert, ...], Field(max_length=_MAX_ALERTS, strict=False)]


class WatchedLog(Protocol):
    """Where a monitor reads; :class:`~nsmark_authority.client.log_reader.LogReader` is one."""

    def checkpoint_note(self) -> bytes:
        """Return the newest signed note."""

    def consistency(self, old: int, new: int) -> Sequence[bytes]:
        """Return the proof that the log only grew between two sizes."""

    def entries(self, start: int, end: int) -> Iterator[list[LoggedEntry]]:
        """Yield entries in pages, every index from ``start`` up to ``end``."""


class WatchedAuthority(Protocol):
    """Who answers for the log; :class:`~nsmark_authority.client.AuthorityClient` is one."""

    def require_unchanged(self) -> None:
        """Refuse an authority that is no longer the one that was trusted."""

    def registered_name(self, fingerprint: str) -> str:
        """Return the name under which a public key is registered."""


class Monitor:
    """Watches one authority's log."""

    def __init__(
        self,
        log: WatchedLog,
        trust: TrustedAuthority,
        state: Path,
        watch: Watch | None = None,
        authority: WatchedAuthority | None = None,
    ) -> None:
        """Read what was seen before.

        Args:
            log: Where entries and proofs come from.
            trust: The authority's name and key, from elsewhere.
            state: File that is remembered in.
            watch: Whose name and keys are watched.
            authority: Is asked whether it is still the trusted one, and under which name a key is
                registered; without, only the log is looked at.

        Raises:
            InputError: The file is none of a monitor, or of another authority's.
            FileAccessError: It cannot be read.
        """
        self._log = log
        self._trust = trust
        self._path = state
        self._watch = watch or Watch()
        self._authority = authority
        self._names = frozenset().union(*map(looks_of, self._watch.owners))
        self._state = self._load()

    def look(
        self,
        tell: Callable[[Look], None] | None = None,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> Look:
        """Look once.

        Args:
            tell: Called with what was found before the state moves on.
            on_progress: Called with entries read and entries to be read.

        Raises:
            AuthorityError: The log does not answer as it should: nothing is known about it.
        """
        before = self._state.verified.size
        changed = self._look_at_authority()
        try:
            note = self._log.checkpoint_note()
            checkpoint = self._open_newer(note)
            if note != self._state.note:
                # Before any reading: what was signed once cannot be taken back.
                self._save(replace(self._state, note=note))
            self._read_up_to(checkpoint, on_progress)
            self._require_root(note, checkpoint)
        except TransparencyError as error:
            alert = _rewritten(error) if isinstance(error, RewrittenLogError) else _unsound(error)
            # The state stays as it is, so that the next look reports it again.
            look = Look(size=before, num_new=0, alerts=(*changed, alert))
            if tell is not None:
                tell(look)
            return look
        state = self._state
        size = checkpoint.size
        look = Look(size=size, num_new=size - before, alerts=(*changed, *state.pending))
        if tell is not None:
            tell(look)
        if state.reading != state.verified:
            self._save(_State(note=note, verified=state.reading, reading=state.reading))
        return look

    def _look_at_authority(self) -> tuple[Alert, ...]:
        if self._authority is None:
            return ()
        try:
            self._authority.require_unchanged()
        except TransparencyError as error:
            # Told at every look, until somebody accepts it.
            return (Alert(kind="authority", message=f"{error}; {error.hint}"),)
        return ()

    def _open_newer(self, note: bytes) -> Checkpoint:
        checkpoint = open_checkpoint(note, self._trust.note_key)
        known_note = self._state.note
        if known_note is None:
            return checkpoint
        known = open_checkpoint(known_note, self._trust.note_key)
        if checkpoint.size < known.size:
            raise RewrittenLogError(
                f"THE LOG WAS ROLLED BACK: it had {known.size} entries, now it shows "
                f"{checkpoint.size}",
                earlier=known_note,
                later=note,
            )
        require_consistent(known_note, known, note, checkpoint, self._log.consistency)
        return checkpoint

    def _read_up_to(
        self, checkpoint: Checkpoint, on_progress: Callable[[int, int], None] | None
    ) -> None:
        if self._state.reading.size > checkpoint.size:
            # An interrupted look read further than the log now reaches: begin again.
            self._state = replace(self._state, reading=self._state.verified, pending=())
        pages = self._log.entries(self._state.reading.size, checkpoint.size)
        for number, page in enumerate(pages, start=1):
            frontier = self._state.reading
            found: list[Alert] = []
            for entry in page:
                frontier, _ = frontier.append(hash_leaf(entry.entry))
                found += self._look_at(entry)
            pending = (*self._state.pending, *found)[:_MAX_ALERTS]
            self._state = replace(self._state, reading=frontier, pending=pending)
            if number % _SAVE_EVERY_PAGES == 0:
                self._save(self._state)
            if on_progress is not None:
                on_progress(frontier.size, checkpoint.size)

    def _require_root(self, note: bytes, checkpoint: Checkpoint) -> None:
        if self._state.reading.root == checkpoint.root:
            return
        # Whatever was read is not to be built upon.
        self._save(replace(self._state, reading=self._state.verified, pending=()))
        raise RewrittenLogError(
            f"THE LOG WAS REWRITTEN: the entries it gives out are not the {checkpoint.size} "
            "that it signed",
            earlier=self._state.note or b"",
            later=note,
        )

    def _look_at(self, logged: LoggedEntry) -> list[Alert]:
        try:
            opened = open_statement(
                logged.entry, authority=self._trust.name, authority_key=self._trust.public_key
            )
        except NsmarkError as error:
            return [_forged(logged, f"it is no statement signed by its maker: {error}")]
        if opened.statement.kind != logged.kind:
            found = f"it is a {opened.statement.kind}, served as {logged.kind[:40]!r}"
            return [_forged(logged, found)]
        return self._look_for_own(logged.index, opened)

    def _look_for_own(self, index: int, opened: OpenedStatement) -> list[Alert]:
        statement, watch = opened.statement, self._watch
        if not isinstance(statement, OwnerStatement) or opened.entry_id in watch.expected:
            return []
        signer, entry_id = opened.signer, opened.entry_id
        if signer in watch.public_keys:
            said = f"a {statement.kind} was logged under your key that you did not expect"
            return [Alert(kind="key", message=said, index=index, entry_id=entry_id)]
        name = _named_owner(statement)
        if name is None or looks_of(name).isdisjoint(self._names):
            return []
        said = (
            f"a {statement.kind} in the name of {name!r} was logged under the key "
            f"{signer.fingerprint}"
        )
        registered = name
        if not isinstance(statement, Registration) and self._authority is not None:
            try:
                registered = self._authority.registered_name(signer.fingerprint)
            except NsmarkError as error:
                said += f", whose registered name cannot be read: {error}"
        if registered != name:
            said += f", which is registered as {registered!r}"
        return [
            Alert(
                kind="name",
                message=said,
                index=index,
                entry_id=entry_id,
                owner=name,
                registered_owner=registered,
            )
        ]

    def _load(self) -> _State:
        if not self._path.exists():
            return _State()
        content = read_bounded(self._path, _MAX_STATE_BYTES, "monitor state")
        members = parse_json_object(content, "monitor state")
        if members.get("format") != STATE_FORMAT:
            raise InputError(
                f"{self._path} is no state of a monitor", f"expected format {STATE_FORMAT!r}"
            )
        document = _Document.from_members(members, "monitor state")
        named = (document.authority, document.public_key)
        if named != (self._trust.name, self._trust.public_key.to_pem()):
            raise InputError(
                f"{self._path} belongs to another authority, or to another key of it",
                "keep one state file for each authority",
            )
        note = None if document.checkpoint is None else document.checkpoint.encode("utf-8")
        state = _State(
            note=note,
            verified=_to_frontier(document.verified),
            reading=_to_frontier(document.reading),
            pending=document.pending,
        )
        _require_whole(state, self._trust, self._path)
        return state

    def _save(self, state: _State) -> None:
        self._state = state
        document = _Document(
            format=STATE_FORMAT,
            authority=self._trust.name,
            public_key=self._trust.public_key.to_pem(),
            checkpoint=None if state.note is None else state.note.decode("utf-8"),
            verified=_to_tree(state.verified),
            reading=_to_tree(state.reading),
            pending=state.pending,
        )
        write_json(self._path, document.to_members())


def expected_entries(
    receipts: Collection[Path], public_keys: Collection[PublicKey] = ()
) -> frozenset[str]:
    """Return the ids of the entries that receipts are for.

    Args:
        receipts: Files, and folders that are looked through for them.
        public_keys: One's own: then only what one of them signed is expected, whoever else's
            receipts lie there.

    Raises:
        TransparencyError: A file is no receipt.
        FileAccessError: One cannot be read.
    """
    from nsmark_authority.receipt import RECEIPT_SUFFIX, Receipt

    files: list[Path] = []
    for place in receipts:
        files += sorted(place.glob(f"*{RECEIPT_SUFFIX}")) if place.is_dir() else [place]
    found = [Receipt.load(file) for file in files]
    return frozenset(
        receipt.entry_id
        for receipt in found
        if not public_keys or Envelope.parse(receipt.entry).signers(public_keys)
    )


def alert_document(alert: Alert) -> dict[str, Any]:
    """Return an alert as JSON says it, without what it has not."""
    return {name: value for name, value in alert.to_members().items() if value is not None}


def look_document(look: Look) -> dict[str, Any]:
    """Return a look as JSON says it."""
    return asdict(replace(look, alerts=())) | {"alerts": [alert_document(a) for a in look.alerts]}


def _named_owner(statement: OwnerStatement) -> str | None:
    if isinstance(statement, Registration):
        return statement.owner
    if isinstance(statement, Filing):
        return statement.ownership_claim().owner
    return None


def _rewritten(error: RewrittenLogError) -> Alert:
    return Alert(
        kind="rewritten",
        message=str(error),
        earlier=error.earlier.decode("utf-8") or None,
        later=error.later.decode("utf-8") or None,
    )


def _unsound(error: TransparencyError) -> Alert:
    return Alert(kind="forged", message=f"the log's checkpoint or proof is not sound: {error}")


def _forged(logged: LoggedEntry, reason: str) -> Alert:
    return Alert(
        kind="forged",
        message=f"entry {logged.index} is not what it claims: {reason}"[:2000],
        index=logged.index,
    )


def _require_whole(state: _State, trust: TrustedAuthority, path: Path) -> None:
    """Refuse a state that contradicts itself: somebody else wrote it."""
    verified = state.verified
    size, root = 0, Frontier().root
    if state.note is not None:
        checkpoint = open_checkpoint(state.note, trust.note_key)
        size, root = checkpoint.size, checkpoint.root
    is_beyond = verified.size > size or (verified.size == size and verified.root != root)
    if is_beyond or state.reading.size < verified.size:
        raise InputError(
            f"{path} contradicts itself", "look who changed it; to begin anew, move it away"
        )


def _to_tree(frontier: Frontier) -> _Tree:
    return _Tree(size=frontier.size, peaks=tuple(map(encode_base64, frontier.peaks)))


def _to_frontier(tree: _Tree) -> Frontier:
    return Frontier(tree.size, tuple(decode_base64(peak, "monitor state") for peak in tree.peaks))
