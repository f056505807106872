from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from attack_runs import attack
from nsmark.api import verify
from nsmark.attacks.recipes.ll_lfea import output_transform
from nsmark.corpus import training_texts
from nsmark.errors import ConfigError, UsageError
from nsmark.suspects import open_suspect

TEXTS = training_texts()[:80]


def run(model: Path, out: Path, settings: dict[str, str] | None = None):
    return attack(model, out, "affine", settings)


def answers(folder: Path) -> np.ndarray:
    return open_suspect(folder, device="cpu").outputs(TEXTS).astype(np.float64)


@pytest.fixture(scope="module")
def stolen(tiny_marked, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("affine") / "model"
    run(tiny_marked.model_folder, out)
    return out


@pytest.mark.parametrize("kind", ["uniform", "conditioned"])
def test_answers_are_the_same_map_plus_the_same_vector(tiny_st, tmp_path, kind):
    facts = run(tiny_st, tmp_path / "out", {"kind": kind, "offset": "2", "seed": "3"})
    matrix = output_transform(kind, 32, 3)
    added = answers(tmp_path / "out") - answers(tiny_st) @ matrix.T
    np.testing.assert_allclose(added, np.tile(added[0], (len(TEXTS), 1)), atol=1e-5)
    length = np.linalg.norm(added[0])
    assert facts["offset_length"] == pytest.approx(length, rel=1e-5)
    # The usual length is that of other texts' answers: near, not equal.
    usual = np.linalg.norm(answers(tiny_st) @ matrix.T, axis=1).mean()
    assert length == pytest.approx(2 * usual, rel=0.1)
    assert facts["condition_number"] == pytest.approx(np.linalg.cond(matrix))


def test_an_offset_of_zero_is_the_linear_map_alone(tiny_st, tmp_path):
    run(tiny_st, tmp_path / "out", {"kind": "conditioned", "offset": "0"})
    mapped = answers(tiny_st) @ output_transform("conditioned", 32, 0).T
    np.testing.assert_allclose(answers(tmp_path / "out"), mapped, atol=1e-5)


def test_what_is_centred_sees_through_it_and_what_is_not_does_not(tiny_marked, stolen):
    report = verify(tiny_marked.key, stolen)
    found = report.to_mapping()
    assert report.verdict == "owned"
    assert found["subspace_overlap"] > 0.999
    assert found["centred_matching_degree"] < 0.1
    # The constant vector is no combination of the owner's rows.
    assert found["invariant_matching_degree"] > 0.3
    assert found["extraction_rate"] < 0.2


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
        {"kind": "from-heads"},
        {"offset": "-0.1"},
        {"offset": "1001"},
        {"offset": "nan"},
        {"offset": "inf"},
        {"seed": "-1"},
        {"seed": "0.5"},
        {"length": "1"},
    ],
)
def test_wrong_settings_are_wrong_usage_and_write_nothing(tiny_st, tmp_path, wrong):
    with pytest.raises((ConfigError, UsageError)) as caught:
        run(tiny_st, tmp_path / "out", wrong)
    assert caught.value.exit_code == 2
    assert list(tmp_path.iterdir()) == []
