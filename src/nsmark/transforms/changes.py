"""Changes of outputs that can be written down: what an API does to every answer before it is sent.

Each takes rows of shape (num_texts, output_dim). A change is a record of numbers and arrays, so
that an attacked model can be saved and asked again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from nsmark.errors import ConfigError, ModelError

Rows = NDArray[np.float64]

_MAX_CHANGES = 64
_MAX_DIM = 65536


@dataclass(frozen=True, slots=True)
class Linear:
    """Multiply by a matrix, and add an offset."""

    kind: ClassVar[str] = "linear"
    matrix: Rows
    """Shape (new_dim, output_dim)."""
    offset: Rows | None = None

    def __call__(self, rows: Rows) -> Rows:
        """Multiply, then add."""
        product = rows @ self.matrix.T
        return product if self.offset is None else product + self.offset

    def new_dim(self, dim: int) -> int:
        """Return how many dimensions come out, refusing outputs of another dimension."""
        if self.matrix.ndim != 2 or self.matrix.shape[1] != dim:
            raise ValueError("matrix")
        if not 1 <= len(self.matrix) <= _MAX_DIM:
            raise ValueError("matrix")
        if self.offset is not None and self.offset.shape != self.matrix.shape[:1]:
            raise ValueError("offset")
        return len(self.matrix)


@dataclass(frozen=True, slots=True)
class UnitLength:
    """Give every answer the length 1, as embedding servers do."""

    kind: ClassVar[str] = "unit-length"

    def __call__(self, rows: Rows) -> Rows:
        """Divide by the lengths."""
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        return np.asarray(rows / np.maximum(lengths, 1e-300))


@dataclass(frozen=True, slots=True)
class ScaleAndSign:
    """Multiply every answer by its own random number, of either sign if asked for."""

    kind: ClassVar[str] = "scale-and-sign"
    seed: int
    flips: bool = True
    _rng: np.random.Generator = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_rng", np.random.default_rng(self.seed))

    def __call__(self, rows: Rows) -> Rows:
        """Multiply by numbers drawn now."""
        scales = self._rng.uniform(0.2, 5.0, (len(rows), 1))
        if self.flips:
            scales = scales * self._rng.choice([-1.0, 1.0], (len(rows), 1))
        return np.asarray(rows * scales)


@dataclass(frozen=True, slots=True)
class Noise:
    """Add Gaussian noise, new for every answer."""

    kind: ClassVar[str] = "noise"
    sizes: Rows
    """Its deviation in every dimension."""
    seed: int
    _rng: np.random.Generator = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_rng", np.random.default_rng(self.seed))

    def __call__(self, rows: Rows) -> Rows:
        """Add noise drawn now."""
        return np.asarray(rows + self.sizes * self._rng.standard_normal(rows.shape))


@dataclass(frozen=True, slots=True)
class Rounded:
    """Round to so many levels, as an API that saves bytes does."""

    kind: ClassVar[str] = "rounded"
    step: Rows
    """Distance of two levels, one number or one per dimension."""
    levels: int

    def __call__(self, rows: Rows) -> Rows:
        """Round."""
        most = self.levels // 2
        return np.asarray(np.clip(np.round(rows / self.step), -most, most) * self.step)


@dataclass(frozen=True, slots=True)
class Bfloat16:
    """Keep eight bits of every number's fraction, as a server does that computes in bfloat16."""

    kind: ClassVar[str] = "bfloat16"

    def __call__(self, rows: Rows) -> Rows:
        """Round."""
        bits = np.ascontiguousarray(rows, dtype=np.float32).view(np.uint32)
        # To the nearest, to the even one of two: what the hardware does.
        rounding = np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
        kept = (bits + rounding) & np.uint32(0xFFFF0000)
        return kept.view(np.float32).astype(np.float64)


@dataclass(frozen=True, slots=True)
class Signs:
    """Keep the sign of every entry alone."""

    kind: ClassVar[str] = "signs"

    def __call__(self, rows: Rows) -> Rows:
        """Return ±1."""
        return np.where(rows >= 0, 1.0, -1.0)


