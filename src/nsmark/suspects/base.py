"""The Suspect protocol, and opening one from its address."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from nsmark.errors import UsageError
from nsmark.suspects.recorded import RecordedOutputs, load_recorded

if TYPE_CHECKING:
    from nsmark.suspects.options import QueryOptions

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
    queries: QueryOptions | None = None,
) -> Suspect | RecordedOutputs:
    """Open a suspect by its address.

    Args:
        address: ``hf:DIR`` (transformers), ``st:DIR`` (sentence-transformers, its own pooling
            and normalisation), ``onnx:FILE`` (run by onnxruntime; ``onnx:FILE#DIR`` where the
            tokenizer is elsewhere), ``recorded:FILE`` (outputs saved earlier),
            ``openai:URL#model`` (an embeddings endpoint), ``completions:URL#model`` (one that
            returns log-probabilities), or a bare folder or file, which is looked at and opened
            as what it is.
        pooling: How to read an ``hf:`` or ``onnx:`` model.
        normalise: Whether to scale the outputs of an ``hf:`` or ``onnx:`` model to unit length.
        max_length: Tokens of a text.
        device: Where a local model runs.
        queries: How an endpoint is asked; nothing is sent before its outputs are asked for.

    Raises:
        UsageError: The address has an unknown scheme, or is no URL with a model.
        ModelError: No model there.
    """
    text = str(address)
    scheme, found, rest = text.partition(":")
    if not found or scheme not in ("hf", "st", "onnx", "recorded", "openai", "completions"):
        path = Path(text)
        if path.suffix == ".onnx" and path.is_file():
            scheme, rest = "onnx", text
        elif path.is_file() or (not path.exists() and path.suffix in _RECORDED_SUFFIXES):
            scheme, rest = "recorded", text
        elif found and not path.exists():
            raise UsageError(
                f"suspect {text[:80]!r} has an unknown scheme",
                "known: hf:DIR, st:DIR, onnx:FILE, recorded:FILE, openai:URL#model, "
                "completions:URL#model, or a bare folder",
            )
        else:
            scheme, rest = "", text
    if scheme == "recorded":
        return load_recorded(Path(rest))
    if scheme == "onnx":
        from nsmark.suspects.onnx import OnnxModel

        return OnnxModel(
            rest, pooling=pooling, normalise=normalise, max_length=max_length, device=device
        )
    if scheme == "openai":
        from nsmark.suspects.openai_embeddings import EmbeddingsEndpoint

        return EmbeddingsEndpoint(rest, queries)
    if scheme == "completions":
        from nsmark.suspects.completions import CompletionsEndpoint

        return CompletionsEndpoint(rest, queries)
    from nsmark.suspects.local import LocalModel

    return LocalModel(
        rest,
        kind=scheme or None,
        pooling=pooling,
        normalise=normalise,
        max_length=max_length,
        device=device,
    )
