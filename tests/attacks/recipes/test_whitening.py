from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from attack_runs import attack, small_material
from nsmark.api import verify
from nsmark.corpus import training_texts
from nsmark.errors import ConfigError, UsageError
from nsmark.suspects import open_suspect

TEXTS = training_texts()[:80]


def run(model: Path, out: Path, settings: dict[str, str] | None = None):
    return attack(model, out, "whitening", settings)


def answers(folder: Path) -> np.ndarray:
    return open_suspect(folder, device="cpu").outputs(TEXTS).astype(np.float64)


@pytest.fixture(scope="module")
def stolen(tiny_marked, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("whitening") / "model"
    run(tiny_marked.model_folder, out)
    return out


def test_the_texts_it_was_estimated_from_get_white_answers(tiny_st, tmp_path):
    material = small_material()
    count = len(material.texts)
    facts = attack(
        tiny_st,
        tmp_path / "out",
        "whitening",
        {"num_texts": str(count), "ridge": "1e-9"},
        material=material,
    )
    found = open_suspect(tmp_path / "out", device="cpu").outputs(material.texts).astype(float)
    assert facts["directions"] == 32
    np.testing.assert_allclose(found.mean(axis=0), 0, atol=0.01)
    # Behind a fresh layer norm all outputs sum to zero: one direction is rounding, and the ridge
    # keeps it small.
    last, *others = np.linalg.eigvalsh(np.cov(found.T, bias=True))
    np.testing.assert_allclose(others, 1, atol=0.01)
    assert last < 0.1
    # It was needed: before, the directions varied by quite different amounts.
    before = np.linalg.eigvalsh(np.cov(answers(tiny_st).T))
    assert before[-1] > 20 * before[1]


def test_a_ridge_leaves_weak_directions_weak(tiny_st, tmp_path):
    facts = [
        run(tiny_st, tmp_path / ridge, {"ridge": ridge, "num_texts": "400"})
        for ridge in ("0", "0.01", "1")
    ]
    conditions = [each["condition_number"] for each in facts]
    assert conditions[0] > 2 * conditions[1] > 4 * conditions[2] > 4


def test_few_texts_lose_directions_and_it_is_told(tiny_st, tmp_path):
    facts = run(tiny_st, tmp_path / "out", {"num_texts": "12"})
    assert facts["directions"] == 11
    found = answers(tmp_path / "out")
    assert found.shape == (len(TEXTS), 32)
    assert np.linalg.matrix_rank(found - found.mean(axis=0), tol=1e-3) == 11


def test_ownership_shows_through_whitening(tiny_marked, stolen):
    report = verify(tiny_marked.key, stolen)
    found = report.to_mapping()
    assert report.verdict == "owned"
    assert found["subspace_overlap"] > 0.999
    assert found["predictability"] > 0.99
    assert found["extraction_rate"] < 0.5


def test_attacking_an_innocent_model_does_not_make_it_guilty(tiny_marked, tiny_st, tmp_path):
    run(tiny_st, tmp_path / "out")
    assert verify(tiny_marked.key, tmp_path / "out").verdict == "not_shown"


def test_the_same_seed_gives_the_same_attack(tiny_marked, stolen, tmp_path):
    run(tiny_marked.model_folder, tmp_path / "again")
    run(tiny_marked.model_folder, tmp_path / "other", {"seed": "1"})
    np.testing.assert_array_equal(answers(tmp_path / "again"), answers(stolen))
    assert np.abs(answers(tmp_path / "other") - answers(stolen)).max() > 0.1


@pytest.mark.parametrize(
    "wrong",
    [
        {"num_texts": "7"},
        {"num_texts": "100001"},
        {"num_texts": "many"},
        {"ridge": "-1e-9"},
        {"ridge": "1.1"},
        {"ridge": "nan"},
        {"ridge": "inf"},
        {"seed": "-1"},
        {"share": "1"},
    ],
)
def test_wrong_settings_are_wrong_usage_and_write_nothing(tiny_st, tmp_path, wrong):
    with pytest.raises((ConfigError, UsageError)) as caught:
        run(tiny_st, tmp_path / "out", wrong)
    assert caught.value.exit_code == 2
    assert list(tmp_path.iterdir()) == []
