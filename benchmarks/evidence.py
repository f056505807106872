"""What is found and who is accused: every theft and innocent model of the open questions, measured.

    python benchmarks/evidence.py --model DIR --data DIR --preset strong --json OUT --markdown OUT

Marks a model, calibrates its key on generated controls, and judges suspects that no line was drawn
from: fine-tuned on real tasks (DIR after ``--data`` holds ``sst2``, ``offenseval``, ``agnews`` with
``train.jsonl.gz``; ``wikitext-2`` to embed and distil with), pruned, overwritten, distilled,
random, each as it is and behind changes of its outputs. A pair code is not asked: that is what
``pair_code.py`` measures; here it is how far the rest goes. ``--tiny``: to try it on a tiny model.
``--work DIR`` keeps the marked models and the calibrated key, and goes on from there the next time;
``pair_code.py`` and ``attacks.py`` take the same model and key from it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

sys.path.insert(0, str(Path(__file__).parent))  # benchmarks are scripts, not a package

from evidence_table.page import markdown
from evidence_table.suspects import CHANGES, Base, Models, bases, changed, open_models
from evidence_table.tasks import Task, read_task
from made_up_owners import CREATED, make_identity
from nsmark.api import embed
from nsmark.api.calibrating import CalibrationSettings, calibrate_key
from nsmark.corpus import training_texts
from nsmark.embedding.checkpoint_folder import CheckpointFolder
from nsmark.embedding.config import EmbeddingConfig, parse_marks, preset_config
from nsmark.errors import EvidenceError
from nsmark.identity import OwnershipClaim
from nsmark.keyfile import WatermarkKey, read_key, write_key
from nsmark.payload import PayloadConfig, read_texts
from nsmark.suspects.recorded import RecordedOutputs
from nsmark.verification.controls import Control, Controls, owner_controls
from nsmark.verification.evidence import OwnerReference
from nsmark.verification.separation import area_under, roc_curve, separations
from nsmark.verification.statistics import STATISTICS, Statistics
from nsmark.verification.verdict import Verdict, judge
from provenance import measured

TASKS = ("sst2", "offenseval", "agnews")
PLAIN = "as it is"
_TINY_CORPUS = 1000
KEY_FILE = "owner.nsmark"


@dataclass(frozen=True)
class Prepared:
    """A marked model with its calibrated key, and the same of another owner."""

    key_file: Path
    models: Models
    report: dict[str, Any]


def prepare(arguments: argparse.Namespace, folder: Path) -> Prepared:
    """Mark the model, mark it and the original for another owner, and calibrate."""
    corpus = read_texts(arguments.data / "wikitext-2" / "train.txt.gz") if arguments.data else None
    config = preset_config(arguments.preset, arguments.marks)
    payload, num_texts = PayloadConfig(), None
    if arguments.tiny:
        corpus = (corpus or list(training_texts()))[:_TINY_CORPUS]
        config = replace(
            config,
            batch_size=16,
            model_learning_rate=2e-3,
            extractor_learning_rate=2e-3,
            cooldown_steps=20,
            hidden_sizes=(48, 32),
            num_heldout_texts=32,
            spread_weight=0.0,
            decorrelation_weight=0.0,
        )
        payload, num_texts = PayloadConfig(num_bits=16), 96

    def mark(model: Path, owner: str, config: EmbeddingConfig = config) -> Path:
        out = folder / owner
        if not (out / KEY_FILE).exists():
            identity = make_identity(owner)
            claim = identity.sign(OwnershipClaim.make(owner, "this model is mine", CREATED))
            embed(
                model,
                identity,
                claim,
                out,
                corpus=corpus,
                num_texts=num_texts,
                payload_config=payload,
                config=config,
                device=arguments.device,
                resume=CheckpointFolder(out).newest_step() is not None,
            )
        return out

    texts = [t for t in (corpus or []) if len(t.split()) >= 8]
    if not texts:
        texts = list(training_texts())
    key_file, report_file = folder / "calibrated.nsmark", folder / "prepared.json"
    forget_another_mark(folder, key_file, report_file)
    if not report_file.exists():
        started = time.perf_counter()
        own = mark(arguments.model, "owner")
        # How strongly others mark is their choice: quickly.
        quick = preset_config("fast")
        if arguments.tiny:
            quick = replace(config, marks=("paper", "derived"), pairs_first=False)
        mark(arguments.model, "another", quick)
        mark(own / "model", "overwriter", quick)
        begun = time.perf_counter()
        result = calibrate_key(
            read_key(own / KEY_FILE),
            make_identity("owner"),
            arguments.model,
            texts=texts[-4000:],
            owner_model=own / "model",
            settings=CalibrationSettings(
                num_tasks=arguments.tasks, steps=arguments.steps, seed=0, rate=arguments.rate
            ),
            device=arguments.device,
            on_model=lambda number, total, name: print(
                f"{time.perf_counter() - started:.0f} s: control {number} of {total}: {name}",
                file=sys.stderr,
            ),
        )
        key_file.unlink(missing_ok=True)  # of a run that was cut off just here
        write_key(result.key, key_file)
        report = {
            "preset": arguments.preset,
            "marks": list(config.marks),
            "seconds_to_mark": json.loads((own / "report.json").read_bytes())["seconds"],
            "seconds_to_calibrate": round(time.perf_counter() - begun, 1),
            "calibration": result.calibration.to_mapping(),
            "control_models": sorted({Control.of(c).model for c in result.controls}),
            "simulated_thefts": len(result.thefts),
            "simulated_thefts_found": sum(d.verdict is Verdict.OWNED for d in result.decisions),
        }
        report_file.write_text(json.dumps(report), encoding="utf-8")
    models = Models(
        marked=open_models(folder / "owner" / "model"),
        reference=open_models(arguments.model),
        overwritten=open_models(folder / "overwriter" / "model"),
        marked_by_another=open_models(folder / "another" / "model"),
        tasks=real_tasks(arguments),
        student_texts=[" ".join(text.split()[:48]) for text in texts[:3000]],
    )
    return Prepared(key_file, models, json.loads(report_file.read_text(encoding="utf-8")))


def forget_another_mark(folder: Path, key_file: Path, report_file: Path) -> None:
    """Remove what was made of a model that has been marked anew since."""
    own = folder / "owner" / KEY_FILE
    if not (key_file.exists() and own.exists()):
        return
    if read_key(key_file).model_digest != read_key(own).model_digest:
        for path in (key_file, report_file):
            path.unlink(missing_ok=True)
        overwritten = folder / "overwriter"
        for stale in (overwritten, CheckpointFolder(overwritten).path):
            shutil.rmtree(stale, ignore_errors=True)


def real_tasks(arguments: argparse.Namespace) -> list[Task]:
    """Return the real tasks, as far as they are there."""
    if arguments.data is None:
        return []
    names = {"sst2": "SST-2", "offenseval": "OffensEval", "agnews": "AG News"}
    files = {name: arguments.data / name / "train.jsonl.gz" for name in TASKS}
    files["sst2"] = first_existing(
        files["sst2"], arguments.data / "sst2" / "train_sentences.jsonl.gz"
    )
    limit = 64 if arguments.tiny else 8000
    return [read_task(names[n], path, limit) for n, path in files.items() if path.exists()]


def first_existing(*paths: Path) -> Path:
    """Return the first path that exists, else the first."""
    return next((path for path in paths if path.exists()), paths[0])


# --- judging, in several processes: the statistics are the CPU's work ------------------------

_JUDGE: dict[str, Any] = {}


def start_judge(key_file: Path, rate: float) -> None:
    """Prepare a process, which has one core."""
    threadpool_limits(1)
    key = read_key(key_file)
    owner = OwnerReference(key)
    _JUDGE.update(
        owner=owner,
        controls=owner_controls(key),
        rate=rate,
    )


def judge_answers(answers: RecordedOutputs) -> dict[str, Any]:
    """Measure one suspect and apply both rules."""
    owner: OwnerReference = _JUDGE["owner"]
    controls: list[Control] = _JUDGE["controls"]
    try:
        evidence = owner.compare(answers)
    except EvidenceError as error:  # such as the signs of nearly constant outputs
        nothing = Statistics().to_mapping()
        return {
            "name": answers.name,
            "rank": None,
            "triggered": nothing,
            "untriggered": nothing,
            "sized_extraction_rate": None,
            "lines": None,
            "verdict": "could_not_measure",
            "passed": [],
            "paper": "could_not_measure",
            "error": str(error),
        }
    judged = judge(owner, evidence, Controls(controls), rate=_JUDGE["rate"])
    decision, lines = judged.decision, judged.calibration
    # The paper has one control, the unmarked model, which comes first.
    by_paper = judge(owner, evidence, Controls(controls[:1]), rule="paper").decision
    return {
        "name": answers.name,
        "rank": evidence.rank,
        "triggered": evidence.triggered.to_mapping(),
        "untriggered": evidence.untriggered.to_mapping(),
        "sized_extraction_rate": evidence.sized_extraction_rate,
        "lines": None if lines is None else {line.name: line.value for line in lines.thresholds},
        "verdict": str(decision.verdict),
        "passed": list(decision.passed),
        "paper": str(by_paper.verdict),
    }


def judge_changed(answers: RecordedOutputs, change: str, seed: int) -> dict[str, Any]:
    """Judge a suspect behind a change of its outputs."""
    return judge_answers(changed(answers, change, seed))


def judge_all(
    prepared: Prepared, key: WatermarkKey, arguments: argparse.Namespace
) -> list[dict[str, Any]]:
    """Ask every base and judge it behind every change."""
    context = get_context("spawn")
    rows: list[dict[str, Any]] = []
    questions, started = OwnerReference(key).questions, time.perf_counter()
    with ProcessPoolExecutor(
        arguments.processes, context, start_judge, (prepared.key_file, arguments.rate)
    ) as pool:
        waiting = []
        chosen = [
            (number, base)
            for number, base in enumerate(bases(prepared.models, questions))
            if re.search(arguments.only, base.name)
        ]
        for number, base in chosen:
            waiting += [(base, job) for job in submitted(pool, base, number)]
            print(f"{time.perf_counter() - started:.0f} s: asked {base.name}", file=sys.stderr)
        for base, job in waiting:
            about = {"theft": base.is_theft, "beyond": base.is_beyond, "base": base.name}
            rows.append(about | job.result())
    return rows


def submitted(pool: ProcessPoolExecutor, base: Base, number: int) -> list[Any]:
    """Hand one base's answers to the judges, as they are and behind every change."""
    answers = base.answers()
    whole = partial(pool.submit, judge_changed, answers, seed=1000 + number)
    return [whole(change) for change in (PLAIN, *CHANGES)]


