"""A control that carries a mark, only not this one."""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace

import pytest

from conftest import TINY_TRAINING
from nsmark.api.calibrating import CalibrationSettings, calibrate_key
from nsmark.corpus import training_texts

NAME = "reference, marked by another owner"
SETTINGS = CalibrationSettings(num_tasks=0, other_owner=True, embedding=TINY_TRAINING)


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """Where temporary folders go, to see what is left of them."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def calibrated(tiny_marked, tiny_st, identity, settings):
    return calibrate_key(
        tiny_marked.key,
        identity,
        tiny_st,
        texts=training_texts()[:2000],
        settings=settings,
        device="cpu",
    )


def test_the_other_owners_model_is_a_control(tiny_marked, tiny_st, identity, temporary):
    found = calibrated(tiny_marked, tiny_st, identity, SETTINGS)

    assert found.not_made == []
    control = next(each for each in found.controls if each.suspect == NAME)
    assert control.triggered.extraction_rate < 0.5
    assert any(each.name == NAME for each in found.key.controls)
    assert list(temporary.iterdir()) == []


def test_a_model_that_could_not_be_marked_costs_only_itself(
    tiny_marked, tiny_st, identity, temporary
):
    settings = replace(SETTINGS, embedding=replace(TINY_TRAINING, max_steps=2))
    found = calibrated(tiny_marked, tiny_st, identity, settings)

    assert len(found.not_made) == 1
    assert found.not_made[0].startswith(f"{NAME}: not made: ")
    assert json.loads(json.dumps(found.to_mapping()))["not_made"] == found.not_made
    assert found.calibration.rate is not None
    assert NAME not in {each.suspect for each in found.controls}
    assert list(temporary.iterdir()) == []
