"""Reports to make pages of: real verifications of handmade keys."""

from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest

from handmade_keys import innocent_outputs, make_key, owner_outputs, pair_outputs
from nsmark.api import verify
from nsmark.keyfile import WatermarkKey
from nsmark.payload import PairConfig
from nsmark.report import Report
from nsmark.report.html import CalibrationFacts, render_calibration, render_html
from nsmark.report.pictures import Pictures
from nsmark.suspects import RecordedOutputs
from nsmark.verification import Decision, Verdict
from nsmark.verification.controls import Control
from nsmark.verification.questions import key_questions
from nsmark.verification.separation import separations
from nsmark.verification.statistics import Statistics
from nsmark.verification.thresholds import calibrate

ASKED = (datetime(2026, 3, 1, 9, 0, tzinfo=UTC), datetime(2026, 3, 1, 9, 4, 30, tzinfo=UTC))


def timed(report: Report) -> Report:
    """Return a report whose times are fixed, so that pages can be compared."""
    return replace(report, asked=ASKED, seconds=12.5)


def noised(outputs: RecordedOutputs, name: str, amount: float) -> RecordedOutputs:
    """Return a stolen model's answers that somebody has tampered with a little."""
    rng = np.random.default_rng(3)
    return RecordedOutputs(
        name,
        outputs.triggered + amount * rng.standard_normal(outputs.triggered.shape),
        outputs.untriggered + amount * rng.standard_normal(outputs.untriggered.shape),
    )


def innocents(key: WatermarkKey, count: int) -> list[RecordedOutputs]:
    """Return innocent models that do not scatter alike: some answer a little like the owner's."""
    found = []
    for seed in range(count):
        outputs = innocent_outputs(key, seed)
        share = 0.6 * seed / count
        found.append(
            RecordedOutputs(
                f"innocent model {seed}",
                outputs.triggered + share * key.owner_triggered,
                outputs.untriggered + share * key.owner_untriggered,
            )
        )
    return found


@pytest.fixture(scope="session")
def page_key() -> WatermarkKey:
    return make_key(num_texts=160, output_dim=32, num_bits=16)


@pytest.fixture(scope="session")
def suspect_answers(page_key) -> RecordedOutputs:
    return noised(owner_outputs(page_key), "openai:https://api.example.com/v1#embed-2", 0.02)


@pytest.fixture(scope="session")
def pictures(page_key, suspect_answers) -> Pictures:
    return Pictures.of(page_key, suspect_answers)


@pytest.fixture(scope="session")
def pair_key() -> WatermarkKey:
    return make_key(pairs=PairConfig(size=12, repeats=3))


SUBSET = 100
"""Texts of the pair code, and so pairs, in the case ``pairs subset``."""


@pytest.fixture(scope="session")
def pair_answers(pair_key) -> dict[str, RecordedOutputs]:
    """What suspects answer who are asked the texts of a pair code, too."""
    own = owner_outputs(pair_key)
    return {
        "pairs": own,
        "pairs shown": own,
        "pairs noisy": replace(own, pair_texts=pair_outputs(pair_key, 0.6)),
        "pairs innocent": innocent_outputs(pair_key),
        "pairs subset": replace(own, pair_texts=own.pair_texts[:SUBSET]),
    }


@pytest.fixture(scope="session")
def pair_pictures(pair_key, pair_answers) -> dict[str, Pictures]:
    """Their pictures; of the planes only one text, since t-SNE takes seconds."""
    found = {}
    for name, answers in pair_answers.items():
        questions = key_questions(pair_key, SUBSET if name == "pairs subset" else None)
        made = Pictures.of(pair_key, answers, questions, show_table=name == "pairs shown")
        planes = {
            field: getattr(made, field)[:1]
            for field in Pictures.__dataclass_fields__
            if field != "pair_table"
        }
        found[name] = replace(made, **planes)
    return found


@pytest.fixture(scope="session")
def pair_reports(pair_key, pair_answers) -> dict[str, Report]:
    """Verifications without controls: only the pair code can accuse."""
    return {
        name: timed(
            verify(
                pair_key,
                answers,
                independent=True,
                num_pair_texts=SUBSET if name == "pairs subset" else None,
            )
        )
        for name, answers in pair_answers.items()
    }


@pytest.fixture(scope="session")
def drawn(pictures, pair_pictures) -> dict[str, Pictures]:
    """The pictures of those pages that have some: they take seconds."""
    return {"calibrated": pictures} | pair_pictures


