"""Goldens on disk, and what differs from them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

DATA = Path(__file__).parent / "data"

# What two libraries of linear algebra give for the same numbers, both right: rounding, and of
# rounding the square roots that matching degrees add up. P-values are counts: nothing but rounding.
_RELATIVE = 1e-9
_ABSOLUTE = {"p_value": 0.0, "degree": 1e-4}
_USUAL_ABSOLUTE = 1e-9
_NUMBER = re.compile(r"[-−]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")


def load(name: str) -> Any:
    return json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))


def save(name: str, value: Any) -> None:
    """Write a golden: a line for each short part, so that changes can be read."""
    (DATA / f"{name}.json").write_text(_dumped(plain(value), "") + "\n", encoding="utf-8")


def plain(value: Any) -> Any:
    """The value as a file would give it back, with as many digits as are compared."""
    text = json.dumps(value, default=str)
    return json.loads(text, parse_float=lambda number: float(f"{float(number):.11g}"))


def _dumped(value: Any, indent: str) -> str:
    line = json.dumps(value, ensure_ascii=False)
    if len(line) + len(indent) <= 300 or not isinstance(value, dict | list) or not value:
        return line
    deeper = indent + " "
    if isinstance(value, list):
        parts = [_dumped(each, deeper) for each in value]
    else:
        parts = [f"{json.dumps(k)}: {_dumped(v, deeper)}" for k, v in value.items()]
    brackets = "[]" if isinstance(value, list) else "{}"
    return f"{brackets[0]}\n{deeper}" + f",\n{deeper}".join(parts) + f"\n{indent}{brackets[1]}"


def differences(
    golden: Any, found: Any, *, relative: float = _RELATIVE, may_grow: bool = False, path: str = ""
) -> Iterator[str]:
    """Yield a line for every value that is not as it was.

    Args:
        golden: What it was.
        found: What it is.
        relative: How far numbers may be apart, in parts of them.
        may_grow: Whether there may be new names; old ones are missed in any case.
        path: Where both stand.
    """
    more = {"relative": relative, "may_grow": may_grow}
    if isinstance(golden, dict) and isinstance(found, dict):
        for name in golden:
            if name not in found:
                yield f"{path}/{name}: is gone"
            else:
                yield from differences(golden[name], found[name], path=f"{path}/{name}", **more)
        if not may_grow:
            yield from (f"{path}/{name}: is new" for name in found if name not in golden)
    elif isinstance(golden, list) and isinstance(found, list):
        if len(golden) != len(found):
            yield f"{path}: {len(found)} entries, were {len(golden)}"
        for number, (old, new) in enumerate(zip(golden, found, strict=False)):
            yield from differences(old, new, path=f"{path}/{number}", **more)
    elif type(golden) is float and type(found) in (int, float):
        places = [size for name, size in _ABSOLUTE.items() if name in path.rpartition("/")[2]]
        apart = max(relative * abs(golden), *places or [max(_USUAL_ABSOLUTE, relative / 1e3)])
        if not abs(golden - found) <= apart:
            yield f"{path}: {found!r}, was {golden!r}"
    elif isinstance(golden, str) and isinstance(found, str) and relative > _RELATIVE:
        old, new = (_NUMBER.sub("#", text) for text in (golden, found))
        if old != new:
            yield f"{path}: {found!r}, was {golden!r}"
    elif golden != found or type(golden) is not type(found):
        yield f"{path}: {found!r}, was {golden!r}"


def digest(value: Any) -> str:
    """A short name for numbers, texts or bytes that are too long to keep."""
    if isinstance(value, list | tuple) and value and isinstance(value[0], np.ndarray):
        value = b"".join(digest(each).encode() for each in value)
    elif isinstance(value, np.ndarray):
        kind = value.dtype.newbyteorder("<")
        value = f"{kind.str} {value.shape} ".encode() + value.astype(kind).tobytes()
    elif not isinstance(value, bytes):
        value = json.dumps(value, sort_keys=True).encode()
    return hashlib.sha256(value).hexdigest()[:24]


def outline(value: Any) -> Any:
    """Names and kinds alone; a list by what its first entry is."""
    if isinstance(value, dict):
        return {name: outline(each) for name, each in value.items()}
    if isinstance(value, list):
        return [outline(value[0])] if value else []
    return "number" if type(value) in (int, float) else type(value).__name__
