"""A stolen model: its weights, and how the thief serves it (torch)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save as save_safetensors

from nsmark.files import write_atomic
from nsmark.models.encoder import Encoder
from nsmark.models.folder import DenseLayer
from nsmark.models.loading import open_encoder
from nsmark.models.saving import write_sentence_transformer_files
from nsmark.transforms.changes import Linear, OutputChange, UnitLength
from nsmark.transforms.outputs import DrawRecord
from nsmark.transforms.serving import Serving, read_serving


class Stolen:
    """What attacks work on, one after the other."""

    def __init__(self, encoder: Encoder, serving: Serving | None = None) -> None:
        self.encoder = encoder
        self.serving = serving or Serving()
        self.extras: dict[str, bytes] = {}
        """Further files to save beside the model, such as a compensated head."""
        self.says_pooling = False
        """Whether the saved folder must say how it is read, even if the stolen one did not: a
        verifier reads a bare transformer as his key does."""

    @classmethod
    def open(
        cls,
        folder: Path,
        *,
        pooling: str | None = None,
        normalise: bool | None = None,
        max_length: int = 128,
        device: str = "auto",
    ) -> Stolen:
        """Open a model folder; one that was attacked before goes on as it is served."""
        encoder = open_encoder(
            folder, pooling=pooling, normalise=normalise, max_length=max_length, device=device
        )
        return cls(encoder, read_serving(folder, encoder.output_dim))

    @property
    def output_dim(self) -> int:
        """Entries of an answer."""
        maps = [change for change in self.serving.changes if isinstance(change, Linear)]
        return len(maps[-1].matrix) if maps else self.encoder.output_dim

    def outputs(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Return what the thief's API answers, one row per text."""
        return self.serving.outputs(self.encoder.eval().encode(self.serving.texts(texts)))

    def add_change(self, change: OutputChange) -> None:
        """Change answers once more before they are sent."""
        self.serving.changes.append(change)

    def maps_in_front(self) -> list[Linear | UnitLength]:
        """Return the maps and unit length that directly follow the model."""
        found: list[Linear | UnitLength] = []
        for change in self.serving.changes:
            if not isinstance(change, Linear | UnitLength):
                break
            found.append(change)
        return found

    def draw_change(self, draw: DrawRecord, texts: Sequence[str], seed: int) -> OutputChange:
        """Draw a change for answers like those to some texts, and add it."""
        change = draw(self.outputs(texts), np.random.default_rng(seed))
        self.add_change(change)
        return change

    def save(self, folder: Path) -> None:
        """Write a model folder that opens as the suspect its users see.

        Maps and unit length directly after the model are written as modules of a
        sentence-transformers folder, which other programs open, too; what follows is written in
        the serving files, which only nsmark knows.
        """
        # All or nothing: nobody else would filter.
        known = [] if self.serving.filters else self.maps_in_front()
        encoder = self.encoder
        encoder.save(folder)
        if known or (self.says_pooling and encoder.folder.kind == "hf"):
            self._write_modules(folder, known)
        rest = Serving(self.serving.filters, self.serving.changes[len(known) :])
        rest.write(folder)
        for name, content in self.extras.items():
            write_atomic(folder / name, content)

    def _write_modules(self, folder: Path, changes: Sequence[Linear | UnitLength]) -> None:
        encoder = self.encoder
        for path in (folder / "modules.json", *folder.glob("[0-9]*_*")):
            _remove(path)
        steps = list(encoder.folder.steps)
        weights = encoder.dense_weights()
        if encoder.normalise and not encoder.folder.normalises:
            steps.append("normalise")
        for change in changes:
            if isinstance(change, Linear):
                arrays = {"linear.weight": change.matrix.astype(np.float32)}
                if change.offset is not None:
                    arrays["linear.bias"] = change.offset.astype(np.float32)
                rows, columns = change.matrix.shape
                steps.append(DenseLayer("", columns, rows, change.offset is not None))
                weights.append(
                    save_safetensors({k: np.ascontiguousarray(v) for k, v in arrays.items()})
                )
            else:
                steps.append("normalise")
        write_sentence_transformer_files(
            folder,
            replace(encoder.folder, steps=tuple(steps)),
            encoder.pooling,
            encoder.network.config.hidden_size,
            weights,
        )


def _remove(path: Path) -> None:
    """Remove a file, or a folder of files."""
    if path.is_dir():
        for inner in path.iterdir():
            inner.unlink()
        path.rmdir()
    else:
        path.unlink(missing_ok=True)