@pytest.fixture(scope="session")
def reports(page_key, suspect_answers, pair_reports) -> dict[str, Report]:
    """One report for every way a verification can end."""
    controls, constant = innocents(page_key, 14), np.ones((160, 32))
    own, stranger = owner_outputs(page_key), innocent_outputs(page_key, 99)
    found = {
        "calibrated": verify(page_key, suspect_answers, controls=controls),
        "few controls": verify(page_key, suspect_answers, controls=controls[:3]),
        "innocent": verify(page_key, stranger, controls=controls),
        "paper": verify(page_key, own, rule="paper"),
        "independent": verify(page_key, own, independent=True),
        "other dimension": verify(page_key, innocent_outputs(page_key, output_dim=60)),
        "constant": verify(page_key, RecordedOutputs("constant", constant, constant)),
    }
    return {name: timed(report) for name, report in found.items()} | pair_reports


@pytest.fixture(scope="session")
def pages(reports, drawn, calibrations) -> dict[str, str]:
    """The page of each report, and of each calibration."""
    verified = {name: render_html(report, drawn.get(name)) for name, report in reports.items()}
    return verified | {name: render_calibration(facts) for name, facts in calibrations.items()}


def _like(triggered: float, untriggered: float, rate: float = 0.0) -> dict[str, Statistics]:
    """Return what a model measures, from its closeness −log(1 − R²) on both kinds of texts."""

    def statistics(closeness: float, rate: float) -> Statistics:
        value = 1 - float(np.exp(-closeness))
        return Statistics(
            extraction_rate=rate,
            predictability=value,
            aligned_predictability=0.97 * value,
            aligned_subspace_overlap=0.9 * value,
        )

    return {"triggered": statistics(triggered, rate), "untriggered": statistics(untriggered, 0.01)}


# As docs/adr/0011 measured them: triggered and untriggered closeness.
INNOCENT = {
    "as it is": (0.61, 5.3),
    "8-bit weights": (0.60, 5.2),
    **{f"fine-tuned {i}": (0.53 + 0.03 * i, 2.5 + 0.15 * i) for i in (1, 2, 3)},
    "pruned 20%": (0.64, 3.7),
    "pruned 40%": (0.80, 2.0),
    "pruned 50%": (0.82, 1.5),
    **{f"weights + {i}% noise": (0.6 + 0.008 * i, 4.0 - 0.09 * i) for i in (5, 10, 20, 40)},
    **{f"without its last {i} layers": (1.03 + 0.09 * i, 1.2 - 0.14 * i) for i in (1, 2, 3)},
    "last layer drawn anew": (0.9, 1.0),
    "all weights drawn anew": (0.21, 0.03),
    "all weights drawn anew, again": (0.24, -0.02),
    **{f"pooling {how}": (0.5 + 0.05 * i, 0.9) for i, how in enumerate(("first", "last", "max"))},
}
STOLEN = {
    "as it is": (20.0, 20.0, 1.0),
    "fine-tuned 1": (4.7, 3.2, 0.99),
    "fine-tuned 2": (4.9, 3.5, 0.98),
    "pruned 20%": (3.6, 3.9, 0.97),
    "pruned 40%": (1.8, 2.0, 0.41),
    "pruned 50%": (1.33, 1.5, 0.12),
}


@pytest.fixture(scope="session")
def calibrations(page_key) -> dict[str, CalibrationFacts]:
    """Calibrations to make pages of: with thefts, without them, with few controls."""
    controls = [Control(f"reference, {n}", **_like(*v), rank=32) for n, v in INNOCENT.items()]
    thefts = []
    for name, (triggered, untriggered, rate) in STOLEN.items():
        thefts.append(Control(f"marked, {name}", **_like(triggered, untriggered, rate), rank=32))
        mapped = _like(triggered, untriggered, 0.0)
        thefts.append(Control(f"marked, {name} | linear map", **mapped, rank=32))
        noisy = _like(min(triggered, 2.2), min(untriggered, 2.4), 0.0)
        thefts.append(Control(f"marked, {name} | 10 % noise per dimension", **noisy, rank=32))

    def facts(controls, thefts, **further):
        return CalibrationFacts(
            owner="Example Lab",
            calibration=calibrate(controls),
            controls=controls,
            thefts=thefts,
            decisions=[_judged(theft, controls) for theft in thefts],
            separations=separations(controls, thefts) if thefts else [],
            key_id=page_key.key_id,
            former_key_id="ab" * 32,
            key=page_key.public_view(),
            versions={"nsmark": "0.1.0", "torch": None},
            command="nsmark calibrate KEY --identity IDENTITY --reference UNMARKED --out NEW",
            **further,
        )

    reason = "reference, marked by another owner: not made: the targets were not reached"
    return {
        "calibration": facts(controls, thefts, num_cut=80, not_made=[reason]),
        "calibration without thefts": facts(controls, []),
        "calibration of few": facts(controls[:3], thefts[:2]),
        "calibration of one": facts(controls[:1], []),
    }


def _judged(theft: Control, controls: list[Control]) -> Decision:
    lines = calibrate(controls, suspect=theft.untriggered).thresholds
    passed = tuple(line.name for line in lines if line.passed_by(theft.triggered))
    return Decision(Verdict.OWNED if passed else Verdict.NOT_SHOWN, (), passed)
