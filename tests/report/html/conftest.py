"""Reports to make pages of: real verifications of handmade keys."""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from handmade_keys import innocent_outputs, make_key, owner_outputs
from nsmark.api import verify
from nsmark.keyfile import WatermarkKey
from nsmark.report import Report
from nsmark.report.html import render_html
from nsmark.report.pictures import Pictures
from nsmark.suspects import RecordedOutputs

ASKED = (datetime(2026, 3, 1, 9, 0, tzinfo=UTC), datetime(2026, 3, 1, 9, 4, 30, tzinfo=UTC))


@dataclass(frozen=True, slots=True, kw_only=True)
class FullReport(Report):
    """A report with everything a page can show."""

    asked: Any = None
    key_summary: dict[str, Any] = field(default_factory=dict)
    command: str | None = None


def fill(report: Report, **further: Any) -> FullReport:
    """Return a report with further fields; its times are fixed, so that pages can be compared."""
    values = {name: getattr(report, name) for name in type(report).__dataclass_fields__}
    return FullReport(**(values | {"asked": ASKED, "seconds": 12.5} | further))


def summary(key: WatermarkKey) -> dict[str, Any]:
    """What a key says of itself in public."""
    return {
        "fingerprint": key.signed_claim.public_key.fingerprint,
        "configuration": key.configuration.model_dump(mode="json"),
        "model_sha256": key.model_digest,
        "pool_sha256": key.pool_digest,
        "word_list_sha256": key.word_list_digest,
        "library_version": key.library_version,
    }


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
def reports(page_key, suspect_answers) -> dict[str, FullReport]:
    """One report for every way a verification can end."""
    controls, constant = innocents(page_key, 14), np.ones((160, 32))
    own, stranger = owner_outputs(page_key), innocent_outputs(page_key, 99)
    asked = {
        "started": "2026-03-01 09:00:00",
        "finished": "2026-03-01 09:04:30",
        "num_texts": 160,
        "decoys": 40,
        "repeats": 3,
        "endpoint": "https://api.example.com/v1",
    }
    found = {
        "calibrated": verify(page_key, suspect_answers, controls=controls),
        "few controls": verify(page_key, suspect_answers, controls=controls[:3]),
        "innocent": verify(page_key, stranger, controls=controls),
        "paper": verify(page_key, own, rule="paper"),
        "independent": verify(page_key, own, independent=True),
        "other dimension": verify(page_key, innocent_outputs(page_key, output_dim=60)),
        "constant": verify(page_key, RecordedOutputs("constant", constant, constant)),
    }
    filled = {name: fill(report, key_summary=summary(page_key)) for name, report in found.items()}
    filled["calibrated"] = replace(filled["calibrated"], asked=asked)
    return filled


@pytest.fixture(scope="session")
def pages(reports, pictures) -> dict[str, str]:
    """The page of each report; one of them with pictures, which take seconds."""
    return {
        name: render_html(report, pictures if name == "calibrated" else None)
        for name, report in reports.items()
    }
