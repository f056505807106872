"""Parts of the benchmark in pieces: each is kept as soon as it is measured.

A run that was cut off goes on with what is missing, and several processes may make different
pieces of one part at a time.
"""

from __future__ import annotations

import json
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


def measure_pieces(
    run: Run, part: str, pieces: Sequence[Piece], only: str | None = None
) -> dict[str, Any]:
    """Return the results of pieces by name, those that are kept as they are.

    Args:
        run: What all parts share.
        part: Name of the part.
        pieces: What it consists of.
        only: A regular expression: pieces whose names it is not found in are left out.
    """
    chosen = [piece for piece in pieces if only is None or re.search(only, piece.name)]
    waiting: deque[tuple[Piece, Finish]] = deque()
    results: dict[str, Any] = {}

    def take() -> None:
        piece, finish = waiting.popleft()
        results[piece.name] = _kept(run, part, piece, finish)

    for piece in chosen:
        is_there = run.kept_file(part, piece.name, of_mark=piece.of_mark).exists()
        waiting.append((piece, dict if is_there else piece.start()))
        if len(waiting) > AHEAD:
            take()
    while waiting:
        take()
    return results


def _kept(run: Run, part: str, piece: Piece, finish: Finish) -> Any:
    """Return what was kept under the piece's name, or make and keep it."""
    path = run.kept_file(part, piece.name, of_mark=piece.of_mark)
    if path.exists():
        return json.loads(path.read_text(encoding="utf-8"))
    started = time.perf_counter()
    result = finish()
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(result), encoding="utf-8")
    partial.replace(path)
    run.say(f"{part}: {piece.name}, {time.perf_counter() - started:.1f} s")
    return result
