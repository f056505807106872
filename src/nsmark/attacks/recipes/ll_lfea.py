"""LL-LFEA: last-layer linear functionality equivalence attack (paper §3.1, appendix "Q").

The thief multiplies every output by an invertible Q and puts W Q⁻¹ in place of the downstream
head's weight W, so that W Q⁻¹ · Q x = W x: predictions stay, the extracted signature does not.
Cost: one matrix product per answer, no training. Utility kept: all of it, up to rounding.

Deviation from the published code, which never compensates the head: we do, and save both.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as load_safetensors
from safetensors.numpy import save as save_safetensors

from nsmark.attacks.catalogue import Facts, Recipe
from nsmark.attacks.settings import SEEDS, check_ranges, check_words
from nsmark.errors import ConfigError, InputError, UsageError
from nsmark.files import read_bounded, write_atomic
from nsmark.transforms.changes import Linear

if TYPE_CHECKING:
    from nsmark.attacks.material import Material
    from nsmark.attacks.stolen import Stolen

HEAD_FILE = "head.safetensors"
KINDS = ("uniform", "conditioned", "from-heads")
_MAX_HEAD_BYTES = 1 << 30
# Beyond this a float32 output no longer determines the float32 output before the map.
_MAX_CONDITION = 1e7

Matrix = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearAttackSettings:
    """Settings of the linear attack."""

    kind: str = "uniform"
    """Q with entries from U[0, 1] (paper); ``conditioned``: rotation times scales in [½, 2];
    ``from-heads``: W'†W for the weights of ``other_head`` (W') and ``head`` (W)."""

    seed: int = 0
    """Seed of Q."""

    head: str = ""
    """Downstream head to compensate: safetensors with ``weight`` (classes, dim), ``bias``."""

    other_head: str = ""
    """The head W' of kind ``from-heads``, of the same shape as ``head``."""

    times: int = 1
    """Maps one after the other, each drawn with the next seed."""

    def __post_init__(self) -> None:
        check_words(self, kind=KINDS)
        check_ranges(self, times=(1, 16), seed=SEEDS)
        if self.kind == "from-heads" and not (self.head and self.other_head):
            raise ConfigError("kind", self.kind, "needs both head and other_head")
        if self.kind == "from-heads" and self.times > 1:
            raise ConfigError("times", self.times, "two heads give one map")


@dataclass(frozen=True, slots=True)
class Head:
    """A linear downstream layer: logits = weight @ output + bias."""

    weight: Matrix
    bias: Matrix | None

    def logits(self, outputs: NDArray[np.floating]) -> Matrix:
        """Return logits, shape (num_texts, classes)."""
        product = np.asarray(outputs, dtype=np.float64) @ self.weight.T
        return product if self.bias is None else product + self.bias


def output_transform(kind: str, output_dim: int, seed: int) -> Matrix:
    """Draw an invertible Q, shape (output_dim, output_dim)."""
    rng = np.random.default_rng(seed)
    if kind == "uniform":
        return rng.uniform(0.0, 1.0, (output_dim, output_dim))
    rotation, _ = np.linalg.qr(rng.standard_normal((output_dim, output_dim)))
    return np.asarray(rotation * rng.uniform(0.5, 2.0, output_dim))


def transform_from_heads(other: Matrix, weight: Matrix) -> Matrix:
    """Return Q = W'†W (paper §3.1).

    Raises:
        InputError: The shapes differ, or Q would lose information (fewer rows than columns).
    """
    if other.shape != weight.shape:
        raise InputError(
            f"the heads have shapes {other.shape} and {weight.shape}", "give heads of one shape"
        )
    return check_invertible(np.linalg.pinv(other) @ weight)


def check_invertible(transform: Matrix) -> Matrix:
    """Refuse a map that loses information."""
    finite = bool(np.isfinite(transform).all())
    condition = float(np.linalg.cond(transform)) if finite else np.inf
    if not condition <= _MAX_CONDITION:
        raise InputError(
            f"the map cannot be undone: its condition number is {condition:.1e}",
            "draw it with another seed; W'†W needs heads with at least as many rows as dimensions",
        )
    return transform


