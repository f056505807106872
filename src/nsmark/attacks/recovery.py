"""Recovery of the extraction rate after a linear attack: a diagnostic, and no evidence.

The paper estimates the thief's matrix from the owner's and the suspect's outputs and undoes it
(its equation has Q' where Q'⁻¹ is meant). A map fitted from the outputs of ANY model to the
owner's gives the owner's mark back, because the mark is in the outputs that it was fitted to. So
the same number is always told for answers that are nothing but noise.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from nsmark.attacks.utility import Rows, ridge_weights
from nsmark.core.extraction import extraction_rate
from nsmark.core.mlp import mlp_forward
from nsmark.errors import EvidenceError
from nsmark.keyfile.schema import WatermarkKey

_FITTED_SHARE = 0.7
_PENALTY = 1e-6


@dataclass(frozen=True, slots=True)
class Recovery:
    """Extraction rates on texts that the map was not fitted to."""

    before: float | None
    """From the suspect's outputs as they are; None where they have another dimension."""
    recovered: float
    noise: float
    """The same map fitted from random numbers: if that is as high, recovery says nothing."""
    num_fitted: int
    num_read: int

    def to_mapping(self) -> dict[str, float | int | None]:
        """Return the values by name."""
        return asdict(self)


def recover(key: WatermarkKey, triggered: Rows, seed: int = 0) -> Recovery:
    """Undo the linear map that leads best from the owner's outputs to a suspect's.

    Args:
        key: The key.
        triggered: The suspect's outputs to the triggered texts, one row per text.
        seed: Of the random numbers beside it.

    Raises:
        EvidenceError: There are not as many outputs as texts.
    """
    owner = key.owner_triggered.astype(np.float64)
    if len(triggered) != len(owner):
        raise EvidenceError(
            f"there are {len(triggered)} outputs, the key asks {len(owner)} texts",
            "answer exactly the key's texts",
        )
    cut = int(_FITTED_SHARE * len(owner))
    noise = np.random.default_rng(seed).standard_normal(triggered.shape)
    return Recovery(
        before=_read(key, triggered[cut:]) if triggered.shape[1] == owner.shape[1] else None,
        recovered=_read(key, mapped_to(owner[:cut], triggered[:cut], triggered[cut:])),
        noise=_read(key, mapped_to(owner[:cut], noise[:cut], noise[cut:])),
        num_fitted=cut,
        num_read=len(owner) - cut,
    )


def mapped_to(owner: Rows, suspect: Rows, further: Rows) -> Rows:
    """Fit the affine map from a suspect's rows to the owner's, and apply it to further rows."""
    mean, target = suspect.mean(axis=0), owner.mean(axis=0)
    weights = ridge_weights(suspect - mean, owner - target, _PENALTY)
    return np.asarray((further - mean) @ weights + target)


def _read(key: WatermarkKey, rows: Rows) -> float:
    config = key.configuration
    mapped = mlp_forward(rows, key.extractor)
    return extraction_rate(mapped, key.signature, config.num_bits, config.spread_factor)
