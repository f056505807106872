"""One row: ``nsmark verify`` as a user runs it, and what it printed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nsmark.suspects.recorded import load_recorded

Row = dict[str, Any]

STATISTICS = (
    "extraction_rate",
    "derived_extraction_rate",
    "invariant_matching_degree",
    "subspace_overlap",
    "predictability",
    "aligned_subspace_overlap",
    "aligned_predictability",
)
# The program says on standard error what it is going to ask, before the first request.
_PLAN = re.compile(r"^asking (\d+) texts in (\d+) requests(?:, (\d+) of them decoys)?", re.M)


def verify(
    key: Path, address: str, *options: str, record: Path | None = None, timeout: float = 3000
) -> Row:
    """Run the command line in a process of its own and return what it said.

    Args:
        key: The key file.
        address: The suspect.
        options: Further options of the command.
        record: Where the answers are kept.
        timeout: Seconds after which the process is ended.
    """
    words = ["verify", str(key), address, *options, "--device", "cpu", "--json"]
    if record is not None:
        record.unlink(missing_ok=True)
        words += ["--record", str(record)]
    # A key for some service, or a proxy, of whoever runs this has no part in it.
    environment = {k: v for k, v in os.environ.items() if k != "OPENAI_API_KEY"}
    environment |= {"HF_HUB_OFFLINE": "1", "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    started = time.perf_counter()
    done = subprocess.run(  # noqa: S603 - the program itself
        [sys.executable, "-m", "nsmark", *words],
        capture_output=True,
        text=True,
        env=environment,
        timeout=timeout,
        check=False,
    )
    seconds = time.perf_counter() - started
    return read_row(done.returncode, done.stdout, done.stderr) | {
        "seconds": round(seconds, 2),
        "options": list(options),
    }


def read_row(exit_code: int, output: str, messages: str) -> Row:
    """Return the row that one run of the program makes, also where it could not measure."""
    try:
        document = json.loads(output)
    except ValueError:
        document = {"error": messages.strip()[-600:] or "it printed nothing"}
    # The texts are asked at once; without an endpoint nothing is sent, and no plan told.
    plans = [[int(number or 0) for number in plan] for plan in _PLAN.findall(messages)]
    asked = {
        name: sum(plan[place] for plan in plans) if plans else None
        for place, name in enumerate(("queries", "requests", "decoys"))
    }
    wanted = ("num_texts", "output_dim", "reasons", "passed", "error")
    return {
        "status": "measured" if document.get("predictability") is not None else "not measured",
        "verdict": document.get("verdict"),
        "exit_code": exit_code,
        **{name: document.get(name) for name in (*STATISTICS, *wanted)},
        **asked,
        "seconds_measuring": document.get("seconds"),
    }


def largest_difference(first: Path, second: Path) -> float | None:
    """Return how far two recordings of the same questions lie apart; None if one is missing."""
    if not (first.exists() and second.exists()):
        return None
    one, other = load_recorded(first), load_recorded(second)
    pairs = ((one.triggered, other.triggered), (one.untriggered, other.untriggered))
    return max(float(np.abs(a - b).max()) for a, b in pairs)


def without_paths(value: Any, places: Sequence[tuple[Path, str]]) -> Any:
    """Return a row with names for the folders of this machine."""
    if isinstance(value, str):
        for path, name in places:
            value = value.replace(str(path.resolve()), name).replace(str(path), name)
        return value
    if isinstance(value, dict):
        return {key: without_paths(each, places) for key, each in value.items()}
    if isinstance(value, list):
        return [without_paths(each, places) for each in value]
    return value
