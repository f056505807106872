"""One trial of the suite: attack, ask, judge."""

from __future__ import annotations

import hashlib
import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nsmark.api.opening import Opening
from nsmark.api.verifying import verify
from nsmark.attacks.expression import parse_attack
from nsmark.attacks.material import Material
from nsmark.attacks.plan import UNTOUCHED
from nsmark.attacks.running import run_attack
from nsmark.attacks.utility import Yield
from nsmark.errors import NsmarkError
from nsmark.keyfile.schema import WatermarkKey
from nsmark.report.report import Report
from nsmark.suspects.recorded import RecordedOutputs

Row = dict[str, Any]


@dataclass(frozen=True)
class Workshop:
    """What all trials of a suite share."""

    key: WatermarkKey
    model: Path
    material: Material
    before: Yield | None = None
    """Of the stolen model, once it was asked."""

    def asked(self, folder: Path) -> Yield:
        """Ask a folder, as it is served, what its use is judged by."""
        suspect = Opening(self.key, self.material.device).open(str(folder))
        assert not isinstance(suspect, RecordedOutputs)  # noqa: S101 - it is a folder
        return Yield.of(lambda asked: suspect.outputs(asked).astype("float64"), self.material.task)

    def digest(self, expression: str) -> str:
        """Return a name for a trial: the same only where all is the same."""
        task = self.material.task
        about = [
            expression,
            self.key.key_id,
            self.key.model_digest,
            hashlib.sha256("\n".join(self.material.texts).encode()).hexdigest(),
            hashlib.sha256("\n".join([*task.train_texts, *task.test_texts]).encode()).hexdigest(),
        ]
        return hashlib.sha256(json.dumps(about).encode()).hexdigest()[:24]

    def try_out(self, expression: str) -> Row:
        """Run a trial; an attack that cannot be run is a row that says why."""
        assert self.before is not None  # noqa: S101 - asked for first
        row: Row = {"attack": expression, "digest": self.digest(expression)}
        started = time.perf_counter()
        try:
            with tempfile.TemporaryDirectory(prefix="nsmark-attack-") as temporary:
                folder, steps = self.model, []
                if expression != UNTOUCHED:
                    folder = Path(temporary) / "stolen"
                    config = self.key.configuration
                    done = run_attack(
                        self.model,
                        parse_attack(expression),
                        folder,
                        self.material,
                        pooling=config.pooling,
                        normalise=config.normalise,
                        max_length=config.max_length,
                    )
                    steps = done["steps"]
                attacked = time.perf_counter()
                report = verify(self.key, str(folder), device=self.material.device)
                utility = self.before.after(self.asked(folder))
        except NsmarkError as error:
            return row | {"error": str(error), "hint": error.hint}
        return (
            row
            | _judged(report)
            | {
                "utility": utility.to_mapping(),
                "seconds": round(attacked - started, 3),
                "seconds_to_measure": round(time.perf_counter() - attacked, 3),
                "steps": steps,
                "error": None,
            }
        )


def _judged(report: Report) -> Row:
    evidence, found = report.evidence, report.to_mapping()
    margin = None
    if evidence is not None and report.calibration is not None:
        margin = report.calibration.margin(evidence.triggered)
    return {
        "verdict": found["verdict"],
        "passed": found["passed"],
        "reasons": found["reasons"],
        "margin": margin,
        "statistics": evidence.triggered.to_mapping() if evidence else None,
        "untriggered": evidence.untriggered.to_mapping() if evidence else None,
        "pair_code": found["pair_code"],
        "output_dim": found["output_dim"],
        "rank": found["rank"],
    }
