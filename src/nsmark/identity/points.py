"""Which 32 bytes are a sound Ed25519 public key.

``cryptography`` verifies under the identity point and other small-order points, for which one
signature fits many claims. A claim's key must therefore be a canonical encoding of a point whose
order is not small.
"""

from __future__ import annotations

_P = 2**255 - 19
_D = -121665 * pow(121666, -1, _P) % _P
_SQRT_MINUS_ONE = pow(2, (_P - 1) // 4, _P)


def _decompress(encoded: bytes) -> tuple[int, int] | None:
    """Return (x, y) of a canonical encoding of a curve point, else None (RFC 8032 §5.1.3)."""
    number = int.from_bytes(encoded, "little")
    sign, y = number >> 255, number & (2**255 - 1)
    if len(encoded) != 32 or y >= _P:
        return None
    numerator, denominator = (y * y - 1) % _P, (_D * y * y + 1) % _P
    square = numerator * pow(denominator, -1, _P) % _P
    x = pow(square, (_P + 3) // 8, _P)
    if x * x % _P != square:
        x = x * _SQRT_MINUS_ONE % _P
    if x * x % _P != square or (x == 0 and sign):
        return None
    return (_P - x if x % 2 != sign else x), y


def _double(point: tuple[int, int]) -> tuple[int, int]:
    x, y = point
    product = _D * x * x * y * y % _P
    return (
        2 * x * y * pow(1 + product, -1, _P) % _P,
        (y * y + x * x) * pow(1 - product, -1, _P) % _P,
    )


def is_sound_public_key(encoded: bytes) -> bool:
    """Return whether the bytes encode, canonically, a point of large order."""
    point = _decompress(encoded)
    if point is None:
        return False
    for _ in range(3):  # the cofactor is 8: small-order points vanish after three doublings
        point = _double(point)
    return point != (0, 1)
