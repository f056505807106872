"""What a pair code withstands, whether its p-values hold, and where it ends: measured.

    python benchmarks/pair_code.py --model DIR --data DIR --work DIR --json OUT --markdown OUT

Parts: ``mark`` (mark the model, measure what that changed), ``attacks``, ``validity`` (random keys
on innocent models), ``kinds`` (models trained from scratch) and ``limits``. Each takes what the
earlier ones left in the work folder, and writes its result into the JSON file when it is done; one
that is there already is left alone unless named with ``--again``. All but ``mark`` also keep what
they had when they were cut off, piece by piece. Several processes on one work folder, each with
pieces of its own (``--parts limits --only retraining``), keep a GPU busy; a last run puts all
together. The page is made from the JSON file.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))  # benchmarks are scripts, not a package

# What needs torch is imported where it is used: the readers' processes import this file, too.
import provenance
from choices import some_of
from pair_table.page import markdown
from pair_table.reading import Readers
from pair_table.targets import all_targets

PARTS = ("mark", "attacks", "validity", "kinds", "limits")
Document = dict[str, Any]


def measured(run: Any, part: str, only: str | None, again: bool) -> Document | None:
    """Measure a part, say what it was made with; None where only some pieces were asked for."""
    from pair_table.attacks import attack_pieces, gather_attacks
    from pair_table.kinds import gather_kinds, kind_pieces
    from pair_table.limits import gather_limits, limit_pieces
    from pair_table.marking import measure_mark
    from pair_table.pieces import measure_pieces
    from pair_table.validity import gather_validity, validity_pieces

    if part == "mark":
        return measure_mark(run)
    pieces, gather = {
        "attacks": (attack_pieces, gather_attacks),
        "validity": (validity_pieces, gather_validity),
        "kinds": (kind_pieces, gather_kinds),
        "limits": (limit_pieces, gather_limits),
    }[part]
    found = measure_pieces(run, part, pieces(run), only, again=again)
    if only is not None:
        return None
    return {**gather(run, found.results), "environments": found.environments}


def make_run(arguments: argparse.Namespace, readers: Readers) -> Any:
    """Put together what all parts share."""
    from fidelity import embedding_config
    from nsmark.payload import PairConfig
    from pair_table.run import MARKS, Run
    from pair_table.scales import FULL, TINY

    scale = TINY if arguments.tiny else FULL
    marks = f"marks={json.dumps(MARKS)}"
    config = replace(embedding_config(arguments.preset, [marks]), **scale.training)
    config = replace(config, **json_values(arguments.set))
    return Run(
        model=arguments.model.resolve(),
        data=arguments.data,
        work=arguments.work,
        config=config,
        pairs=PairConfig(
            size=arguments.size or scale.pairs.size,
            repeats=arguments.repeats or scale.pairs.repeats,
        ),
        scale=scale,
        keys=arguments.keys or scale.keys,
        kind_changes=json_values(arguments.kind_set),
        device=arguments.device,
        readers=readers,
    )


def json_values(changes: Sequence[str]) -> dict[str, Any]:
    """Read settings written NAME=JSON."""
    values = {}
    for change in changes:
        name, _, text = change.partition("=")
        value = json.loads(text)
        values[name] = tuple(value) if isinstance(value, list) else value
    return values


def command(arguments: argparse.Namespace) -> str:
    """Return the command line, without the names of folders."""
    words = ["python benchmarks/pair_code.py --model DIR --data DIR --work DIR --json OUT"]
    words.append(f"--markdown OUT --preset {arguments.preset}")
    for name in ("set", "kind_set"):
        values = getattr(arguments, name)
        words += [f"--{name.replace('_', '-')}", *map(shlex.quote, values)] if values else []
    words += [
        f"--{n} {getattr(arguments, n)}"
        for n in ("size", "repeats", "keys")
        if getattr(arguments, n)
    ]
    return " ".join(words + (["--tiny"] if arguments.tiny else []))


def measure(arguments: argparse.Namespace, run: Any, document: Document) -> None:
    """Measure the parts asked for that are not there yet; write after each."""
    for part in arguments.parts:
        again = part in arguments.again
        if again and (part == "mark" or (part == "attacks" and arguments.only is None)):
            run.forget(part)
        if arguments.only is None and not again and is_there(run, document["parts"].get(part)):
            continue
        started = time.perf_counter()
        result = measured(run, part, arguments.only, again)
        if result is None:
            continue
        seconds = round(time.perf_counter() - started, 1)
        changed = bool(arguments.set or arguments.tiny)
        found = provenance.measured(
            None if changed else [arguments.preset], device=arguments.device
        )
        document["parts"][part] = {**result, "command": command(arguments), "measured": found}
        document["parts"] = {n: document["parts"][n] for n in PARTS if n in document["parts"]}
        write(arguments, document)
        print(f"{part}: {seconds} s", file=sys.stderr, flush=True)


def is_there(run: Any, part: Document | None) -> bool:
    """Return whether a part was measured, and on the marked model that the work folder holds."""
    if part is None:
        return False
    if "model_sha256" not in part:
        return True
    return run.has_mark and part["model_sha256"] == run.key.model_digest


def write(arguments: argparse.Namespace, document: Document) -> None:
    """Write the JSON file, and the page if one is asked for."""
    text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    partial = arguments.json.with_suffix(".partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(arguments.json)
    if arguments.markdown is not None and document["parts"]:
        arguments.markdown.write_text(markdown(document), encoding="utf-8")


def accuracies(path: Path) -> dict[str, float]:
    """Return the mean differences by task that ``fidelity.py`` found with fine-tuning."""
    report = json.loads(path.read_text(encoding="utf-8"))
    if "pairs" not in report["settings"]["embedding"]["marks"]:
        raise SystemExit(f"{path} is about marks without a pair code")
    tasks = report["summary"]["fine_tuned"]["tasks"]
    return {name: task["mean"] for name, task in tasks.items()}


def parse_arguments(words: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, required=True, help="folder of the unmarked model")
    parser.add_argument("--data", type=Path, help="folder with wikitext-2 and the five tasks")
    parser.add_argument("--work", type=Path, required=True, help="keeps marked models and results")
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument(
        "--parts", type=some_of(PARTS, "part"), default=list(PARTS), help=",".join(PARTS)
    )
    parser.add_argument(
        "--again", type=some_of(PARTS, "part"), default=[], help="parts to measure anew"
    )
    parser.add_argument(
        "--only", metavar="REGEX", help="measure and keep pieces with such names; write no part"
    )
    parser.add_argument("--preset", default="strong")
    parser.add_argument("--set", nargs="+", default=[], metavar="NAME=JSON", help="for the mark")
    parser.add_argument("--kind-set", nargs="+", default=[], metavar="NAME=JSON", help="for kinds")
    parser.add_argument("--size", type=int)
    parser.add_argument("--repeats", type=int)
    parser.add_argument("--keys", type=int)
    parser.add_argument("--fidelity", type=Path, help="JSON of fidelity.py, for the accuracies")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--processes", type=int, default=max(1, (os.cpu_count() or 2) - 1))
    parser.add_argument("--tiny", action="store_true", help="for a tiny model, to try it out")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> None:
    """Measure and write."""
    arguments = parse_arguments(words)
    arguments.work.mkdir(parents=True, exist_ok=True)
    document: Document = {"parts": {}}
    if arguments.json.exists():
        document = json.loads(arguments.json.read_text(encoding="utf-8"))
    if arguments.fidelity is not None:
        document["accuracy"] = accuracies(arguments.fidelity)
    readers = Readers(arguments.processes)
    try:
        measure(arguments, make_run(arguments, readers), document)
    finally:
        readers.close()
    if arguments.only is not None:
        return
    write(arguments, document)
    for target in all_targets(document):
        print(f"{target.what}: wanted {target.wanted}; {target.reached}; met: {target.met}")


if __name__ == "__main__":
    main()