def compensate(head: Head, transform: Matrix) -> Head:
    """Return the head that gives the same logits from transformed outputs: W' = W Q⁻¹."""
    weight = np.linalg.solve(transform.T, head.weight.T).T
    return Head(weight.astype(np.float64), head.bias)


def read_head(path: Path) -> Head:
    """Read a downstream head.

    Raises:
        InputError: Not a safetensors file with a finite ``weight``.
    """
    return head_from(read_bounded(path, _MAX_HEAD_BYTES, "head"), str(path))


def head_from(content: bytes, path: str) -> Head:
    """Return the head that a file holds.

    Args:
        content: Of the file.
        path: What errors call it.

    Raises:
        InputError: Not a safetensors file with a finite ``weight``.
    """
    try:
        arrays = load_safetensors(content)
    except (SafetensorError, KeyError) as error:  # KeyError: a type numpy does not have
        raise InputError(
            f"{path} is no safetensors file of ordinary numbers", "save weight and bias as float32"
        ) from error
    weight, bias = arrays.get("weight"), arrays.get("bias")
    if weight is None or weight.ndim != 2 or not weight.size or not np.isfinite(weight).all():
        raise InputError(f"{path} holds no finite matrix 'weight'", "save weight (classes, dim)")
    if bias is not None and (bias.shape != weight.shape[:1] or not np.isfinite(bias).all()):
        raise InputError(f"{path} holds no finite vector 'bias'", "one entry per class")
    return Head(weight.astype(np.float64), None if bias is None else bias.astype(np.float64))


def head_bytes(head: Head) -> bytes:
    """Return a downstream head; float64, so that undoing a badly conditioned map stays exact."""
    arrays = {"weight": head.weight}
    if head.bias is not None:
        arrays["bias"] = head.bias
    return save_safetensors({k: np.ascontiguousarray(v) for k, v in arrays.items()})


def write_head(head: Head, path: Path) -> None:
    """Write a downstream head."""
    write_atomic(path, head_bytes(head))


def apply(stolen: Stolen, settings: LinearAttackSettings, material: Material) -> Facts:
    """Multiply every answer by Q, and undo it in the head if one is given."""
    dim = stolen.output_dim
    head = read_head(Path(settings.head)) if settings.head else None
    if head is None and HEAD_FILE in stolen.extras:
        head = head_from(stolen.extras[HEAD_FILE], HEAD_FILE)  # trained by an earlier attack
    if head is not None and head.weight.shape[1] != dim:
        raise UsageError(
            f"the head takes {head.weight.shape[1]} dimensions, the model gives {dim}",
            "give the head that belongs to this model",
        )
    conditions = []
    for number in range(settings.times):
        if settings.kind == "from-heads" and head is not None:
            transform = transform_from_heads(
                read_head(Path(settings.other_head)).weight, head.weight
            )
        else:
            transform = check_invertible(
                output_transform(settings.kind, dim, settings.seed + number)
            )
        # Compensate for the map as stored, not as drawn: rounding Q must not cost accuracy.
        stored = transform.astype(np.float32).astype(np.float64)
        stolen.add_change(Linear(stored))
        conditions.append(float(np.linalg.cond(transform)))
        if head is not None:
            head = compensate(head, stored)
    if head is not None:
        stolen.extras[HEAD_FILE] = head_bytes(head)
    return {
        "output_dim": dim,
        "condition_number": conditions[0] if len(conditions) == 1 else conditions,
        "head": None if head is None else HEAD_FILE,
    }


RECIPE = Recipe(
    source="NSmark paper, §3.1 and its appendix on Q",
    deviations="The published code never compensates the head: we do, and save it. "
    "Several maps one after the other are one attack with ``times``.",
    cost="one matrix product per answer, no training",
    keeps="all of it, up to rounding",
    settings=LinearAttackSettings,
    apply=apply,
    trials=("", "times=2", "times=3", "kind=conditioned"),
)
