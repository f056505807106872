"""Sequences of arrays and of texts that lie in a file, not in memory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

_Scalar = TypeVar("_Scalar", bound=np.generic)


class MappedArrays(Sequence[NDArray[_Scalar]]):
    """Arrays of different lengths, end to end in an unnamed temporary file, mapped into memory.

    Written once, in order; only offsets are held in memory.
    """

    def __init__(self, arrays: Iterable[NDArray[_Scalar]], dtype: type[_Scalar]) -> None:
        lengths = [0]
        # Unnamed: it goes with the mapping, also if the process is killed.
        with tempfile.TemporaryFile(prefix="nsmark-") as file:
            for array in arrays:
                file.write(np.ascontiguousarray(array, dtype=dtype).tobytes())
                lengths.append(len(array))
            file.flush()
            self._ends = np.cumsum(lengths)
            size = int(self._ends[-1])
            # An empty file cannot be mapped.
            self._values: NDArray[_Scalar] = (
                np.memmap(file, dtype=dtype, mode="r", shape=(size,))
                if size
                else np.empty(0, dtype=dtype)
            )

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Entries of each array."""
        return np.diff(self._ends)

    def __len__(self) -> int:
        return len(self._ends) - 1

    @overload
    def __getitem__(self, index: int) -> NDArray[_Scalar]: ...
    @overload
    def __getitem__(self, index: slice) -> list[NDArray[_Scalar]]: ...

    def __getitem__(self, index: int | slice) -> Any:
        """Return an array, or several."""
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        place = range(len(self))[index]
        return np.asarray(self._values[self._ends[place] : self._ends[place + 1]])

    def __copy__(self) -> MappedArrays[_Scalar]:
        return self  # never changed once written

    def __deepcopy__(self, memo: Any) -> MappedArrays[_Scalar]:
        return self


class MappedTexts(Sequence[str]):
    """Texts that lie in a file: a corpus may be larger than memory."""

    def __init__(self, texts: Iterable[str]) -> None:
        octets = (np.frombuffer(text.encode("utf-8"), dtype=np.uint8) for text in texts)
        self._arrays = MappedArrays(octets, np.uint8)

    def __len__(self) -> int:
        return len(self._arrays)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...

    def __getitem__(self, index: int | slice) -> Any:
        """Return a text, or several."""
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        return self._arrays[index].tobytes().decode("utf-8")
