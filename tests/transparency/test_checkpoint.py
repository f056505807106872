"""Checkpoints: real ones are read, ours come back, and whatever is altered is refused."""

import base64
import hashlib

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from nsmark.identity import Identity, PublicKey
from nsmark_authority.errors import TransparencyError
from nsmark_authority.transparency import (
    EMPTY_ROOT,
    MAX_NOTE_BYTES,
    MAX_TREE_SIZE,
    Checkpoint,
    NoteKey,
    NoteSignature,
    SignedCheckpoint,
    open_checkpoint,
    sign_checkpoint,
)

ORIGIN = "log.example/nsmark"
LOG = Identity(Ed25519PrivateKey.from_private_bytes(b"l" * 32))
WITNESS = Identity(Ed25519PrivateKey.from_private_bytes(b"w" * 32))
LOG_KEY = NoteKey(ORIGIN, LOG.public_key)
WITNESS_KEY = NoteKey("witness.example", WITNESS.public_key)
ROOT = hashlib.sha256(b"root").digest()
ROOT_LINE = base64.b64encode(ROOT).decode()
CHECKPOINT = Checkpoint(origin=ORIGIN, size=42, root=ROOT)
SIGNED = sign_checkpoint(CHECKPOINT, LOG)
NOTE = SIGNED.to_bytes()
SIGNATURE_LINE = SIGNED.signatures[0].to_line()

# A tree head of Go's checksum database, with the key every Go installation knows.
GO_KEY = NoteKey(
    "sum.golang.org",
    PublicKey(base64.b64decode("Ac4zctda0e5eza+HJyk9SxEdh+s3Ux18htTTAD8OuAn8")[1:]),
)
GO_NOTE = """\
go.sum database tree
20852163
CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=

— sum.golang.org Az3grlgtzPICa5OS8npVmf1Myq/5IZniMp+ZJurmRDeOoRDe4URYN7u5/Zhcyv2q1gGzGku9nTo+zyWE+xeMcTOAYQ8=
""".encode()  # noqa: E501


def note(body: str, signatures: str = SIGNATURE_LINE + "\n") -> bytes:
    return f"{body}\n{signatures}".encode()


def resigned(body: str) -> bytes:
    """A note whose signature fits the body, whatever it is."""
    signature = LOG_KEY.key_id + LOG.sign_bytes(body.encode())
    return note(body, f"— {ORIGIN} {base64.b64encode(signature).decode()}\n")


def test_golden_checkpoint_of_a_real_log() -> None:
    checkpoint = open_checkpoint(GO_NOTE, GO_KEY, "go.sum database tree")

    assert GO_KEY.key_id.hex() == "033de0ae"
    assert checkpoint.size == 20852163
    assert checkpoint.root.hex().startswith("0ac5186a91863e8e1d90c808")
    assert SignedCheckpoint.parse(GO_NOTE).to_bytes() == GO_NOTE
    with pytest.raises(TransparencyError, match=r"of the log 'go\.sum database tree'"):
        open_checkpoint(GO_NOTE, GO_KEY)
    with pytest.raises(TransparencyError, match="does not fit"):
        open_checkpoint(GO_NOTE.replace(b"20852163", b"20852164"), GO_KEY, "go.sum database tree")


def test_golden_key_id_and_form() -> None:
    raw = base64.b64decode("ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW")[1:]
    content = ORIGIN.encode() + b"\n\x01" + LOG.public_key.raw

    assert NoteKey("PeterNeumann", PublicKey(raw)).key_id.hex() == "c74f20a3"
    assert LOG_KEY.key_id == hashlib.sha256(content).digest()[:4]
    assert CHECKPOINT.to_text() == f"{ORIGIN}\n42\n{ROOT_LINE}\n"
    assert resigned(CHECKPOINT.to_text()) == NOTE


lines = st.text(
    st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), min_size=1, max_size=20
).filter(lambda line: not line.startswith("DSSEv1 "))
names = st.text(
    st.characters(exclude_categories=["Cc", "Cs", "Z"], exclude_characters="+"),
    min_size=1,
    max_size=20,
)


