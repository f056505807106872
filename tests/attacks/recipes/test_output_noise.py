from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from attack_runs import attack
from nsmark.api import verify
from nsmark.corpus import training_texts
from nsmark.errors import ConfigError, UsageError
from nsmark.suspects import open_suspect

TEXTS = training_texts()[:80]


def run(model: Path, out: Path, settings: dict[str, str] | None = None):
    return attack(model, out, "output-noise", settings)


def answers(folder: Path) -> np.ndarray:
    return open_suspect(folder, device="cpu").outputs(TEXTS).astype(np.float64)


MANY = training_texts()[:600]


def noise_in(model: Path, attacked: Path) -> np.ndarray:
    before, after = (open_suspect(f, device="cpu").outputs(MANY) for f in (model, attacked))
    return after.astype(np.float64) - before


@pytest.mark.parametrize("share", [0.02, 0.5])
def test_noise_per_dimension_has_the_size_it_says(tiny_st, tmp_path, share):
    facts = run(tiny_st, tmp_path / "out", {"share": str(share)})
    noise = noise_in(tiny_st, tmp_path / "out")
    spread = open_suspect(tiny_st, device="cpu").outputs(MANY).std(axis=0)
    # Both deviations are estimates, from hundreds of texts each.
    np.testing.assert_allclose(noise.std(axis=0), share * spread, rtol=0.3)
    assert noise.std() == pytest.approx(facts["usual_deviation_of_noise"], rel=0.05)
    np.testing.assert_allclose(noise.mean(axis=0), 0, atol=5 * noise.std() / len(MANY) ** 0.5)


def test_isotropic_noise_is_of_one_size_and_larger(tiny_st, tmp_path):
    run(tiny_st, tmp_path / "out", {"how": "isotropic"})
    noise = noise_in(tiny_st, tmp_path / "out")
    everything = open_suspect(tiny_st, device="cpu").outputs(MANY).std()
    np.testing.assert_allclose(noise.std(axis=0), 0.1 * everything, rtol=0.15)


def test_a_text_asked_again_gets_other_noise(tiny_st, tmp_path):
    run(tiny_st, tmp_path / "out")
    suspect = open_suspect(tmp_path / "out", device="cpu")
    first, second = (suspect.outputs(TEXTS).astype(float) - answers(tiny_st) for _ in range(2))
    assert abs(np.corrcoef(first.ravel(), second.ravel())[0, 1]) < 0.1


def test_noise_is_no_linear_map_and_the_null_space_fits_less_the_more_there_is(
    tiny_marked, tmp_path
):
    degrees = []
    for share in ("0.001", "0.03", "1"):
        run(tiny_marked.model_folder, tmp_path / share, {"share": share})
        report = verify(tiny_marked.key, tmp_path / share)
        degrees.append(report.evidence.triggered.invariant_matching_degree)
    assert degrees[0] * 2 < degrees[1] < degrees[2] / 2


def test_attacking_an_innocent_model_does_not_make_it_guilty(tiny_marked, tiny_st, tmp_path):
    run(tiny_st, tmp_path / "out")
    assert verify(tiny_marked.key, tmp_path / "out").verdict == "not_shown"


def test_the_same_seed_gives_the_same_noise(tiny_st, tmp_path):
    for name, seed in (("one", "1"), ("again", "1"), ("other", "2")):
        run(tiny_st, tmp_path / name, {"seed": seed})
    one, again, other = (answers(tmp_path / name) for name in ("one", "again", "other"))
    np.testing.assert_array_equal(one, again)
    assert np.abs(one - other).max() > 1e-3


@pytest.mark.parametrize(
    "wrong",
    [
        {"share": "0"},
        {"share": "-0.1"},
        {"share": "10.5"},
        {"share": "nan"},
        {"share": "inf"},
        {"how": "uniform"},
        {"seed": "-1"},
        {"size": "1"},
    ],
)
def test_wrong_settings_are_wrong_usage_and_write_nothing(tiny_st, tmp_path, wrong):
    with pytest.raises((ConfigError, UsageError)) as caught:
        run(tiny_st, tmp_path / "out", wrong)
    assert caught.value.exit_code == 2
    assert list(tmp_path.iterdir()) == []
