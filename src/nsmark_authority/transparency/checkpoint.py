"""Signed checkpoints: a log's size and root in the text form of C2SP tlog-checkpoint.

A checkpoint is a signed note (C2SP signed-note): an origin line, the size, the root and perhaps
extension lines; an empty line; one line per signature. The text means nothing until a signature of
a known key was checked, which is what :func:`open_checkpoint` is for.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace

from nsmark.identity import Identity, PublicKey
from nsmark_authority.errors import TransparencyError
from nsmark_authority.transparency.merkle import EMPTY_ROOT, HASH_BYTES, MAX_TREE_SIZE
from nsmark_authority.transparency.strict_base64 import decode_base64, encode_base64

MAX_NOTE_BYTES = 128 * 1024
"""Room for the 16 post-quantum signatures of 5 kB that a reader of notes must accept."""

_MAX_SIGNATURES = 64
_ED25519 = b"\x01"
_KEY_ID_BYTES = 4
_SIGNATURE_BYTES = 64
_SIGNATURE_MARK = "\u2014 "
_SIZE = re.compile(r"0|[1-9][0-9]{0,18}")
# Beyond the format's own rule: characters that a terminal or an editor takes for a line's end.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_ENVELOPE_PREFIX = "DSSEv1 "


@dataclass(frozen=True, slots=True)
class NoteKey:
    """A public key under the name it signs notes with."""

    name: str
    """By custom the log's origin, a URL without its scheme."""

    public_key: PublicKey

    def __post_init__(self) -> None:
        _require_name(self.name)

    @property
    def key_id(self) -> bytes:
        """Four bytes that tell keys of one name apart; no proof of anything."""
        content = self.name.encode("utf-8") + b"\n" + _ED25519 + self.public_key.raw
        return hashlib.sha256(content).digest()[:_KEY_ID_BYTES]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """What a log commits to: this many entries, under this root."""

    origin: str
    """Which log."""

    size: int
    """Number of leaves."""

    root: bytes
    """Root of the Merkle tree."""

    extensions: tuple[str, ...] = ()
    """Further lines, of no meaning here."""

    def __post_init__(self) -> None:
        for line in (self.origin, *self.extensions):
            _require_line(line)
        # One key may sign checkpoints and envelopes: no text may be both.
        if self.origin.startswith(_ENVELOPE_PREFIX):
            raise _malformed(f"its origin begins with {_ENVELOPE_PREFIX!r}")
        if not 0 <= self.size <= MAX_TREE_SIZE:
            raise _malformed("its size is out of range")
        if len(self.root) != HASH_BYTES or (self.size == 0 and self.root != EMPTY_ROOT):
            raise _malformed("its root is not that of such a tree")

    @classmethod
    def parse(cls, text: str) -> Checkpoint:
        """Read the signed part of a note: at least three lines, each with a newline at its end."""
        origin, *rest = text.removesuffix("\n").split("\n")
        if len(rest) < 2 or not text.endswith("\n"):
            raise _malformed("it has no lines for origin, size and root")
        size, root, *extensions = rest
        if not _SIZE.fullmatch(size):
            raise _malformed("its size is no plain decimal number")
        return cls(
            origin=origin,
            size=int(size),
            root=decode_base64(root, "root of the checkpoint"),
            extensions=tuple(extensions),
        )

    def to_text(self) -> str:
        """Return what is signed."""
        lines = (self.origin, str(self.size), encode_base64(self.root), *self.extensions)
        return "".join(line + "\n" for line in lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteSignature:
    """One signature line; the signature may be of a kind we do not know."""

    name: str
    key_id: bytes
    signature: bytes

    def __post_init__(self) -> None:
        _require_name(self.name)
        if len(self.key_id) != _KEY_ID_BYTES or not self.signature:
            raise _malformed("a signature is too short")

    @classmethod
    def parse(cls, line: str) -> NoteSignature:
        """Read ``— NAME BASE64``."""
        name, space, encoded = line.removeprefix(_SIGNATURE_MARK).partition(" ")
        if not line.startswith(_SIGNATURE_MARK) or not space:
            raise _malformed("a signature line is not of the form '\u2014 NAME BASE64'")
        octets = decode_base64(encoded, "signature of the checkpoint")
        return cls(name=name, key_id=octets[:_KEY_ID_BYTES], signature=octets[_KEY_ID_BYTES:])

    def to_line(self) -> str:
        """Return the line without its newline."""
        return f"{_SIGNATURE_MARK}{self.name} {encode_base64(self.key_id + self.signature)}"


@dataclass(frozen=True, slots=True)
class SignedCheckpoint:
    """A checkpoint with signatures that are still to be checked."""

    checkpoint: Checkpoint
    signatures: tuple[NoteSignature, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.signatures) <= _MAX_SIGNATURES:
            raise _malformed(f"it has not 1 to {_MAX_SIGNATURES} signatures")
        if len(self.to_bytes()) > MAX_NOTE_BYTES:
            raise _malformed(f"it is larger than {MAX_NOTE_BYTES:,} bytes")

    @classmethod
    def parse(cls, note: bytes) -> SignedCheckpoint:
        """Read a signed note; there is one way only to write it.

        Raises:
            TransparencyError: Not a checkpoint, or not in this form.
        """
        if len(note) > MAX_NOTE_BYTES:
            raise _malformed(f"it is larger than {MAX_NOTE_BYTES:,} bytes")
        try:
            text = note.decode("utf-8")
        except UnicodeDecodeError as error:
            raise _malformed("it is not UTF-8") from error
        # No line of a checkpoint is empty, so the first empty line is the only one.
        body, separator, lines = text.partition("\n\n")
        if not separator or not lines.endswith("\n"):
            raise _malformed("it is not signed, or was cut off")
        signatures = lines.removesuffix("\n").split("\n")
        return cls(Checkpoint.parse(body + "\n"), tuple(map(NoteSignature.parse, signatures)))

    def to_bytes(self) -> bytes:
        """Return the note."""
        lines = "".join(signature.to_line() + "\n" for signature in self.signatures)
        return f"{self.checkpoint.to_text()}\n{lines}".encode()

    def add_signature(self, name: str, identity: Identity) -> SignedCheckpoint:
        """Return the checkpoint with one more signature, after those it has."""
        signature = _sign(self.checkpoint, name, identity)
        return replace(self, signatures=(*self.signatures, signature))

    def check(self, key: NoteKey) -> None:
        """Check that a key signed; signatures of other keys are ignored.

        Raises:
            TransparencyError: It did not, or one of its signatures is forged.
        """
        message = self.checkpoint.to_text().encode()
        own = [s for s in self.signatures if (s.name, s.key_id) == (key.name, key.key_id)]
        if not own:
            raise TransparencyError(
                f"the checkpoint has no signature of {key.name[:80]!r} with the expected key",
                "check which key belongs to this log",
            )
        for line in own:
            if len(line.signature) != _SIGNATURE_BYTES or not key.public_key.verifies(
                line.signature, message
            ):
                raise TransparencyError(
                    f"the signature of {key.name[:80]!r} does not fit the checkpoint",
                    "the checkpoint was altered; fetch it again from the log",
                )


def sign_checkpoint(
    checkpoint: Checkpoint, identity: Identity, name: str | None = None
) -> SignedCheckpoint:
    """Sign a checkpoint, under the name of its origin unless another is given."""
    signer = checkpoint.origin if name is None else name
    return SignedCheckpoint(checkpoint, (_sign(checkpoint, signer, identity),))


def open_checkpoint(note: bytes, key: NoteKey, origin: str | None = None) -> Checkpoint:
    """Return the checkpoint of a note that this log signed with this key.

    Args:
        note: What the log served.
        key: The log's key, known from elsewhere.
        origin: Which log it must be of; the name of the key if not given.

    Raises:
        TransparencyError: Malformed, of another log, or not signed with the key.
    """
    signed = SignedCheckpoint.parse(note)
    signed.check(key)
    expected = key.name if origin is None else origin
    if signed.checkpoint.origin != expected:
        raise TransparencyError(
            f"the checkpoint is of the log {signed.checkpoint.origin[:80]!r}, "
            f"not {expected[:80]!r}",
            "one key signs for several logs; ask the right one",
        )
    return signed.checkpoint


def _sign(checkpoint: Checkpoint, name: str, identity: Identity) -> NoteSignature:
    key = NoteKey(name, identity.public_key)
    signature = identity.sign_bytes(checkpoint.to_text().encode())
    return NoteSignature(name=name, key_id=key.key_id, signature=signature)


def _require_line(line: str) -> None:
    if not line or _CONTROL.search(line):
        raise _malformed("a line is empty or holds control characters")
    try:
        line.encode("utf-8")
    except UnicodeEncodeError as error:
        raise _malformed("a line is not valid Unicode") from error


def _require_name(name: str) -> None:
    _require_line(name)
    if "+" in name or any(character.isspace() for character in name):
        raise _malformed("a key name holds a space or a plus sign")


def _malformed(reason: str) -> TransparencyError:
    return TransparencyError(
        f"this is no valid checkpoint: {reason}", "fetch it again from the log, unaltered"
    )
