from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from attack_runs import attack
from nsmark.api import verify
from nsmark.corpus import training_texts
from nsmark.errors import ConfigError, UsageError
from nsmark.suspects import open_suspect

TEXTS = training_texts()[:80]


def run(model: Path, out: Path, settings: dict[str, str] | None = None):
    return attack(model, out, "dimension-cut", settings)


def answers(folder: Path) -> np.ndarray:
    return open_suspect(folder, device="cpu").outputs(TEXTS).astype(np.float64)


def test_the_first_entries_are_sent_as_they_are(tiny_st, tmp_path):
    facts = run(tiny_st, tmp_path / "out", {"how": "first", "dimensions": "5"})
    np.testing.assert_allclose(answers(tmp_path / "out"), answers(tiny_st)[:, :5], atol=1e-6)
    assert (facts["output_dim"], facts["output_dim_before"]) == (5, 32)


@pytest.mark.parametrize("how", ["principal", "random", "first"])
def test_what_is_sent_is_an_orthogonal_projection(tiny_st, tmp_path, how):
    run(tiny_st, tmp_path / "out", {"how": how})
    before, after = answers(tiny_st), answers(tmp_path / "out")
    assert after.shape == (len(TEXTS), 16)  # half, where nothing is said
    matrix = load_file(tmp_path / "out" / "3_Dense" / "model.safetensors")["linear.weight"]
    np.testing.assert_allclose(before @ matrix.T, after, atol=1e-5)
    np.testing.assert_allclose(matrix @ matrix.T, np.eye(16), atol=1e-5)


def test_principal_directions_keep_the_most_variance(tiny_st, tmp_path):
    kept = {
        how: run(tiny_st, tmp_path / how, {"how": how, "dimensions": "6"})["variance_kept"]
        for how in ("principal", "random", "first")
    }
    assert kept["principal"] > 1.5 * max(kept["random"], kept["first"])
    found = {how: answers(tmp_path / how).var(axis=0).sum() for how in kept}
    total = answers(tiny_st).var(axis=0).sum()
    for how, share in kept.items():
        # On other texts than those that it was told for.
        assert found[how] / total == pytest.approx(share, abs=0.1)


@pytest.mark.parametrize("how", ["principal", "random", "first"])
def test_what_is_left_still_fits_the_null_space(tiny_marked, tmp_path, how):
    run(tiny_marked.model_folder, tmp_path / "out", {"how": how})
    # The calibrated rule would need innocent models cut to the same rank, which this key lacks.
    report = verify(tiny_marked.key, tmp_path / "out", rule="paper")
    found = report.to_mapping()
    assert report.verdict == "owned"
    assert found["output_dim"] == 16
    assert found["extraction_rate"] is None
    assert found["invariant_matching_degree"] < 0.1
    assert found["subspace_overlap"] > 0.999


@pytest.mark.parametrize("rule", ["paper", "calibrated"])
def test_a_cut_does_not_make_an_innocent_model_guilty(tiny_marked, tiny_st, tmp_path, rule):
    run(tiny_st, tmp_path / "out", {"how": "random", "dimensions": "12"})
    assert verify(tiny_marked.key, tmp_path / "out", rule=rule).verdict == "not_shown"


def test_the_same_seed_gives_the_same_attack(tiny_st, tmp_path):
    for name, seed in (("one", "1"), ("again", "1"), ("other", "2")):
        run(tiny_st, tmp_path / name, {"how": "random", "seed": seed})
    one, again, other = (answers(tmp_path / name) for name in ("one", "again", "other"))
    np.testing.assert_array_equal(one, again)
    assert np.abs(one - other).max() > 0.1


def test_a_cut_may_follow_a_cut(tiny_st, tmp_path):
    attack(tiny_st, tmp_path / "out", "dimension-cut[how=first] + dimension-cut[how=first]")
    np.testing.assert_allclose(answers(tmp_path / "out"), answers(tiny_st)[:, :8], atol=1e-6)


@pytest.mark.parametrize(
    "wrong",
    [
        {"dimensions": "-1"},
        {"dimensions": "65537"},
        {"dimensions": "32"},  # all of them
        {"dimensions": "33"},
        {"dimensions": "half"},
        {"how": "last"},
        {"seed": "-1"},
        {"share": "0.5"},
    ],
)
def test_wrong_settings_are_wrong_usage_and_write_nothing(tiny_st, tmp_path, wrong):
    with pytest.raises((ConfigError, UsageError)) as caught:
        run(tiny_st, tmp_path / "out", wrong)
    assert caught.value.exit_code == 2
    assert list(tmp_path.iterdir()) == []
