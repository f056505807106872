"""Every table that needs a GPU, from one command: many processes share it.

    python benchmarks/on_one_gpu.py --model DIR --data DIR --work DIR --out DIR

One marked model serves all: ``pair_code.py``, ``fidelity.py``, ``evidence.py`` and ``attacks.py``
run side by side, each as soon as what it needs is there, and write JSON and pages into the folder
after ``--out``. What the work folder holds is not made again, so a run that was cut off
(``--minutes``) goes on, ``evidence`` with its models but without its verdicts; logs are there, too.
``--tables`` chooses.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # benchmarks are scripts, not a package

from choices import some_of
from job_queue import ONE_THREAD, Job, JobQueue, shared_gpu

HERE = Path(__file__).parent
TABLES = ("pair-code", "fidelity", "evidence", "attacks")
SEEDS = (0, 1, 2)
ATTACK_PIECES = {
    "weights": ("^(marked|pruned|feed|8-bit|weights)", 4),
    "tuned-1": ("^fine-tuned on (sst2|offenseval)", 2),
    "tuned-2": ("^fine-tuned on (sst5|lingspam|agnews)", 2),
    "overwritten-1": ("^overwritten without", 1),
    "overwritten-2": ("^overwritten with ", 1),
}
LIMIT_PIECES = {
    "questions": "^(queries|word|undo)",
    "students": "^student",
    "retrained-1": "^retraining 2e",
    "retrained-2": "^retraining 5e",
}


@dataclass(frozen=True)
class Plan:
    """Where things are, and how jobs are written."""

    model: Path
    data: Path | None
    work: Path
    out: Path
    device: str
    settings: tuple[str, ...] = ()
    """Of the mark, in place of the preset's, as NAME=JSON."""
    tiny: bool = False
    readers: int = 6
    """Processes that read for the largest job; others have fewer."""
    suite_jobs: int = 10
    """Attacks at a time."""

    @property
    def owner(self) -> Path:
        """Where the marked model is."""
        return self.work / "owner"

    def pair_code(self, name: str, part: str, *words: object, after: Sequence[str] = ()) -> Job:
        """Return a job of ``pair_code.py``."""
        files = ("--work", self.work, "--json", self.work / "pair-code.json", "--parts", part)
        settings = ("--set", *self.settings) if self.settings else ()
        return self._job(name, "pair_code.py", *files, *words, *settings, after=after)

    def fidelity(self, name: str, *words: object, after: Sequence[str] = ()) -> Job:
        """Return a job of ``fidelity.py``."""
        kept = ("--tasks", self.data, "--kept", self.work / "clean-accuracies")
        settings = ("--set", *self.settings) if self.settings else ()
        script = str(HERE / "fidelity.py")
        base = (script, "--model", self.model, "--device", self.device, *kept, *words, *settings)
        return Job(name, tuple(map(str, base)), tuple(after))

    def evidence(self, name: str, *words: object, after: Sequence[str] = ()) -> Job:
        """Return a job of ``evidence.py``."""
        files = ("--preset", "strong", "--work", self.work)
        return self._job(name, "evidence.py", *files, *words, after=after)

    def _job(self, name: str, script: str, *words: object, after: Sequence[str] = ()) -> Job:
        base: list[object] = [HERE / script, "--model", self.model, "--device", self.device]
        base += ["--data", self.data] if self.data else []
        base += ["--tiny"] if self.tiny else []
        return Job(name, tuple(map(str, [*base, *words])), tuple(after))

    # --- tables ----------------------------------------------------------------------------------

    def mark(self) -> list[Job]:
        """Return the job that marks the model, for all others."""
        return [self.pair_code("mark", "mark", "--processes", 1)]

    def pair_code_table(self, *, with_fidelity: bool) -> list[Job]:
        """Return all parts, then what puts them together, with the accuracies if there are any."""
        jobs = [
            self.pair_code(f"kind-{kind}", "kinds", "--only", f"^{kind}$", "--processes", 2)
            for kind in ("bert", "gpt2")
        ]
        few = ("--processes", 2)
        jobs += [
            self.pair_code(
                "innocents", "validity", "--only", "^innocents", "--processes", self.readers
            ),
            self.pair_code("other-keys", "validity", "--only", "^marked", *few, after=["mark"]),
        ]
        jobs += [
            self.pair_code(
                f"thief-{name}", "attacks", "--only", regex, "--processes", count, after=["mark"]
            )
            for name, (regex, count) in ATTACK_PIECES.items()
        ]
        jobs += [
            self.pair_code(f"limit-{name}", "limits", "--only", regex, *few, after=["mark"])
            for name, regex in LIMIT_PIECES.items()
        ]
        page = ("--markdown", self.out / "pair-code.md", "--json", self.out / "pair-code.json")
        whole = self.pair_code(
            "pair-code",
            "mark,attacks,validity,kinds,limits",
            *page,
            *few,
            after=["mark", *(job.name for job in jobs)],
        )
        if not with_fidelity:
            return [*jobs, whole]
        words = ("--fidelity", str(self.out / "fidelity.json"))
        return [
            *jobs,
            replace(whole, words=whole.words + words, after=(*whole.after, "fidelity")),
        ]

    def fidelity_table(self) -> list[Job]:
        """Return a comparison for every seed; the clean model's half does not wait for the mark."""
        jobs, parts = [], []
        for seed in SEEDS:
            part = self.work / f"fidelity-{seed}.json"
            own = ("--seeds", seed, "--json", part)
            before = self.fidelity(f"clean-{seed}", "--clean-only", *own)
            marked = ("--marked", self.owner / "model", *own)
            jobs += [
                before,
                self.fidelity(f"fidelity-{seed}", *marked, after=["mark", before.name]),
            ]
            parts.append(part)
        page = ("--json", self.out / "fidelity.json", "--markdown", self.out / "fidelity.md")
        words = (HERE / "fidelity.py", "--merge", *parts, *page)
        names = tuple(f"fidelity-{seed}" for seed in SEEDS)
        return [*jobs, Job("fidelity", tuple(map(str, words)), names)]

    def calibration(self) -> list[Job]:
        """Return the job that calibrates the key, for evidence and attacks."""
        words = ("--calibrate-only", "--json", self.work / "evidence.json")
        return [self.evidence("calibrate", *words, after=["mark"])]

    def evidence_table(self) -> list[Job]:
        """Return the job that judges thefts and innocents."""
        page = ("--json", self.out / "evidence.json", "--markdown", self.out / "evidence.md")
        words = ("--processes", self.readers, *page)
        return [self.evidence("evidence", *words, after=["calibrate"])]

    def attacks_table(self) -> list[Job]:
        """Return the job that tries every attack."""
        words: list[object] = [
            HERE / "attacks.py",
            *("--key", self.work / "calibrated.nsmark", "--marked", self.owner / "model"),
            *("--reference", self.model, "--device", self.device),
            *("--jobs", self.suite_jobs, "--work", self.work / "suite"),
            *("--json", self.out / "attacks.json", "--markdown", self.out / "attacks.md"),
        ]
        words += ["--data", self.data] if self.data else []
        words += [] if self.settings or self.tiny else ["--preset", "strong"]
        return [Job("attacks", tuple(map(str, words)), ("calibrate",))]

    def jobs(self, tables: Sequence[str]) -> list[Job]:
        """Return all jobs of some tables."""
        makers = {
            "pair-code": partial(self.pair_code_table, with_fidelity="fidelity" in tables),
            "fidelity": self.fidelity_table,
            "evidence": self.evidence_table,
            "attacks": self.attacks_table,
        }
        jobs = self.mark()
        if {"evidence", "attacks"} & set(tables):
            jobs += self.calibration()
        # These come one after the other and take longest: nobody is to hold them up.
        urgent = {*(job.name for job in jobs), "attacks"}
        jobs += [job for table in tables for job in makers[table]()]
        return [replace(job, niceness=0 if job.name in urgent else 10) for job in jobs]


