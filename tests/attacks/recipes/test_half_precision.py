from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from attack_runs import attack
from nsmark.api import verify
from nsmark.corpus import training_texts
from nsmark.errors import UsageError
from nsmark.suspects import open_suspect

TEXTS = training_texts()[:80]


def run(model: Path, out: Path, settings: dict[str, str] | None = None):
    return attack(model, out, "half-precision", settings)


def answers(folder: Path) -> np.ndarray:
    return open_suspect(folder, device="cpu").outputs(TEXTS).astype(np.float64)


def test_answers_are_what_torch_makes_of_them(tiny_st, tmp_path):
    facts = run(tiny_st, tmp_path / "out")
    before, after = answers(tiny_st), answers(tmp_path / "out")
    expected = torch.tensor(before, dtype=torch.float32).to(torch.bfloat16).double().numpy()
    np.testing.assert_array_equal(after, expected)
    changes = np.abs(after / before - 1)
    assert 0 < changes.max() <= facts["relative_rounding"] == 1 / 256


def test_it_is_done_where_it_stands(tiny_st, tmp_path):
    attack(tiny_st, tmp_path / "after", "half-precision + ll-lfea[kind=conditioned]")
    attack(tiny_st, tmp_path / "before", "ll-lfea[kind=conditioned] + half-precision")
    after, before = (answers(tmp_path / name) for name in ("after", "before"))
    rounded = torch.tensor(before, dtype=torch.bfloat16).double().numpy()
    np.testing.assert_array_equal(before, rounded)
    assert np.abs(after - torch.tensor(after, dtype=torch.bfloat16).double().numpy()).max() > 0
    np.testing.assert_allclose(after, before, atol=0.02)


def test_the_signature_is_read_and_the_match_is_no_longer_exact(tiny_marked, tmp_path):
    run(tiny_marked.model_folder, tmp_path / "out")
    report = verify(tiny_marked.key, tmp_path / "out")
    own = verify(tiny_marked.key, tiny_marked.model_folder)
    assert report.verdict == "owned"
    assert report.evidence.triggered.extraction_rate > 0.9
    degrees = [each.evidence.triggered.invariant_matching_degree for each in (report, own)]
    assert degrees[0] > 10 * degrees[1]


def test_attacking_an_innocent_model_does_not_make_it_guilty(tiny_marked, tiny_st, tmp_path):
    run(tiny_st, tmp_path / "out")
    assert verify(tiny_marked.key, tmp_path / "out").verdict == "not_shown"


def test_it_has_no_settings_and_asking_for_one_writes_nothing(tiny_st, tmp_path):
    with pytest.raises(UsageError, match="unknown setting") as caught:
        run(tiny_st, tmp_path / "out", {"bits": "16"})
    assert caught.value.exit_code == 2
    assert list(tmp_path.iterdir()) == []