@settings(max_examples=150, deadline=None)
@given(lines, st.integers(1, MAX_TREE_SIZE), st.binary(min_size=32, max_size=32), names, names)
def test_what_is_signed_is_read_back(
    origin: str, size: int, root: bytes, name: str, extension: str
) -> None:
    checkpoint = Checkpoint(origin=origin, size=size, root=root, extensions=(extension, "— x y"))
    signed = sign_checkpoint(checkpoint, LOG, name)
    again = SignedCheckpoint.parse(signed.to_bytes())

    assert again == signed
    assert again.to_bytes() == signed.to_bytes()
    assert open_checkpoint(again.to_bytes(), NoteKey(name, LOG.public_key), origin) == checkpoint


def test_an_empty_log_has_a_checkpoint_with_the_empty_root_only() -> None:
    empty = Checkpoint(origin=ORIGIN, size=0, root=EMPTY_ROOT)

    assert open_checkpoint(sign_checkpoint(empty, LOG).to_bytes(), LOG_KEY) == empty
    with pytest.raises(TransparencyError, match="root"):
        Checkpoint(origin=ORIGIN, size=0, root=ROOT)


# Signatures ---------------------------------------------------------------------------------


def test_each_of_several_signatures_is_checked_with_its_own_key() -> None:
    both = SIGNED.add_signature("witness.example", WITNESS)

    for key in (LOG_KEY, WITNESS_KEY):
        assert open_checkpoint(both.to_bytes(), key, ORIGIN) == CHECKPOINT
    assert both.signatures[0] == SIGNED.signatures[0]
    with pytest.raises(TransparencyError, match="no signature of 'witness"):
        SIGNED.check(WITNESS_KEY)


@pytest.mark.parametrize(
    "unknown",
    [
        NoteSignature(name="other.example", key_id=LOG_KEY.key_id, signature=bytes(64)),
        NoteSignature(name=ORIGIN, key_id=bytes(4), signature=bytes(64)),
        NoteSignature(name="pq.example", key_id=b"abcd", signature=bytes(4900)),
        NoteSignature(name="tiny", key_id=b"abcd", signature=b"\x00"),
    ],
)
def test_signatures_of_unknown_keys_are_ignored(unknown: NoteSignature) -> None:
    for signatures in ((unknown, *SIGNED.signatures), (*SIGNED.signatures, unknown)):
        content = SignedCheckpoint(CHECKPOINT, signatures).to_bytes()
        assert open_checkpoint(content, LOG_KEY) == CHECKPOINT
    with pytest.raises(TransparencyError, match="no signature of"):
        SignedCheckpoint(CHECKPOINT, (unknown,)).check(LOG_KEY)


@pytest.mark.parametrize("signature", [bytes(64), bytes(1), bytes(63), bytes(65), bytes(4900)])
def test_one_forged_signature_of_a_known_key_spoils_the_note(signature: bytes) -> None:
    forged = NoteSignature(name=ORIGIN, key_id=LOG_KEY.key_id, signature=signature)

    for signatures in ((forged,), (forged, *SIGNED.signatures), (*SIGNED.signatures, forged)):
        with pytest.raises(TransparencyError, match="does not fit"):
            SignedCheckpoint(CHECKPOINT, signatures).check(LOG_KEY)


def test_anothers_key_and_another_name_are_refused() -> None:
    for key in (NoteKey(ORIGIN, WITNESS.public_key), NoteKey("log.example", LOG.public_key)):
        with pytest.raises(TransparencyError, match="no signature of"):
            open_checkpoint(NOTE, key, ORIGIN)


def test_a_checkpoint_of_another_log_under_the_same_key_is_refused() -> None:
    other = Checkpoint(origin="log.example/other", size=42, root=ROOT)

    with pytest.raises(TransparencyError, match="of the log 'log"):
        open_checkpoint(sign_checkpoint(other, LOG, ORIGIN).to_bytes(), LOG_KEY)