def counted(row: dict[str, Any]) -> dict[str, float | None]:
    """Return what the rule goes by: what is read at the size of the owner's outputs, too."""
    values, sized = row["triggered"], row.get("sized_extraction_rate")
    if sized is None:
        return dict(values)
    return values | {"extraction_rate": min(values["extraction_rate"], sized)}


def margin(row: dict[str, Any]) -> float:
    """Return how far the rule is beyond its nearest line; lowest where it does not accuse."""
    values, lines = counted(row), row["lines"] or {}
    margins = [
        witness.closeness(values[witness.name]) - witness.closeness(lines[witness.name])
        for witness in STATISTICS
        if witness.name in lines and values[witness.name] is not None
    ]
    highest = max(margins, default=-np.inf)
    # Beyond a line and not accused: the rule saw the same without a trigger.
    return -np.inf if highest > 0 and row["verdict"] != "owned" else highest


def summarise(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Count who was found, who was accused, and how well each witness separates."""

    def measured(chosen: Sequence[dict[str, Any]]) -> list[Control]:
        return [Control(row["name"], Statistics.from_mapping(counted(row))) for row in chosen]

    thefts = [row for row in rows if row["theft"]]
    promised = [row for row in thefts if not row["beyond"]]
    innocents = [row for row in rows if not row["theft"]]
    return {
        "thefts": len(thefts),
        "thefts_found": sum(row["verdict"] == "owned" for row in thefts),
        "thefts_found_by_paper": sum(row["paper"] == "owned" for row in thefts),
        "innocents": len(innocents),
        "innocents_accused": sum(row["verdict"] == "owned" for row in innocents),
        "innocents_accused_by_paper": sum(row["paper"] == "owned" for row in innocents),
        "promised": len(promised),
        "promised_found": sum(row["verdict"] == "owned" for row in promised),
        "area_under_roc": area_under(
            roc_curve(*(np.array([margin(row) for row in side]) for side in (innocents, promised)))
        ),
        "separation": [
            {k: v for k, v in each.to_mapping().items() if k != "roc"}
            for each in separations(measured(innocents), measured(promised))
        ],
    }


def json_lines(document: dict[str, Any]) -> str:
    """Return a document as JSON, a line for every suspect, six digits to a number."""

    def short(value: Any) -> Any:
        if isinstance(value, float):
            return float(f"{value:.6g}")
        if isinstance(value, dict):
            return {name: short(each) for name, each in value.items()}
        return [short(each) for each in value] if isinstance(value, list | tuple) else value

    rows = ",\n".join(json.dumps(short(row)) for row in document["rows"])
    head = json.dumps(short({k: v for k, v in document.items() if k != "rows"}), indent=1)
    return f'{head.removesuffix("}").rstrip()},\n "rows": [\n{rows}\n]}}\n'


def main(words: Sequence[str] | None = None) -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, required=True, help="folder of the unmarked model")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--preset", default="fast")
    parser.add_argument("--marks", type=parse_marks, help="other witnesses than the preset's")
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--tasks", type=int, default=6)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--processes", type=int, default=max(1, (os.cpu_count() or 2) - 1))
    parser.add_argument("--device", default="auto")
    parser.add_argument("--tiny", action="store_true", help="for a tiny model, to try it out")
    parser.add_argument("--only", default="", metavar="REGEX", help="models with such names")
    parser.add_argument("--work", type=Path, help="keep what takes long to make here")
    parser.add_argument(
        "--calibrate-only", action="store_true", help="mark and calibrate; needs --work"
    )
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--markdown", type=Path)
    arguments = parser.parse_args(words)
    if arguments.calibrate_only and arguments.work is None:
        parser.error("--calibrate-only needs --work")
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="evidence-") as folder:
        work = arguments.work or Path(folder)
        work.mkdir(parents=True, exist_ok=True)
        prepared = prepare(arguments, work)
        if arguments.calibrate_only:
            return
        rows = judge_all(prepared, read_key(prepared.key_file), arguments)
    options = f" --marks {','.join(arguments.marks)}" if arguments.marks else ""
    options += f" --only {shlex.quote(arguments.only)}" if arguments.only else ""
    document = {
        "measured": measured(
            None if arguments.tiny else [arguments.preset], rule=True, device=arguments.device
        ),
        "command": "python benchmarks/evidence.py --model DIR --data DIR --preset "
        f"{arguments.preset}{options} --json OUT --markdown OUT",
        "environment": {"python": platform.python_version(), "machine": platform.machine()},
        "rate": arguments.rate,
        **prepared.report,
        **summarise(rows),
        "seconds": round(time.perf_counter() - started, 1),
        "rows": rows,
    }
    arguments.json.write_text(json_lines(document), encoding="utf-8")
    if arguments.markdown is not None:
        arguments.markdown.write_text(markdown([document]), encoding="utf-8")
    print(json.dumps({k: v for k, v in document.items() if k not in ("rows", "separation")}))


if __name__ == "__main__":
    main()
