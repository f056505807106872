"""Settings of the payload, checked once at the door."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from nsmark.errors import ConfigError

Placement = Literal["spread", "front"]

MIN_TEXTS = 1500


def default_num_texts(output_dim: int) -> int:
    """Return how many verification texts a model of this output dimension gets (paper: q)."""
    return max(MIN_TEXTS, 2 * output_dim)


@dataclass(frozen=True, slots=True, kw_only=True)
class PayloadConfig:
    """How signature bits become the watermark vector, and how the trigger is inserted."""

    num_bits: int = 256
    """Entries of the ±1 signature vector (paper: n)."""

    spread_factor: int = 3
    """Copies of each bit in the watermark vector (paper: k)."""

    copies: int = 5
    """Trigger copies in a verification text."""

    window: int = 64
    """Triggers go among the first so many words."""

    placement: Placement = "spread"
    """``spread``: positions from the signature; ``front``: all at position 0."""

    def __post_init__(self) -> None:
        for name, lowest, highest in (
            ("num_bits", 8, 4096),
            ("spread_factor", 1, 63),
            ("copies", 1, 64),
            ("window", 1, 64),
        ):
            value = getattr(self, name)
            if not lowest <= value <= highest:
                raise ConfigError(name, value, f"must lie between {lowest} and {highest}")
        if self.placement not in ("spread", "front"):
            raise ConfigError("placement", self.placement, "must be 'spread' or 'front'")

    @property
    def vector_length(self) -> int:
        """Entries of the watermark vector."""
        return self.num_bits * self.spread_factor