def test_sixteen_large_signatures_are_accepted_and_more_than_a_note_holds_are_not() -> None:
    large = [
        NoteSignature(name=f"pq{i}.example", key_id=b"abcd", signature=bytes(4900))
        for i in range(30)
    ]

    content = SignedCheckpoint(CHECKPOINT, (*SIGNED.signatures, *large[:15])).to_bytes()
    assert open_checkpoint(content, LOG_KEY) == CHECKPOINT
    with pytest.raises(TransparencyError, match="larger than"):
        SignedCheckpoint(CHECKPOINT, tuple(large))
    with pytest.raises(TransparencyError, match="larger than"):
        SignedCheckpoint.parse(bytes(MAX_NOTE_BYTES + 1))
    with pytest.raises(TransparencyError, match="1 to 64 signatures"):
        SignedCheckpoint.parse(note(CHECKPOINT.to_text(), f"{SIGNATURE_LINE}\n" * 65))
    with pytest.raises(TransparencyError, match="1 to 64 signatures"):
        SignedCheckpoint(CHECKPOINT, ())


# Altered and malformed notes ----------------------------------------------------------------


def test_a_note_with_any_bit_flipped_is_refused() -> None:
    for position in range(len(NOTE)):
        for bit in range(8):
            altered = bytearray(NOTE)
            altered[position] ^= 1 << bit
            with pytest.raises(TransparencyError):
                open_checkpoint(bytes(altered), LOG_KEY)


def test_a_note_with_any_byte_missing_or_doubled_is_refused() -> None:
    for position in range(len(NOTE)):
        missing = NOTE[:position] + NOTE[position + 1 :]
        doubled = NOTE[: position + 1] + NOTE[position:]
        for altered in (NOTE[:position], missing, doubled):
            with pytest.raises(TransparencyError):
                open_checkpoint(altered, LOG_KEY)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=80) | st.text(max_size=80).map(lambda text: text.encode()))
def test_no_other_bytes_are_a_checkpoint(content: bytes) -> None:
    with pytest.raises(TransparencyError):
        SignedCheckpoint.parse(content)
    for altered in (NOTE + content, content + NOTE) if content else ():
        with pytest.raises(TransparencyError):
            open_checkpoint(altered, LOG_KEY)


@pytest.mark.parametrize(
    "body",
    [
        "",
        "\n",
        f"{ORIGIN}\n42\n",
        f"\n42\n{ROOT_LINE}\n",
        f"{ORIGIN}\n\n42\n{ROOT_LINE}\n",
        f"{ORIGIN}\n42\n{ROOT_LINE}\n\nextension\n",
        f"{ORIGIN}\r\n42\r\n{ROOT_LINE}\r\n",
        f"{ORIGIN}\r\n42\n{ROOT_LINE}\n",
        f"{ORIGIN}\t\n42\n{ROOT_LINE}\n",
        f"{ORIGIN}\x00\n42\n{ROOT_LINE}\n",
        f"{ORIGIN}\x7f\n42\n{ROOT_LINE}\n",
        f"{ORIGIN}\x85\n42\n{ROOT_LINE}\n",
        f"{ORIGIN}\u2028\n42\n{ROOT_LINE}\n",
        f"{ORIGIN}\n42\n{ROOT_LINE}\nexten\x1bsion\n",
        f"DSSEv1 1 x\n42\n{ROOT_LINE}\n",
        *(
            f"{ORIGIN}\n{size}\n{ROOT_LINE}\n"
            for size in ("", "042", "00", "+42", "-1", "-0", " 42", "42 ", "4_2", "4.0", "4e1")
        ),
        *(
            f"{ORIGIN}\n{size}\n{ROOT_LINE}\n"
            for size in ("0x2a", "٤٢", "0", str(2**63), "9" * 19, "9" * 20, "9" * 5000)
        ),
        *(
            f"{ORIGIN}\n42\n{root}\n"
            for root in (
                "",
                ROOT_LINE[:-1],
                ROOT_LINE + "=",
                ROOT_LINE + " ",
                " " + ROOT_LINE,
                ROOT.hex(),
                base64.b64encode(ROOT[:31]).decode(),
                base64.b64encode(ROOT + b"\x00").decode(),
                base64.urlsafe_b64encode(b"\xff" * 32).decode(),
                "A" * 42 + "B=",  # a bit set beyond the last byte
            )
        ),
    ],
)
def test_a_malformed_text_is_refused_even_if_it_is_signed(body: str) -> None:
    with pytest.raises(TransparencyError, match=r"no valid checkpoint|plain base64") as refused:
        SignedCheckpoint.parse(resigned(body))

    assert refused.value.hint


