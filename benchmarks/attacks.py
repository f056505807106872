"""What attacks cost a thief and what evidence they leave: every recipe, on a real model.

    python benchmarks/attacks.py --key KEY --marked DIR --reference DIR --data DIR --json OUT

KEY and the marked folder are those of ``nsmark embed`` and ``nsmark calibrate`` (or what
``benchmarks/evidence.py --work`` leaves: ``calibrated.nsmark`` and ``owner/model``). DIR after
``--data`` holds the tasks ``sst2``, ``sst5``, ``offenseval``, ``agnews``, ``lingspam`` with
``train.jsonl.gz``, and ``wikitext-2`` for the thief's texts. ``--work`` keeps the rows: an
interrupted run goes on. ``--markdown`` writes the page, too (from a JSON file that is there:
``python benchmarks/attacks_table/page.py JSON PAGE``). ``--mend`` takes such a file and tries what
could not be run where it was made, for want of a package for example; the page says so.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import shlex
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent))  # benchmarks are scripts, not a package

from attacks_table.page import write_page
from nsmark.api.opening import Opening
from nsmark.attacks.expression import parse_attack, written
from nsmark.attacks.labelled import read_labelled
from nsmark.attacks.material import Material, divided, gather_material
from nsmark.attacks.plan import UNTOUCHED, effort, names_in, suite_plan
from nsmark.attacks.recovery import recover
from nsmark.attacks.suite import TrialCallback, run_suites
from nsmark.attacks.trial import Row
from nsmark.attacks.wrong_keys import with_wrong_parts
from nsmark.embedding.config import PRESET_VERSIONS
from nsmark.keyfile import WatermarkKey, read_key
from nsmark.models.loading import resolve_device
from nsmark.report import library_versions
from nsmark.suspects.recorded import RecordedOutputs
from nsmark.transforms.changes import Linear
from nsmark.verification.evidence import ask
from nsmark.verification.questions import key_questions
from provenance import measured

TASKS = ("sst2", "sst5", "offenseval", "agnews", "lingspam")
PRUNED = (0.5, 0.7, 0.8, 0.9, 0.95)
LONG_TUNING = "fine-tuning[epochs=3,learning_rate=5e-5]"
ON_EVERY_TASK = (
    "fine-tuning",
    LONG_TUNING,
    "lora-fine-tuning",
    "fine-pruning",
    "overwriting + fine-tuning",
    "fine-tuning + ll-lfea",
    "ll-lfea + fine-tuning",
    *(f"pruning[share={share}]" for share in PRUNED),
    *(f"pruning[share={share}] + {LONG_TUNING}" for share in PRUNED),
)
ON_THE_FIRST = (
    *(
        f"pruning[share={tenth / 10},scope={scope}]"
        for scope in ("layer", "global", "feed-forward")
        for tenth in range(1, 10)
    ),
    "pruning[share=0.95,scope=global]",
    "pruning[share=0.8] + ll-lfea",
    "pruning[share=0.9] + ll-lfea",
    "pruning[share=0.9] + whitening",
    "overwriting[preset=strong]",
)
"""Beside the suite: every kind of pruning by tenths, most of all behind maps, and another owner who
takes his time."""
_MAX_TASK_TEXTS = 8000


def tasks_in(data: Path | None) -> dict[str, Path]:
    """Return the files of the tasks that are there: whole sentences, where there are phrases too.

    A task's phrases are parts of its sentences: some of them would be learned and tested both.
    """
    found = {}
    for name in TASKS if data is not None else ():
        for file in ("train_sentences.jsonl.gz", "train.jsonl.gz"):
            path = Path(data or "") / name / file
            if path.exists():
                found.setdefault(name, path)
        if name not in found:
            print(f"task {name} is not in the data folder and is left out", file=sys.stderr)
    return found


def materials(arguments: argparse.Namespace) -> dict[str, Material]:
    """Return what the thief has, once for every task."""
    corpus = None if arguments.data is None else arguments.data / "wikitext-2" / "train.txt.gz"
    base = gather_material(
        corpus,
        device=arguments.device,
        max_task_texts=arguments.task_texts,
        reference=arguments.reference,
    )
    base = replace(base, texts=base.texts[: arguments.texts])
    found = {
        name: replace(base, task=divided(name, *read_labelled(path), limit=arguments.task_texts))
        for name, path in tasks_in(arguments.data).items()
    }
    return found or {"topics": base}


def plans(names: Sequence[str], only: Sequence[str]) -> dict[str, list[str]]:
    """Return what is tried on each task: all on the first, what depends on the task on all."""

    def chosen(extra: Sequence[str]) -> list[str]:
        written_out = [written(parse_attack(each)) for each in extra]
        return [each for each in written_out if not only or any(n in names_in(each) for n in only)]

    found = {name: [UNTOUCHED, *chosen(ON_EVERY_TASK)] for name in names}
    whole = [*suite_plan(only, with_reference=True), *chosen(ON_EVERY_TASK), *chosen(ON_THE_FIRST)]
    return found | {names[0]: list(dict.fromkeys(whole))}


def innocent_plan(only: Sequence[str]) -> list[str]:
    """Return what is done to the unmarked model, to see that nobody is accused: no training."""
    return [each for each in suite_plan(only) if effort(each) == 0]


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


def parser_of(about: str | None) -> argparse.ArgumentParser:
    """Return a parser with what every script about attacks on a marked model is told.

    Args:
        about: The script's docstring.
    """
    parser = argparse.ArgumentParser(description=(about or "").splitlines()[0])
    parser.add_argument("--key", type=Path, required=True)
    parser.add_argument("--marked", type=Path, required=True, help="folder of the marked model")
    parser.add_argument("--reference", type=Path, required=True, help="folder of the unmarked one")
    parser.add_argument(
        "--preset", nargs=1, choices=sorted(PRESET_VERSIONS), help="what marked the model"
    )
    parser.add_argument("--data", type=Path)
    parser.add_argument("--texts", type=int, default=20000, help="texts that the thief has")
    parser.add_argument("--task-texts", type=int, default=_MAX_TASK_TEXTS)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--work", type=Path, help="keep rows here, and go on from there")
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--markdown", type=Path)
    return parser


def telling() -> TrialCallback:
    """Return what says after every trial how far the suite is."""
    started = time.perf_counter()

    def told(done: int, total: int, name: str) -> None:
        seconds = time.perf_counter() - started
        print(f"{seconds:.0f} s: {done} of {total}: {name}", file=sys.stderr, flush=True)

    return told


def main(words: Sequence[str] | None = None) -> None:
    """Measure and write, after each of the parts."""
    parser = parser_of(__doc__)
    parser.add_argument("--only", action="append", default=[], help="trials with this attack")
    parser.add_argument(
        "--mend", action="store_true", help="try what the JSON file says could not be run"
    )
    arguments = parser.parse_args(words)
    key, known = read_key(arguments.key), materials(arguments)
    document: dict[str, Any]
    if arguments.mend:
        document = json.loads(arguments.json.read_text(encoding="utf-8"))
        if document["model_sha256"] != key.model_digest:
            parser.error("the JSON file is about another marked model")
        if not set(document["suites"]) <= set(known):
            parser.error("the data folder lacks tasks of the JSON file")
        with tempfile.TemporaryDirectory(prefix="attacks-") as temporary:
            mend(arguments, key, known, arguments.work or Path(temporary), document)
        return
    folders = {"marked": arguments.marked, "unmarked": arguments.reference}
    document = {
        "measured": measured(arguments.preset, rule=True, device=arguments.device),
        "command": command(arguments),
        "environment": environment(arguments),
        "main_task": next(iter(known)),
        "model_sha256": key.model_digest,
        "about": described(key),
        "suites": {},
        "innocent": [],
        "recovery": recovered(key, folders, arguments.device),
        "wrong_keys": forged(key, folders, arguments.device),
    }
    with tempfile.TemporaryDirectory(prefix="attacks-") as temporary:
        work = arguments.work or Path(temporary)
        measure(arguments, key, known, work, document)


def stored(suites: dict[str, list[Row]]) -> dict[str, list[dict[str, Any]]]:
    """Return rows as documents hold them."""
    return {name: [row.to_mapping() for row in rows] for name, rows in suites.items()}


def measure(
    arguments: argparse.Namespace,
    key: WatermarkKey,
    known: dict[str, Material],
    work: Path,
    document: dict[str, Any],
) -> None:
    """Try all attacks; what is there is written before and after those on the unmarked model."""
    told = telling()
    planned = plans(list(known), arguments.only)
    parts = {name: (material, planned[name]) for name, material in known.items()}
    document["suites"] = stored(
        run_suites(key, arguments.marked, work, parts, jobs=arguments.jobs, on_trial=told)
    )
    write(arguments, document)
    first = next(iter(known.values()))
    document["innocent"] = stored(
        run_suites(
            key,
            arguments.reference,
            work,
            {"": (first, innocent_plan(arguments.only))},
            jobs=arguments.jobs,
            on_trial=told,
            is_innocent=True,
        )
    )[""]
    write(arguments, document)


def mend(
    arguments: argparse.Namespace,
    key: WatermarkKey,
    known: dict[str, Material],
    work: Path,
    document: dict[str, Any],
) -> None:
    """Try again what could not be run elsewhere, and say that it was measured here."""
    mended: list[str] = []

    def tried(
        suites: dict[str, list[dict[str, Any]]], *, is_innocent: bool
    ) -> dict[str, list[dict[str, Any]]]:
        failed = {
            name: [row["attack"] for row in rows if row.get("error") is not None]
            for name, rows in suites.items()
        }
        parts = {name: (known[name], attacks) for name, attacks in failed.items() if attacks}
        model = arguments.reference if is_innocent else arguments.marked
        ran = stored(
            run_suites(key, model, work, parts, jobs=arguments.jobs, is_innocent=is_innocent)
        )
        found = {
            (name, row["attack"]): row
            for name, rows in ran.items()
            for row in rows
            if row.get("error") is None
        }
        mended.extend(attack for _, attack in found if attack not in mended)
        return {
            name: [found.get((name, row["attack"]), row) for row in rows]
            for name, rows in suites.items()
        }

    document["suites"] = tried(document["suites"], is_innocent=False)
    first = document["main_task"]
    document["innocent"] = tried({first: document["innocent"]}, is_innocent=True)[first]
    if mended:
        now = measured(arguments.preset, rule=True, device=arguments.device)
        about = {"attacks": mended, "environment": environment(arguments), "measured": now}
        document.setdefault("elsewhere", []).append(about)
    write(arguments, document)


def write(arguments: argparse.Namespace, document: dict[str, Any]) -> None:
    """Write the JSON file, and the page if one is asked for."""
    arguments.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    if arguments.markdown is not None:
        write_page(document, arguments.markdown)


def command(arguments: argparse.Namespace) -> str:
    """Return the command line, without the names of folders."""
    words = ["python benchmarks/attacks.py --key KEY --marked DIR --reference DIR --data DIR"]
    words += [f"--preset {name}" for name in arguments.preset or ()]
    words += [f"--only {shlex.quote(name)}" for name in arguments.only]
    words.append(f"--texts {arguments.texts} --task-texts {arguments.task_texts}")
    return " ".join([*words, f"--jobs {arguments.jobs} --json OUT --markdown OUT"])


def described(key: WatermarkKey) -> str:
    """Return in a sentence what was attacked."""
    configuration = key.configuration
    marks = [f"an extractor of {configuration.num_bits} bits", "a readout"]
    if key.pairs is not None:
        size = key.pairs.config.size
        marks.append(f"a pair code of {size} × {size} signs")
    return (
        f"The marked model, {key.model_digest[:12]}, answers in {configuration.output_dim} "
        f"dimensions and carries {', '.join(marks)}."
    )


def environment(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return what the numbers were made with."""
    device = resolve_device(arguments.device)
    where = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    packages = {name: version for name, version in library_versions().items() if version}
    for name in ("torchao", "bitsandbytes"):  # what one attack rounds with
        with contextlib.suppress(metadata.PackageNotFoundError):
            packages[name] = metadata.version(name)
    versions = {"python": platform.python_version(), **packages}
    return {**versions, "device": where, "cores": os.cpu_count()}


if __name__ == "__main__":
    main()
