"""How a model folder is served: filters before the model, changes after it.

An attack that changes no weights is kept beside the weights, in two files of the model folder:
``serving.json`` (format ``nsmark/serving/1``) with the filters and the list of changes, and
``serving.safetensors`` with the arrays that the changes name. Whoever opens the folder as a
suspect sees what an API would send that serves it so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as load_safetensors
from safetensors.numpy import save as save_safetensors

from nsmark.files import read_bounded, write_atomic, write_json
from nsmark.models.folder import read_json_object
from nsmark.transforms.changes import (
    OutputChange,
    apply_changes,
    malformed,
    read_changes,
    write_changes,
)
from nsmark.transforms.filters import TextFilter, apply_filters, read_filters, write_filters

SERVING_FILE = "serving.json"
_ARRAYS_FILE = "serving.safetensors"
_FORMAT = "nsmark/serving/1"
_MAX_ARRAY_BYTES = 1 << 30


@dataclass(frozen=True)
class Serving:
    """What happens to texts before a model sees them, and to outputs before anybody does."""

    filters: list[TextFilter] = field(default_factory=list)
    changes: list[OutputChange] = field(default_factory=list)

    def texts(self, texts: Sequence[str]) -> list[str]:
        """Return the texts as the model sees them."""
        return apply_filters(self.filters, texts)

    def outputs(self, rows: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return the outputs as they are sent."""
        return apply_changes(self.changes, np.asarray(rows, dtype=np.float64))

    def write(self, folder: Path) -> None:
        """Write it into a model folder; nothing where nothing happens."""
        if not self.filters and not self.changes:
            return
        entries, arrays = write_changes(self.changes)
        document = {
            "format": _FORMAT,
            "filters": write_filters(self.filters),
            "changes": entries,
        }
        write_json(folder / SERVING_FILE, document)
        if arrays:
            write_atomic(folder / _ARRAYS_FILE, save_safetensors(arrays))


def read_serving(folder: Path, output_dim: int) -> Serving:
    """Read how a folder is served; as it is, where it says nothing.

    Args:
        folder: A model folder.
        output_dim: Of the model's own outputs.

    Raises:
        ModelError: The files are malformed.
    """
    path = folder / SERVING_FILE
    if not path.is_file():
        return Serving()
    document = read_json_object(path)
    if document.get("format") != _FORMAT:
        raise malformed(f"its format is not {_FORMAT!r}")
    arrays: dict[str, NDArray[np.float64]] = {}
    if (folder / _ARRAYS_FILE).is_file():
        try:
            found = load_safetensors(
                read_bounded(folder / _ARRAYS_FILE, _MAX_ARRAY_BYTES, "serving file")
            )
        except (SafetensorError, KeyError) as error:  # KeyError: a type numpy does not have
            raise malformed(f"{_ARRAYS_FILE} cannot be read") from error
        arrays = {name: array.astype(np.float64) for name, array in found.items()}
    return Serving(
        read_filters(document.get("filters", [])),
        read_changes(document.get("changes", []), arrays, output_dim),
    )
