"""Parts of the benchmark in pieces: each is kept as soon as it is measured.

A run that was cut off goes on with what is missing, and several processes may make different
pieces of one part at a time.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pair_table.run import Run

AHEAD = 2  # pieces that are begun while others are read

Finish = Callable[[], Any]


@dataclass(frozen=True)
class Piece:
    """Something to measure by itself."""

    name: str
    start: Callable[[], Finish]
    """Begins; what it returns waits for the result."""
    of_mark: bool = True
    """Whether the result is about the marked model, and void where that was marked anew."""

    @classmethod
    def plain(cls, name: str, make: Finish, *, of_mark: bool = True) -> Piece:
        """Return a piece that waits for nothing."""
        return cls(name, lambda: make, of_mark)


@dataclass(frozen=True)
class Kept:
    """What pieces gave, by name, and what they were made with."""

    results: dict[str, Any]
    environments: list[dict[str, Any]]
    """The machines, each once."""


def measure_pieces(
    run: Run,
    part: str,
    pieces: Sequence[Piece],
    only: str | None = None,
    *,
    again: bool = False,
) -> Kept:
    """Measure pieces; those that are kept stay as they are.

    Args:
        run: What all parts share.
        part: Name of the part.
        pieces: What it consists of.
        only: A regular expression: pieces whose names it is not found in are left out.
        again: Measure them anew.
    """
    chosen = [piece for piece in pieces if only is None or re.search(only, piece.name)]
    waiting: deque[tuple[Piece, Finish]] = deque()
    found: dict[str, Any] = {}

    def take() -> None:
        piece, finish = waiting.popleft()
        found[piece.name] = _kept(run, part, piece, finish)

    for piece in chosen:
        path = run.kept_file(part, piece.name, of_mark=piece.of_mark)
        if again:
            path.unlink(missing_ok=True)
        if path.exists():
            found[piece.name] = json.loads(path.read_text(encoding="utf-8"))
            continue
        waiting.append((piece, piece.start()))
        if len(waiting) > AHEAD:
            take()
    while waiting:
        take()
    environments: list[dict[str, Any]] = []
    for each in found.values():
        if each["environment"] not in environments:
            environments.append(each["environment"])
    # As they were planned, whichever was there before.
    results = {piece.name: found[piece.name]["result"] for piece in chosen}
    return Kept(results, environments)


def _kept(run: Run, part: str, piece: Piece, finish: Finish) -> Any:
    """Make and keep what a piece gives."""
    path = run.kept_file(part, piece.name, of_mark=piece.of_mark)
    started = time.perf_counter()
    made = {"result": finish(), "environment": run.environment}
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}.partial")
    partial.write_text(json.dumps(made), encoding="utf-8")
    partial.replace(path)
    run.say(f"{part}: {piece.name}, {time.perf_counter() - started:.1f} s")
    return made
