"""Settings of the mark side by side: what each costs, and what its witnesses outlast.

    python benchmarks/mark_settings.py --model DIR --data DIR --work DIR --json OUT --settings FILE

FILE holds a JSON object: names, and for each the settings in place of the preset's. One process per
name marks the model and measures it; they share one GPU. What is in the work folder is not made
again, and a folder there (``NAME``) may be the work folder of ``on_one_gpu.py`` afterwards.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))  # benchmarks are scripts, not a package

from job_queue import Job, JobQueue, shared_gpu

HERE = Path(__file__)
RESULT = "mark-settings.json"
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,40}")


def outlasted(run: Any) -> list[dict[str, Any]]:
    """Return what is read from the marked model behind changes of its weights and outputs."""
    from evidence_table.suspects import ask, changed
    from nsmark.alterations.weights import prune, prune_feed_forward, prune_globally
    from nsmark.verification.measure import Yardstick
    from pair_table.reading import read
    from pair_table.run import copied

    weight_changes: dict[str, Callable[..., None] | None] = {"marked": None}
    for share in (0.4, 0.6, 0.7, 0.8, 0.9, 0.95):
        weight_changes[f"pruned {share:.0%}"] = prune(share)
    for share in (0.8, 0.9):
        weight_changes[f"pruned {share:.0%} globally"] = prune_globally(share)
    for share in (0.8, 0.9):
        weight_changes[f"feed-forward pruned {share:.0%}"] = prune_feed_forward(share)
    yardstick, rows = Yardstick(run.key), []
    maps = {"10 % isotropic noise, linear map": ("marked", "pruned 40%")}
    for name, change in weight_changes.items():
        model = run.marked if change is None else copied(run.marked, change)
        answers = ask(model, name, yardstick.questions)
        outputs = model.encode(list(run.questions.texts))
        rows.append(
            {
                "base": name,
                "pairs": read(outputs, run.table),
                "pairs_whitened": read(outputs, run.table, "whitened"),
                "witnesses": yardstick.compare(answers).triggered.to_mapping(),
                "behind": {
                    how: yardstick.compare(changed(answers, how, 1)).triggered.to_mapping()
                    for how, bases in maps.items()
                    if name in bases
                },
            }
        )
    return rows


def measure_one(arguments: argparse.Namespace, settings: dict[str, Any]) -> None:
    """Mark with one set of settings and write what it is worth."""
    from pair_code import make_run, parse_arguments
    from pair_table.marking import measure_mark
    from pair_table.reading import Readers

    work = arguments.work / arguments.one
    words: list[Any] = ["--model", arguments.model, "--work", work, "--json", work / "unused.json"]
    words += ["--device", arguments.device]
    words += ["--data", arguments.data] if arguments.data else []
    words += ["--tiny"] if arguments.tiny else []
    changes = [f"{name}={json.dumps(value)}" for name, value in settings.items()]
    words += ["--set", *changes] if changes else []
    readers = Readers(1)
    try:
        run = make_run(parse_arguments([str(word) for word in words]), readers)
        work.mkdir(parents=True, exist_ok=True)
        result = {"changed": settings, "mark": measure_mark(run), "outlasted": outlasted(run)}
    finally:
        readers.close()
    (work / RESULT).write_text(json.dumps(result), encoding="utf-8")


def line(name: str, result: dict[str, Any]) -> str:
    """Return one setting in a line: fidelity, null space, what is read after pruning."""
    mark, fidelity = result["mark"], result["mark"]["fidelity"]
    reference = mark["other_witnesses"]["reference"]
    read = " ".join(
        f"{row['base'].replace('pruned ', 'p').replace('feed-forward ', 'f')}"
        f"={row['pairs']['rate']:.3f}/{row['pairs_whitened']['rate']:.3f}"
        f"/{row['witnesses']['extraction_rate']:.2f}/{row['witnesses']['derived_extraction_rate']:.2f}"
        for row in result["outlasted"]
    )
    noisy = result["outlasted"][0]["behind"]
    predicted = " ".join(f"{each['predictability']:.3f}" for each in noisy.values())
    return (
        f"{name}: cosine {fidelity['clean']['mean']:.5f} similarity "
        f"{fidelity['similarity_correlation']:.5f} reference predicts "
        f"{reference['predictability']:.3f}, noise and map {predicted}; {read}; "
        f"{mark['training_seconds']:.0f} s, {mark['steps']} steps"
    )


def parse_arguments(words: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, required=True, help="folder of the unmarked model")
    parser.add_argument("--data", type=Path, help="folder with wikitext-2 and the five tasks")
    parser.add_argument("--work", type=Path, required=True, help="keeps the marked models")
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--settings", type=Path, required=True, help="JSON: settings by name")
    parser.add_argument("--one", help="this name alone, in this process")
    parser.add_argument("--minutes", type=float, help="stop after so long")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--tiny", action="store_true", help="for a tiny model, to try it out")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> int:
    """Mark with all settings; return 1 where some are missing."""
    arguments = parse_arguments(words)
    settings: dict[str, dict[str, Any]] = json.loads(arguments.settings.read_text(encoding="utf-8"))
    bad = [name for name in settings if not NAME.fullmatch(name)]
    if bad:
        raise SystemExit(f"names of settings are small letters, digits and '-': {bad}")
    if arguments.one is not None:
        measure_one(arguments, settings[arguments.one])
        return 0
    arguments.work.mkdir(parents=True, exist_ok=True)
    own = sys.argv[1:] if words is None else words
    jobs = []
    for name, changed in settings.items():
        result = arguments.work / name / RESULT
        if result.exists() and json.loads(result.read_bytes())["changed"] != changed:
            shutil.rmtree(result.parent)  # of other settings under the same name
        if not result.exists():
            jobs.append(Job(name, (str(HERE), *map(str, own), "--one", name)))
    with shared_gpu() as variables:
        variables = {**variables, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
        queue = JobQueue(jobs, arguments.work / "logs", variables)
        queue.run(None if arguments.minutes is None else 60 * arguments.minutes)
    found = {
        name: json.loads((arguments.work / name / RESULT).read_bytes())
        for name in settings
        if (arguments.work / name / RESULT).exists()
    }
    text = ",\n".join(f"{json.dumps(name)}: {json.dumps(each)}" for name, each in found.items())
    arguments.json.write_text(f"{{\n{text}\n}}\n", encoding="utf-8")
    for name, result in found.items():
        print(line(name, result))
    return 0 if len(found) == len(settings) else 1


if __name__ == "__main__":
    sys.exit(main())
