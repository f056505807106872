"""Which 32 bytes are a sound public key."""

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from nsmark.identity.points import is_sound_public_key

P = 2**255 - 19
D = -121665 * pow(121666, P - 2, P) % P

# The eight points whose order divides 8, as everyone lists them (order 1, 2, 4, 4, 8, 8, 8, 8).
SMALL_ORDER = [
    "0100000000000000000000000000000000000000000000000000000000000000",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "0000000000000000000000000000000000000000000000000000000000000000",
    "0000000000000000000000000000000000000000000000000000000000000080",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
]
# "Minus zero": x = 0 with its sign bit set, at y = 1 and y = −1.
NEGATIVE_ZERO = [
    "0100000000000000000000000000000000000000000000000000000000000080",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
]
# y written as y + p: nineteen values fit into 255 bits, each with either sign.
UNREDUCED = [
    (y | sign << 255).to_bytes(32, "little").hex() for y in range(P, 2**255) for sign in (0, 1)
]

Point = tuple[int, int]


def add(one: Point, two: Point) -> Point:
    """The complete addition law of the twisted Edwards curve −x² + y² = 1 + d x² y²."""
    (x1, y1), (x2, y2) = one, two
    product = D * x1 * x2 * y1 * y2 % P
    return (
        (x1 * y2 + x2 * y1) * pow(1 + product, P - 2, P) % P,
        (y1 * y2 + x1 * x2) * pow(1 - product, P - 2, P) % P,
    )


def decode(encoded: bytes) -> Point:
    number = int.from_bytes(encoded, "little")
    sign, y = number >> 255, number % 2**255
    square = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    x = pow(square, (P + 3) // 8, P)
    if x * x % P != square:
        x = x * pow(2, (P - 1) // 4, P) % P
    assert x * x % P == square, "not on the curve"
    return (P - x) % P if x % 2 != sign else x, y


def encode(point: Point) -> bytes:
    x, y = point
    return (y | (x % 2) << 255).to_bytes(32, "little")


def test_the_eight_small_order_points_are_the_whole_torsion_group() -> None:
    points = [decode(bytes.fromhex(encoded)) for encoded in SMALL_ORDER]

    assert len(set(points)) == 8
    for point in points:
        total = point
        for _ in range(7):
            total = add(total, point)
        assert total == (0, 1)


@pytest.mark.parametrize("encoded", SMALL_ORDER)
def test_every_point_of_small_order_is_refused(encoded: str) -> None:
    assert not is_sound_public_key(bytes.fromhex(encoded))


@pytest.mark.parametrize("encoded", NEGATIVE_ZERO + UNREDUCED)
def test_every_encoding_that_is_not_canonical_is_refused(encoded: str) -> None:
    assert not is_sound_public_key(bytes.fromhex(encoded))


def test_there_are_thirty_eight_unreduced_encodings() -> None:
    assert len(set(UNREDUCED)) == 38


@pytest.mark.parametrize("length", [0, 1, 31, 33, 64])
def test_other_lengths_are_refused(length: int) -> None:
    sound = Ed25519PrivateKey.from_private_bytes(b"k" * 32).public_key().public_bytes_raw()

    assert is_sound_public_key(sound)
    assert not is_sound_public_key((sound * 2)[:length])


@settings(max_examples=25, deadline=None)
@given(st.binary(min_size=32, max_size=32))
def test_every_generated_key_is_sound_and_so_is_its_negative(secret: bytes) -> None:
    public = Ed25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()

    assert is_sound_public_key(public)
    assert is_sound_public_key(public[:31] + bytes([public[31] ^ 0x80]))


@settings(max_examples=100, deadline=None)
@given(st.binary(min_size=32, max_size=32))
def test_arbitrary_bytes_are_sound_exactly_if_they_lie_on_the_curve(encoded: bytes) -> None:
    y = int.from_bytes(encoded, "little") % 2**255
    # Euler's criterion, not the code's square root. Small multiples of y are tested above.
    square = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    on_curve = y < P and pow(square, (P - 1) // 2, P) == 1
    if encoded.hex() in SMALL_ORDER:
        on_curve = False

    assert is_sound_public_key(encoded) == on_curve


@pytest.mark.parametrize("torsion", SMALL_ORDER)
def test_a_key_with_a_small_order_part_is_still_of_large_order(torsion: str) -> None:
    # Strange, but no signature fits two claims under it; only pure torsion is refused.
    public = Ed25519PrivateKey.from_private_bytes(b"k" * 32).public_key().public_bytes_raw()
    mixed = encode(add(decode(public), decode(bytes.fromhex(torsion))))

    assert is_sound_public_key(mixed)
