"""The Suspect protocol, and opening one from its address."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from nsmark.errors import UsageError
from nsmark.suspects.recorded import RecordedOutputs, load_recorded

BatchCallback = Callable[[int, int], None]

_RECORDED_SUFFIXES = (".npz", ".safetensors")


class Suspect(Protocol):
    """A model we can only ask: texts in, vectors out."""

    @property
    def name(self) -> str:
        """How reports call it."""
        ...

    def outputs(
        self, texts: Sequence[str], on_batch: BatchCallback | None = None
    ) -> NDArray[np.float32]:
        """Return one row per text, in their order, shape (num_texts, output_dim)."""
        ...


def open_suspect(
    address: str | Path,
    *,
    pooling: str | None = None,
    normalise: bool | None = None,
    max_length: int = 128,
    device: str = "auto",
) -> Suspect | RecordedOutputs:
    """Open a suspect by its address.

    Args:
        address: ``hf:DIR`` (transformers), ``st:DIR`` (sentence-transformers, its own pooling
            and normalisation), ``recorded:FILE`` (outputs saved earlier), or a bare folder or
            file, which is looked at and opened as what it is.
        pooling: How to read an ``hf:`` model.
        normalise: Whether to scale the outputs of an ``hf:`` model to unit length.
        max_length: Tokens of a text.
        device: Where a local model runs.

    Raises:
        UsageError: The address has an unknown scheme.
        ModelError: No model there.
    """
    text = str(address)
    scheme, found, rest = text.partition(":")
    if not found or scheme not in ("hf", "st", "recorded"):
        path = Path(text)
        if path.is_file() or (not path.exists() and path.suffix in _RECORDED_SUFFIXES):
            scheme, rest = "recorded", text
        elif found and not path.exists():
            raise UsageError(
                f"suspect {text[:80]!r} has an unknown scheme",
                "known: hf:DIR, st:DIR, recorded:FILE, or a bare folder",
            )
        else:
            scheme, rest = "", text
    if scheme == "recorded":
        return load_recorded(Path(rest))
    from nsmark.suspects.local import LocalModel

    return LocalModel(
        rest,
        kind=scheme or None,
        pooling=pooling,
        normalise=normalise,
        max_length=max_length,
        device=device,
    )