OutputChange = Linear | UnitLength | ScaleAndSign | Noise | Rounded | Bfloat16 | Signs
_KINDS: dict[str, type[Any]] = {
    kind.kind: kind for kind in (Linear, UnitLength, ScaleAndSign, Noise, Rounded, Bfloat16, Signs)
}


def apply_changes(changes: Sequence[OutputChange], rows: Rows) -> Rows:
    """Do one change after the other."""
    for change in changes:
        rows = change(rows)
    return rows


def write_changes(
    changes: Sequence[OutputChange],
) -> tuple[list[dict[str, Any]], dict[str, Rows]]:
    """Return changes as a JSON list and the arrays it names.

    Raises:
        ConfigError: There are more than can be read again.
    """
    if len(changes) > _MAX_CHANGES:
        raise ConfigError("changes of outputs", len(changes), f"must be at most {_MAX_CHANGES}")
    entries, arrays = [], {}
    for place, change in enumerate(changes):
        entry: dict[str, Any] = {"kind": change.kind}
        for each in _own_fields(type(change)):
            value = getattr(change, each)
            if isinstance(value, np.ndarray):
                arrays[f"{place}.{each}"] = np.ascontiguousarray(value, dtype=np.float64)
            elif value is not None:
                entry[each] = value
        entries.append(entry)
    return entries, arrays


def read_changes(entries: Any, arrays: Mapping[str, Rows], output_dim: int) -> list[OutputChange]:
    """Read what :func:`write_changes` wrote, from a file that may be anybody's.

    Args:
        entries: The JSON list.
        arrays: By name.
        output_dim: Of the model's outputs, which shapes are checked against.

    Raises:
        ModelError: It is malformed.
    """
    if not isinstance(entries, list) or len(entries) > _MAX_CHANGES:
        raise malformed("no list of changes")
    changes: list[OutputChange] = []
    for place, entry in enumerate(entries):
        kind = _KINDS.get(str(entry.get("kind"))) if isinstance(entry, dict) else None
        if kind is None:
            raise malformed(f"change {place} is of an unknown kind")
        try:
            change = kind(**_values(kind, entry, arrays, place))
            output_dim = _dim_after(change, output_dim)
        except (TypeError, ValueError) as error:
            raise malformed(f"change {place}, {kind.kind}: {error}") from error
        changes.append(change)
    return changes


def _values(
    kind: type[Any], entry: Mapping[str, Any], arrays: Mapping[str, Rows], place: int
) -> dict[str, Any]:
    """Return the fields of a change, each checked by itself."""
    values: dict[str, Any] = {}
    for each in fields(kind):
        array = arrays.get(f"{place}.{each.name}")
        if each.init and "Rows" in str(each.type) and array is not None:
            if not np.isfinite(array).all():
                raise ValueError(f"{each.name} is not finite")
            values[each.name] = array
        elif each.init and each.name in entry:
            value = entry[each.name]
            if type(value).__name__ != str(each.type) or not 0 <= value < 2**63:
                raise ValueError(each.name)
            values[each.name] = value
    return values


def _dim_after(change: OutputChange, dim: int) -> int:
    """Return the dimension of changed outputs, refusing what does not fit them."""
    if isinstance(change, Linear):
        return change.new_dim(dim)
    sizes = {"noise": "sizes", "rounded": "step"}.get(change.kind)
    if sizes is not None and getattr(change, sizes).shape not in ((), (1,), (dim,)):
        raise ValueError(sizes)
    if isinstance(change, Rounded) and not ((change.step > 0).all() and change.levels >= 2):
        raise ValueError("levels and their distance must be positive")
    return dim


def _own_fields(kind: type[Any]) -> list[str]:
    return [each.name for each in fields(kind) if each.init]


def malformed(what: str) -> ModelError:
    """Return the error of a serving file that cannot be read."""
    return ModelError(f"the folder's serving file is malformed: {what}", "write it anew")
