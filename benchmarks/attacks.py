"""What attacks cost a thief and what evidence they leave: every recipe, on a real model.

    python benchmarks/attacks.py --key KEY --marked DIR --reference DIR --data DIR --json OUT

KEY and the marked folder are those of ``nsmark embed`` and ``nsmark calibrate`` (or what
``benchmarks/evidence.py --work`` leaves: ``calibrated.nsmark`` and ``owner/model``). DIR after
``--data`` holds the tasks ``sst2``, ``sst5``, ``offenseval``, ``agnews``, ``lingspam`` with
``train.jsonl.gz``, and ``wikitext-2`` for the thief's texts. ``--work`` keeps the rows: an
interrupted run goes on. ``--markdown`` writes the page, too (from a JSON file that is there:
``python benchmarks/attacks_table/page.py JSON > PAGE``).
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))  # benchmarks are scripts, not a package

from attacks_table.page import markdown
from nsmark.alterations.changes import Linear
from nsmark.api.opening import Opening
from nsmark.attacks.labelled import read_labelled
from nsmark.attacks.material import Material, divided, gather_material
from nsmark.attacks.plan import UNTOUCHED, suite_plan
from nsmark.attacks.recovery import recover
from nsmark.attacks.suite import run_suite
from nsmark.attacks.wrong_keys import with_wrong_parts
from nsmark.keyfile import WatermarkKey, read_key
from nsmark.report import library_versions
from nsmark.suspects.recorded import RecordedOutputs
from nsmark.verification.measure import ask
from nsmark.verification.questions import key_questions

TASKS = ("sst2", "sst5", "offenseval", "agnews", "lingspam")
ON_EVERY_TASK = (
    "fine-tuning",
    "lora-fine-tuning",
    "fine-pruning",
    "overwriting + fine-tuning",
    "fine-tuning + ll-lfea",
    "ll-lfea + fine-tuning",
)
_MAX_TASK_TEXTS = 8000


def tasks_in(data: Path | None) -> dict[str, Path]:
    """Return the files of the tasks that are there."""
    found = {}
    for name in TASKS if data is not None else ():
        for file in ("train.jsonl.gz", "train_sentences.jsonl.gz"):
            path = Path(data or "") / name / file
            if path.exists():
                found.setdefault(name, path)
    return found


def materials(arguments: argparse.Namespace) -> dict[str, Material]:
    """Return what the thief has, once for every task."""
    corpus = None if arguments.data is None else arguments.data / "wikitext-2" / "train.txt.gz"
    base = gather_material(corpus, device=arguments.device, max_task_texts=arguments.task_texts)
    base = replace(base, texts=base.texts[: arguments.texts])
    found = {
        name: replace(base, task=divided(name, *read_labelled(path), limit=arguments.task_texts))
        for name, path in tasks_in(arguments.data).items()
    }
    return found or {"topics": base}


def recovered(key: WatermarkKey, folders: dict[str, Path], device: str) -> list[dict[str, Any]]:
    """Return the extraction rate before and after recovery, for thieves and innocents."""
    rows = []
    asked = key_questions(key, 0)
    for name, folder in folders.items():
        answers = ask(asked, Opening(key, device).open(str(folder))).triggered
        dim = answers.shape[1]
        change = Linear(np.random.default_rng(0).uniform(0.0, 1.0, (dim, dim)))
        for how, outputs in (("as it is", answers), ("after ll-lfea", change(answers))):
            rows.append({"model": name, "how": how, **recover(key, outputs).to_mapping()})
    return rows


def forged(key: WatermarkKey, folders: dict[str, Path], device: str) -> list[dict[str, Any]]:
    """Return what wrong parts of the key measure."""
    rows = []
    for name, folder in folders.items():
        suspect = Opening(key, device).open(str(folder))
        assert not isinstance(suspect, RecordedOutputs)
        rows += [
            {"model": name, **row.to_mapping()} for row in with_wrong_parts(key, suspect, seed=0)
        ]
    return rows


def main(words: Sequence[str] | None = None) -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--key", type=Path, required=True)
    parser.add_argument("--marked", type=Path, required=True, help="folder of the marked model")
    parser.add_argument("--reference", type=Path, required=True, help="folder of the unmarked one")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--texts", type=int, default=20000, help="texts that the thief has")
    parser.add_argument("--task-texts", type=int, default=_MAX_TASK_TEXTS)
    parser.add_argument("--only", action="append", default=[], help="trials with this attack")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--work", type=Path, help="keep rows here, and go on from there")
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--markdown", type=Path)
    arguments = parser.parse_args(words)
    started = time.perf_counter()
    key = read_key(arguments.key)
    known = materials(arguments)
    first = next(iter(known))

    def told(done: int, total: int, name: str) -> None:
        seconds = time.perf_counter() - started
        print(f"{seconds:.0f} s: {done} of {total}: {name}", file=sys.stderr)

    with tempfile.TemporaryDirectory(prefix="attacks-") as temporary:
        work = arguments.work or Path(temporary)
        suites = {}
        for name, material in known.items():
            plan = suite_plan(arguments.only) if name == first else [UNTOUCHED, *ON_EVERY_TASK]
            if name != first and arguments.only:
                plan = [each for each in plan if each == UNTOUCHED or _names(each, arguments.only)]
            suites[name] = run_suite(
                key, arguments.marked, work, material, plan, jobs=arguments.jobs, on_trial=told
            )
        folders = {"marked": arguments.marked, "unmarked": arguments.reference}
        document = {
            "command": "python benchmarks/attacks.py --key KEY --marked DIR --reference DIR "
            "--data DIR --json OUT",
            "environment": {"python": platform.python_version(), **library_versions()},
            "main_task": first,
            "suites": suites,
            "recovery": recovered(key, folders, arguments.device),
            "wrong_keys": forged(key, folders, arguments.device),
            "seconds": round(time.perf_counter() - started, 1),
        }
    arguments.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    if arguments.markdown is not None:
        arguments.markdown.write_text(markdown(document), encoding="utf-8")


def _names(expression: str, only: Sequence[str]) -> bool:
    return any(name in expression for name in only)


if __name__ == "__main__":
    main()
