"""One answer of an endpoint, and the checks every list of answers goes through."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nsmark.errors import SuspectError


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """A vector, whose entries may have names."""

    values: NDArray[np.float64]
    names: tuple[str, ...] | None = None
    """What each entry stands for, where answers to different texts need not have the same."""


def malformed(url: str, found: str) -> SuspectError:
    """Return the error for an answer that is not what the interface promises."""
    return SuspectError(
        f"{url} answered with {found}", "check the URL and that it serves this kind of model"
    )


def ordered_entries(document: Any, field: str, count: int, url: str) -> list[dict[str, Any]]:
    """Return the entries of an answer in the order of the texts, by their ``index``.

    Raises:
        SuspectError: Not one entry for each text.
    """
    entries = document.get(field) if isinstance(document, dict) else None
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise malformed(url, f"no list {field!r}")
    if len(entries) != count:
        raise malformed(url, f"{len(entries)} entries for {count} texts")
    if not any("index" in entry for entry in entries):
        return entries  # some servers leave it out, and then answer in order
    by_index = {entry.get("index"): entry for entry in entries if type(entry.get("index")) is int}
    if sorted(by_index) != list(range(count)):
        raise malformed(url, f"numbers ('index') that are not 0 to {count - 1}, each once")
    return [by_index[number] for number in range(count)]


def number_list(values: Sequence[Any], url: str) -> NDArray[np.float64]:
    """Turn a JSON list into a vector; strings, booleans, null and NaN are refused."""
    if not all(type(value) in (int, float) for value in values):
        raise malformed(url, "a vector that holds other things than numbers")
    try:
        array = np.array(values, dtype=np.float64)
    except OverflowError as error:
        raise malformed(url, "a number too large for any vector") from error
    return finite(array, url)


def finite(array: NDArray[np.float64], url: str) -> NDArray[np.float64]:
    """Return a vector whose entries are all finite, and which has some."""
    if not array.size:
        raise malformed(url, "an empty vector")
    if not np.isfinite(array).all():
        raise malformed(url, "a vector with NaN or infinity in it")
    return array
