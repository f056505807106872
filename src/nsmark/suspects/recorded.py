"""Outputs saved earlier: replay and audit, without torch."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load as load_safetensors
from safetensors.numpy import save as save_safetensors

from nsmark.errors import EvidenceError
from nsmark.files import read_bounded, write_atomic

MAX_RECORDED_BYTES = 4 << 30
_NAMES = ("triggered", "untriggered", "pair_texts")


@dataclass(frozen=True, slots=True)
class RecordedOutputs:
    """Answers to a key's queries, one row per text."""

    name: str
    triggered: NDArray[np.float64]
    untriggered: NDArray[np.float64]
    pair_texts: NDArray[np.float64] | None = None
    """To the texts of the pair code, where they were asked."""

    def changed(
        self, name: str, change: Callable[[NDArray[np.float64]], NDArray[np.float64]]
    ) -> RecordedOutputs:
        """Return what a model would have answered that changes its outputs."""
        return RecordedOutputs(
            name,
            change(self.triggered),
            change(self.untriggered),
            None if self.pair_texts is None else change(self.pair_texts),
        )


def load_recorded(path: Path) -> RecordedOutputs:
    """Read ``triggered``, ``untriggered`` and, if there, ``pair_texts`` from npz or safetensors.

    Raises:
        EvidenceError: Another format, arrays missing, or not tables of numbers.
    """
    content = read_bounded(path, MAX_RECORDED_BYTES, "recorded outputs")
    try:
        arrays = _load_npz(content) if content[:2] == b"PK" else load_safetensors(content)
    except Exception as error:  # numpy, zipfile and zlib raise a dozen kinds for a damaged file
        raise EvidenceError(
            f"{path} cannot be read as recorded outputs",
            "expected npz or safetensors with arrays 'triggered' and 'untriggered'",
        ) from error
    missing = {"triggered", "untriggered"} - set(arrays)
    if missing:
        raise EvidenceError(
            f"{path} holds no array {' or '.join(sorted(missing))}",
            "record both: see `nsmark inspect KEY --queries FILE`",
        )
    for name in arrays:
        if name not in _NAMES:
            raise EvidenceError(
                f"{path} holds an unknown array {name[:40]!r}", f"known: {', '.join(_NAMES)}"
            )
    return RecordedOutputs(
        f"recorded:{path}",
        _as_table(arrays["triggered"], "triggered"),
        _as_table(arrays["untriggered"], "untriggered"),
        _as_table(arrays["pair_texts"], "pair_texts") if "pair_texts" in arrays else None,
    )


def save_recorded(
    path: Path,
    triggered: NDArray[np.floating],
    untriggered: NDArray[np.floating],
    pair_texts: NDArray[np.floating] | None = None,
) -> None:
    """Write outputs so that :func:`load_recorded` reads them: npz if the name says so."""
    arrays = {
        "triggered": np.ascontiguousarray(triggered),
        "untriggered": np.ascontiguousarray(untriggered),
    }
    if pair_texts is not None:
        arrays["pair_texts"] = np.ascontiguousarray(pair_texts)
    if path.suffix == ".npz":
        stream = io.BytesIO()
        np.savez(stream, **arrays)  # type: ignore[arg-type]  # names, not options
        write_atomic(path, stream.getvalue())
    else:
        write_atomic(path, save_safetensors(arrays))


def _load_npz(content: bytes) -> dict[str, NDArray[np.generic]]:
    """Read an npz archive; its members' sizes are checked first, and pickled objects refused."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        total = sum(member.file_size for member in archive.infolist())
    if total > MAX_RECORDED_BYTES:
        raise ValueError("archive unpacks to too much")
    with np.load(io.BytesIO(content), allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    if not all(isinstance(array, np.ndarray) for array in arrays.values()):
        raise ValueError("a member is no array")
    return arrays


def _as_table(array: NDArray[np.generic], name: str) -> NDArray[np.float64]:
    if array.ndim != 2 or array.dtype.kind not in "fiu":
        raise EvidenceError(
            f"array {name!r} has shape {array.shape} and type {array.dtype}",
            "expected one row of numbers per text",
        )
    return array.astype(np.float64)
