from __future__ import annotations

import pytest
import torch

from nsmark.api import verify
from nsmark.errors import ConfigError, UsageError
from nsmark.models.folder import model_digest
from tiny_models import build_family
from weight_attacks import attack, matrices, opened, others


def relative_changes(before, after) -> list[torch.Tensor]:
    old, new = matrices(before), matrices(after)
    return [((new[name] - old[name]) / old[name].std()).flatten() for name in old]


@pytest.mark.parametrize("share", [0.02, 0.5])
def test_every_matrix_gets_noise_of_its_own_size_and_all_else_stays(tiny_st, tmp_path, share):
    done = attack(tiny_st, tmp_path / "out", "weight-noise", {"share": str(share)})
    before, after = opened(tiny_st), opened(tmp_path / "out")
    changes = relative_changes(before, after)
    for change in changes:
        assert change.std().item() == pytest.approx(share, rel=0.1)
    together = torch.cat(changes) / share
    # Gaussian: no mean, and one in 20 beyond two deviations.
    assert abs(together.mean().item()) < 0.05
    assert (together.abs() > 1.96).float().mean().item() == pytest.approx(0.05, abs=0.01)
    assert all(torch.equal(*pair) for pair in zip(others(before), others(after), strict=True))
    assert done["weights"] == len(together)


def test_the_same_seed_gives_the_same_noise_at_every_size(tiny_st, tmp_path):
    for name, settings in {
        "first": {},
        "again": {},
        "other": {"seed": "1"},
        "larger": {"share": "0.2"},
    }.items():
        attack(tiny_st, tmp_path / name, "weight-noise", settings)
    assert model_digest(tmp_path / "first") == model_digest(tmp_path / "again")
    found = {
        name: torch.cat(relative_changes(opened(tiny_st), opened(tmp_path / name)))
        for name in ("first", "other", "larger")
    }
    correlation = torch.corrcoef(torch.stack([found["first"], found["other"]]))[0, 1]
    assert abs(correlation.item()) < 0.05
    torch.testing.assert_close(found["larger"], 2 * found["first"], rtol=0, atol=1e-4)


def test_decoders_get_noise_too(tmp_path):
    build_family(tmp_path / "model", "llama")
    attack(tmp_path / "model", tmp_path / "out", "weight-noise", {"share": "0.1"})
    for change in relative_changes(opened(tmp_path / "model"), opened(tmp_path / "out")):
        assert change.std().item() == pytest.approx(0.1, rel=0.1)


def test_little_noise_leaves_the_mark_and_gives_innocents_none(tiny_marked, tiny_st, tmp_path):
    attack(tiny_marked.model_folder, tmp_path / "marked", "weight-noise", {"share": "0.001"})
    attack(tiny_st, tmp_path / "innocent", "weight-noise", {"share": "0.001"})
    assert verify(tiny_marked.key, tmp_path / "marked").verdict == "owned"
    assert verify(tiny_marked.key, tmp_path / "innocent").verdict == "not_shown"


def test_where_nothing_but_noise_is_left_nothing_is_shown(tiny_marked, tmp_path):
    attack(tiny_marked.model_folder, tmp_path / "out", "weight-noise", {"share": "10"})
    assert verify(tiny_marked.key, tmp_path / "out").verdict == "not_shown"


@pytest.mark.parametrize(
    "wrong",
    [
        {"share": "0"},
        {"share": "-1"},
        {"share": "11"},
        {"share": "nan"},
        {"share": "inf"},
        {"seed": "-1"},
        {"seed": str(2**63)},
        {"seed": "one"},
        {"sigma": "1"},
    ],
)
def test_wrong_settings_are_wrong_usage_and_write_nothing(tiny_st, tmp_path, wrong):
    with pytest.raises((ConfigError, UsageError)) as caught:
        attack(tiny_st, tmp_path / "out", "weight-noise", wrong)
    assert caught.value.exit_code == 2
    assert list(tmp_path.iterdir()) == []
