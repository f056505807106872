from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attack_runs import attack
from nsmark.api import verify
from nsmark.corpus import training_texts
from nsmark.errors import UsageError
from nsmark.models.loading import open_encoder
from nsmark.suspects import open_suspect

TEXTS = training_texts()[:80]


def run(model: Path, out: Path, settings: dict[str, str] | None = None, pooling: str | None = None):
    return attack(model, out, "unit-length", settings, pooling=pooling)


def answers(folder: Path, **how: Any) -> np.ndarray:
    return open_suspect(folder, device="cpu", **how).outputs(TEXTS).astype(np.float64)


def test_every_answer_has_length_one_and_its_old_direction(tiny_bert, tmp_path):
    facts = run(tiny_bert, tmp_path / "out", pooling="mean")
    before = answers(tiny_bert, pooling="mean", normalise=False)
    after = answers(tmp_path / "out")
    lengths = np.linalg.norm(before, axis=1, keepdims=True)
    assert np.abs(lengths - 1).max() > 0.1
    np.testing.assert_allclose(after, before / lengths, atol=1e-6)
    assert facts["usual_length_before"] == pytest.approx(lengths.mean(), rel=0.1)
    assert facts["spread_of_lengths_before"] > 0


def test_it_is_written_as_a_module_that_other_programs_know(tiny_bert, tmp_path):
    run(tiny_bert, tmp_path / "out", pooling="mean")
    assert (tmp_path / "out" / "2_Normalize").is_dir()
    assert not (tmp_path / "out" / "serving.json").exists()
    opened = open_encoder(tmp_path / "out", device="cpu").encode(TEXTS)
    np.testing.assert_allclose(np.linalg.norm(opened, axis=1), 1, atol=1e-6)


def test_answers_of_length_one_stay_as_they_are(tiny_st, tmp_path):
    facts = run(tiny_st, tmp_path / "out")
    np.testing.assert_allclose(answers(tmp_path / "out"), answers(tiny_st), atol=1e-6)
    assert facts["usual_length_before"] == pytest.approx(1, abs=1e-5)
    assert facts["spread_of_lengths_before"] < 1e-5


def test_after_a_map_and_noise_it_is_done_where_it_stands(tiny_st, tmp_path):
    # Behind noise it cannot be a module of the model: the serving files hold it.
    attack(tiny_st, tmp_path / "out", "ll-lfea + output-noise[share=0.01] + unit-length")
    found = answers(tmp_path / "out")
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-6)
    assert (tmp_path / "out" / "serving.json").is_file()


def test_ownership_shows_after_a_map_and_unit_length(tiny_marked, tmp_path):
    # A map followed by unit length is a map and a scale per text, which are found and undone.
    attack(tiny_marked.model_folder, tmp_path / "out", "ll-lfea + unit-length")
    report = verify(tiny_marked.key, tmp_path / "out")
    assert report.verdict == "owned"
    assert report.evidence.triggered.aligned_subspace_overlap > 0.999
    assert report.evidence.triggered.extraction_rate < 0.5


def test_attacking_an_innocent_model_does_not_make_it_guilty(tiny_marked, tiny_st, tmp_path):
    attack(tiny_st, tmp_path / "out", "ll-lfea + unit-length")
    assert verify(tiny_marked.key, tmp_path / "out").verdict == "not_shown"


def test_it_has_no_settings_and_asking_for_one_writes_nothing(tiny_st, tmp_path):
    with pytest.raises(UsageError, match="unknown setting") as caught:
        run(tiny_st, tmp_path / "out", {"length": "2"})
    assert caught.value.exit_code == 2
    assert list(tmp_path.iterdir()) == []
