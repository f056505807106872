"""Reading pair codes in several processes: the statistics are the CPU's work; no torch here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from nsmark.core.pair_code import read_pair_code
from nsmark.errors import EvidenceError
from nsmark.verification.questions import PairQuestions
from pair_table.changes import PLAIN, changed

Row = dict[str, Any]


@dataclass(frozen=True)
class Table:
    """What a reader must know of a key: pairs of the texts, and the table's signs."""

    numbers: np.ndarray
    signs: np.ndarray
    seed: int = 0

    @classmethod
    def of(cls, questions: PairQuestions) -> Table:
        """Return it without the texts, which no reader needs."""
        return cls(questions.numbers, questions.signs, questions.seed)


def read(outputs: np.ndarray, table: Table, change: str = PLAIN, seed: int = 0) -> Row:
    """Read a table from outputs behind a change."""
    try:
        found = read_pair_code(
            changed(outputs, change, seed), table.numbers, table.signs, table.seed
        )
    except (EvidenceError, np.linalg.LinAlgError) as error:  # such as constant outputs
        return {"change": change, "rate": None, "p": None, "error": str(error)}
    return {
        "change": change,
        "rate": found.rate,
        "p": found.p_value,
        "right": list(found.right),
        "halves": list(found.halves),
    }


def read_changes(outputs: np.ndarray, table: Table, changes: Sequence[str], seed: int) -> list[Row]:
    """Read a table behind several changes, one after the other."""
    return [read(outputs, table, change, seed + place) for place, change in enumerate(changes)]


def _one_thread() -> None:
    """Prepare a process, which has one core."""
    threadpool_limits(1)


class Readers:
    """Processes that read; with one process, this one does it itself."""

    def __init__(self, processes: int) -> None:
        self.pool = None
        if processes > 1:
            self.pool = ProcessPoolExecutor(processes, get_context("spawn"), _one_thread)

    def submit(self, task: Callable[..., Any], *words: Any) -> Future[Any]:
        """Start a task; its result can be waited for."""
        if self.pool is not None:
            return self.pool.submit(task, *words)
        done: Future[Any] = Future()
        done.set_result(task(*words))
        return done

    def close(self) -> None:
        """End the processes."""
        if self.pool is not None:
            self.pool.shutdown()