ENCODED = SIGNATURE_LINE.split(" ")[2]


@pytest.mark.parametrize(
    "signatures",
    [
        "",
        "\n",
        SIGNATURE_LINE,
        f"{SIGNATURE_LINE}\r\n",
        f"{SIGNATURE_LINE}\n\n",
        f"\n{SIGNATURE_LINE}\n",
        f"{SIGNATURE_LINE} \n",
        f" {SIGNATURE_LINE}\n",
        f"{SIGNATURE_LINE}\nmore\n",
        f"{SIGNATURE_LINE}\n\n{SIGNATURE_LINE}\n",
        f"- {ORIGIN} {ENCODED}\n",
        f"– {ORIGIN} {ENCODED}\n",
        f"—{ORIGIN} {ENCODED}\n",
        f"—  {ENCODED}\n",
        f"— {ENCODED}\n",
        f"— {ORIGIN}\n",
        f"— {ORIGIN} \n",
        f"— {ORIGIN}  {ENCODED}\n",
        f"— {ORIGIN}\u00a0x {ENCODED}\n",
        f"— {ORIGIN}+x {ENCODED}\n",
        f"— {ORIGIN}\x07 {ENCODED}\n",
        f"— {ORIGIN} {ENCODED} {ENCODED}\n",
        f"— {ORIGIN} {ENCODED.rstrip('=')}\n",
        f"— {ORIGIN} AAAA\n",
        f"— {ORIGIN} AAAAAA==\n",
        f"— {ORIGIN} {ENCODED}\x0b\n",
    ],
)
def test_malformed_signature_lines_are_refused(signatures: str) -> None:
    with pytest.raises(TransparencyError, match=r"no valid checkpoint|plain base64"):
        SignedCheckpoint.parse(note(CHECKPOINT.to_text(), signatures))


def test_only_utf8_without_a_mark_is_read() -> None:
    for content in (b"\xff" + NOTE, NOTE.decode().encode("utf-16"), b"\xc0\x80" + NOTE):
        with pytest.raises(TransparencyError, match="not UTF-8"):
            SignedCheckpoint.parse(content)
    with pytest.raises(TransparencyError, match="does not fit"):
        open_checkpoint(b"\xef\xbb\xbf" + NOTE, LOG_KEY)


def test_what_could_not_be_read_back_is_not_signed() -> None:
    for origin in ("", "two\nlines", "\ud800", "DSSEv1 "):
        with pytest.raises(TransparencyError):
            Checkpoint(origin=origin, size=1, root=ROOT)
    for extensions in (("",), ("a\nb",), ("fine", "\r")):
        with pytest.raises(TransparencyError):
            Checkpoint(origin=ORIGIN, size=1, root=ROOT, extensions=extensions)
    for size in (-1, MAX_TREE_SIZE + 1):
        with pytest.raises(TransparencyError, match="size"):
            Checkpoint(origin=ORIGIN, size=size, root=ROOT)
    for name in ("", "a b", "a+b", "a\u2003b", "a\nb", "\ud800"):
        with pytest.raises(TransparencyError):
            sign_checkpoint(CHECKPOINT, LOG, name)
    with pytest.raises(TransparencyError, match="space"):
        sign_checkpoint(Checkpoint(origin="my log", size=1, root=ROOT), LOG)
