"""One trial of the suite: attack, ask, judge."""

from __future__ import annotations

import hashlib
import json
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from nsmark import __version__
from nsmark.api.opening import Opening
from nsmark.api.verifying import verify
from nsmark.attacks.expression import Step, parse_attack
from nsmark.attacks.material import REFERENCE, Material
from nsmark.attacks.plan import UNTOUCHED
from nsmark.attacks.running import run_attack
from nsmark.attacks.utility import Utility, Yield
from nsmark.core.texts import lines_digest
from nsmark.errors import NsmarkError
from nsmark.keyfile.schema import WatermarkKey
from nsmark.keyfile.store import read_key
from nsmark.models.folder import model_digest
from nsmark.suspects.base import Suspect
from nsmark.suspects.recorded import RecordedOutputs

Statistics = Mapping[str, float | None]

_REPORTED = (
    "verdict",
    "passed",
    "reasons",
    "sized_extraction_rate",
    "pair_code",
    "output_dim",
    "rank",
)
"""Fields of a report that a row repeats."""

_ROW_FORMAT = 4
"""Raised whenever rows mean something else: older ones are then not taken for new ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What came of one attack of a suite; what could not be run has an error and a hint alone."""

    attack: str
    """As it is written."""
    digest: str | None = None
    """Name of the trial, the same only where all is the same."""
    verdict: str | None = None
    passed: Sequence[str] = ()
    """Names of what shows ownership."""
    reasons: Sequence[str] = ()
    margin: float | None = None
    """How far the farthest statistic that has controls lies beyond its line."""
    statistics: Statistics | None = None
    """Of triggered texts."""
    untriggered: Statistics | None = None
    sized_extraction_rate: float | None = None
    pair_code: Mapping[str, Any] | None = None
    output_dim: int | None = None
    rank: int | None = None
    utility: Utility | None = None
    seconds: float | None = None
    """That the attack took."""
    seconds_to_measure: float | None = None
    steps: Sequence[dict[str, Any]] = ()
    """What each attack did."""
    other_owners: Sequence[dict[str, Any]] = ()
    """What others can show who marked the model as an attack."""
    error: str | None = None
    hint: str | None = None

    def to_mapping(self) -> dict[str, Any]:
        """Return the row as it is stored."""
        values = asdict(self)
        if self.error is not None:
            return {name: values[name] for name in ("attack", "digest", "error", "hint")}
        del values["hint"]
        return values | {"utility": self.utility and self.utility.to_mapping()}

    @classmethod
    def from_mapping(cls, stored: Mapping[str, Any]) -> Row:
        """Read a stored row; what rows of earlier versions lack is left open."""
        values = {each.name: stored[each.name] for each in fields(cls) if each.name in stored}
        if values.get("utility") is not None:
            values["utility"] = Utility.from_mapping(values["utility"])
        return cls(**values)


@dataclass(frozen=True)
class Workshop:
    """What all trials of a suite share."""

    key: WatermarkKey
    model: Path
    material: Material
    model_digest: str
    """Of that folder."""
    before: Yield | None = None
    """Of the stolen model, once it was asked."""

    def opened(self, folder: Path) -> Suspect:
        """Open a folder as it is served."""
        suspect = Opening(self.key, self.material.device).open(str(folder))
        assert not isinstance(suspect, RecordedOutputs)  # noqa: S101 - it is a folder
        return suspect

    @cached_property
    def _shared(self) -> list[str]:
        """Name what all trials depend on: thousands of texts, read once."""
        task = self.material.task
        return [
            self.key.key_id,
            self.model_digest,
            lines_digest(self.material.texts),
            lines_digest([*task.train_texts, *task.test_texts]),
            lines_digest(map(str, [*task.train_labels, *task.test_labels])),
        ]

    @cached_property
    def _reference_digest(self) -> str | None:
        reference = self.material.reference
        return None if reference is None else model_digest(reference)

    def digest(self, expression: str) -> str:
        """Return a name for a trial: the same only where all is the same."""
        steps = _steps(expression)
        settings = [[step.attack.name, asdict(step.settings)] for step in steps]
        about = [_ROW_FORMAT, __version__, settings, *self._shared]
        if REFERENCE in json.dumps(settings):
            about.append(self._reference_digest)
        return hashlib.sha256(json.dumps(about).encode()).hexdigest()[:24]

    def try_out(self, expression: str) -> Row:
        """Run a trial; an attack that cannot be run is a row that says why."""
        assert self.before is not None  # noqa: S101 - asked for first
        digest = self.digest(expression)
        started = time.perf_counter()
        try:
            with tempfile.TemporaryDirectory(prefix="nsmark-attack-") as temporary:
                folder, done = self._attacked(expression, Path(temporary))
                attacked = time.perf_counter()
                suspect = self.opened(folder)
                report = verify(self.key, suspect, device=self.material.device)
                utility = self.before.after(Yield.of_suspect(suspect, self.material.task))
                others = list(self._other_owners(folder, suspect, done))
        except NsmarkError as error:
            return Row(attack=expression, digest=digest, error=str(error), hint=error.hint)
        except Exception as error:  # whatever it is, the other trials go on
            told = " ".join(str(error).split())[:300]
            return Row(
                attack=expression,
                digest=digest,
                error=f"{type(error).__name__}: {told}",
                hint="run this one alone: nsmark attack run",
            )
        evidence, reported = report.evidence, report.to_mapping()
        margin = None
        if evidence is not None and report.calibration is not None:
            margin = report.calibration.margin(evidence.counted)
        return Row(
            attack=expression,
            digest=digest,
            **{name: reported[name] for name in _REPORTED},
            margin=margin,
            statistics=evidence.triggered.to_mapping() if evidence else None,
            untriggered=evidence.untriggered.to_mapping() if evidence else None,
            utility=utility,
            seconds=round(attacked - started, 3),
            seconds_to_measure=round(time.perf_counter() - attacked, 3),
            steps=done,
            other_owners=others,
        )

    def _attacked(self, expression: str, temporary: Path) -> tuple[Path, list[dict[str, Any]]]:
        """Return the attacked folder, and what was done."""
        if expression == UNTOUCHED:
            return self.model, []
        config = self.key.configuration
        folder = temporary / "stolen"
        done = run_attack(
            self.model,
            parse_attack(expression),
            folder,
            self.material,
            pooling=config.pooling,
            normalise=config.normalise,
            max_length=config.max_length,
        )
        return folder, done["steps"]

    def _other_owners(
        self, folder: Path, suspect: Suspect, steps: list[dict[str, Any]]
    ) -> Iterator[dict[str, Any]]:
        """Yield what others can show who marked the model, and whether they could before."""
        for step in steps:
            if "key" not in step:
                continue
            key, device = read_key(folder / step["key"]), self.material.device
            now, before = verify(key, suspect, device=device), self.opened(self.model)
            reported, evidence = now.to_mapping(), now.evidence
            yield {
                "attack": step["attack"],
                "verdict": reported["verdict"],
                "passed": reported["passed"],
                "statistics": evidence.triggered.to_mapping() if evidence else None,
                "verdict_on_the_stolen_model": str(verify(key, before, device=device).verdict),
            }


def _steps(expression: str) -> list[Step]:
    return [] if expression == UNTOUCHED else parse_attack(expression)
