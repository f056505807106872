"""Settings of the mark side by side: what each costs, and what its witnesses outlast.

    python benchmarks/mark_settings.py --model DIR --data DIR --work DIR --json OUT --settings FILE

FILE holds a JSON object: names, and for each the settings in place of the preset's. One process per
name marks the model and measures it; they share one GPU. What is in the work folder is not made
again. At the end ``best`` there leads to the best of them, and ``best/settings.txt`` says how it
was made, so that all tables can be made of it:

    python benchmarks/on_one_gpu.py --work WORK/best --set $(cat WORK/best/settings.txt) ...
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))  # benchmarks are scripts, not a package

from job_queue import ONE_THREAD, Job, JobQueue, shared_gpu
from provenance import measured

HERE = Path(__file__)
RESULT = "mark-settings.json"
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,40}")
NOISY = "10 % isotropic noise, linear map"
BEHIND = {"whitened": ("marked", "pruned 90%"), NOISY: ("marked",)}
"""Changes of outputs, and of which models."""


def outlasted(run: Any) -> list[dict[str, Any]]:
    """Return the verdicts on the marked model behind changes of its weights and outputs."""
    from nsmark.transforms.weights import prune, prune_globally
    from nsmark.verification.questions import key_questions
    from pair_table.attacks import MARKED, weight_changes
    from pair_table.changes import PLAIN, changed
    from pair_table.run import copied

    pruned = {name: change for name, change in weight_changes().items() if "pruned" in name}
    further = {f"pruned {share:.0%} globally": prune_globally(share) for share in (0.8, 0.9)}
    changes = {"pruned 95%": prune(0.95)} | further | pruned
    asked = key_questions(run.key)
    rows = []
    for name in (MARKED, *changes):
        model = run.marked if name == MARKED else copied(run.marked, changes[name])
        outputs = model.encode(list(asked.texts))
        for how in (PLAIN, *(how for how, bases in BEHIND.items() if name in bases)):
            # All answers go through one change, as they would at an endpoint.
            answers = asked.sorted_out(name, changed(outputs, how, 1))
            rows.append({"base": name, "change": how, **judged(run, answers)})
    return rows


def judged(run: Any, answers: Any) -> dict[str, Any]:
    """Return the verdict by the controls that the key has from its making."""
    from nsmark.api.verifying import verify

    report = verify(run.key, answers, device=run.device, pair_word_list=run.pair_words)
    evidence = report.evidence
    return {
        "verdict": str(report.verdict),
        "passed": list(report.decision.passed),
        "reason": report.decision.reasons[0] if report.decision.reasons else None,
        "triggered": evidence.triggered.to_mapping() if evidence else None,
        "untriggered": evidence.untriggered.to_mapping() if evidence else None,
    }


def as_words(settings: dict[str, Any]) -> list[str]:
    """Return settings as the command line takes them after ``--set``."""
    return [f"{name}={json.dumps(value)}" for name, value in settings.items()]


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
    words += ["--set", *as_words(settings)] if settings else []
    readers = Readers(1)
    try:
        run = make_run(parse_arguments([str(word) for word in words]), readers)
        work.mkdir(parents=True, exist_ok=True)
        result = {"changed": settings, "mark": measure_mark(run), "outlasted": outlasted(run)}
    finally:
        readers.close()
    (work / RESULT).write_text(json.dumps(result), encoding="utf-8")


SHOWN = {
    "pair_code_rate": "pairs",
    "extraction_rate": "extraction",
    "derived_extraction_rate": "readout",
    "predictability": "predicted",
}


def lines(name: str, result: dict[str, Any]) -> str:
    """Return one setting in words: fidelity, null space, and what every change leaves."""
    mark, fidelity = result["mark"], result["mark"]["fidelity"]
    reference = mark["other_witnesses"]["reference"]
    told = [
        f"{name}: cosine {fidelity['clean']['mean']:.5f} similarity "
        f"{fidelity['similarity_correlation']:.5f} predicted by the reference "
        f"{reference['predictability']:.3f}; {mark['training_seconds']:.0f} s, "
        f"{mark['steps']} steps"
    ]
    for row in result["outlasted"]:
        values = [
            f"{words} {row['triggered'][key]:.3f}"
            for key, words in SHOWN.items()
            if row["triggered"] and row["triggered"].get(key) is not None
        ]
        clean = (row["untriggered"] or {}).get("extraction_rate")
        values += [] if clean is None else [f"without trigger {clean:.2f}"]
        told.append(f"  {row['base']}, {row['change']}: {row['verdict']}; {', '.join(values)}")
    return "\n".join(told)


_LEAST_SIMILARITY = 0.999
_BEYOND = ("pruned 95%",)
"""What nobody is promised."""


def worth(result: dict[str, Any]) -> tuple[float, ...]:
    """Return what settings are compared by: thefts found, fidelity, the strength of the null space.

    The last is how much more of the owner's answers a thief predicts behind noise and a map than
    the unmarked model does.
    """
    rows = [row for row in result["outlasted"] if row["base"] not in _BEYOND]
    found = sum(row["verdict"] == "owned" for row in rows)
    similarity = result["mark"]["fidelity"]["similarity_correlation"]
    noisy = [row["triggered"]["predictability"] for row in rows if row["change"] == NOISY]
    reference = result["mark"]["other_witnesses"]["reference"]["predictability"]
    gap = (min(noisy, default=0.0) or 0.0) - (reference or 0.0)
    return (float(similarity >= _LEAST_SIMILARITY), float(found), gap, similarity)


def lead_to_best(work: Path, found: dict[str, dict[str, Any]]) -> str:
    """Make the link to the best; return its name."""
    best = max(found, key=lambda name: worth(found[name]))
    text = " ".join(as_words(found[best]["changed"])) + "\n"
    (work / best / "settings.txt").write_text(text, encoding="utf-8")
    link = work / "best"
    link.unlink(missing_ok=True)
    link.symlink_to(best)
    return best


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
    bad = [name for name in settings if not NAME.fullmatch(name) or name in ("best", "logs")]
    if bad:
        raise SystemExit(f"names are small letters, digits and '-', not 'best' or 'logs': {bad}")
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
        queue = JobQueue(jobs, arguments.work / "logs", {**variables, **ONE_THREAD})
        queue.run(None if arguments.minutes is None else 60 * arguments.minutes)
    found = {
        name: json.loads((arguments.work / name / RESULT).read_bytes())
        for name in settings
        if (arguments.work / name / RESULT).exists()
    }
    whole = {"measured": measured(["strong"], rule=True, device=arguments.device), **found}
    text = ",\n".join(f"{json.dumps(name)}: {json.dumps(each)}" for name, each in whole.items())
    arguments.json.write_text(f"{{\n{text}\n}}\n", encoding="utf-8")
    for name, result in found.items():
        print(lines(name, result))
    if found:
        print(f"best: {lead_to_best(arguments.work, found)}")
    return 0 if len(found) == len(settings) else 1


if __name__ == "__main__":
    sys.exit(main())