def main(words: Sequence[str] | None = None) -> int:
    """Run all; return 1 where something failed or is still to be done."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, required=True, help="folder of the unmarked model")
    parser.add_argument("--data", type=Path, help="folder with wikitext-2 and the five tasks")
    parser.add_argument("--work", type=Path, required=True, help="keeps what takes long to make")
    parser.add_argument("--out", type=Path, required=True, help="for JSON files and pages")
    parser.add_argument(
        "--tables", type=some_of(TABLES, "table"), default=list(TABLES), help=",".join(TABLES)
    )
    parser.add_argument("--set", nargs="+", default=[], metavar="NAME=JSON", help="for the mark")
    parser.add_argument("--minutes", type=float, help="stop after so long")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--readers", type=int, default=6)
    parser.add_argument("--suite-jobs", type=int, default=10)
    parser.add_argument("--tiny", action="store_true", help="for a tiny model, to try it out")
    arguments = parser.parse_args(words)
    if "fidelity" in arguments.tables and arguments.data is None:
        parser.error("fidelity needs --data")
    for folder in (arguments.work, arguments.out):
        folder.mkdir(parents=True, exist_ok=True)
    plan = Plan(
        arguments.model,
        arguments.data,
        arguments.work,
        arguments.out,
        arguments.device,
        tuple(arguments.set),
        arguments.tiny,
        arguments.readers,
        arguments.suite_jobs,
    )
    # Ended from outside, it ends its jobs, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    seconds = None if arguments.minutes is None else 60 * arguments.minutes
    with shared_gpu() as variables:
        queue = JobQueue(
            plan.jobs(arguments.tables), arguments.work / "logs", {**variables, **ONE_THREAD}
        )
        ended = queue.run(seconds)
    left = [each.name for each in ended if each.status != 0]
    print(f"{len(ended) - len(left)} of {len(ended)} jobs done; left: {', '.join(left) or 'none'}")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
