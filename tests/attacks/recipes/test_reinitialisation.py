from __future__ import annotations

import pytest
import torch

from nsmark.api import verify
from nsmark.errors import ConfigError, UsageError
from nsmark.models.folder import model_digest
from tiny_models import build_family
from weight_attacks import attack, matrices, opened, others


@pytest.mark.parametrize("layers", [1, 2])
def test_matrices_of_the_last_layers_are_drawn_anew_and_all_else_stays(tiny_st, tmp_path, layers):
    done = attack(tiny_st, tmp_path / "out", "reinitialisation", {"layers": str(layers)})
    before, after = opened(tiny_st), opened(tmp_path / "out")
    old, new = matrices(before), matrices(after)
    drawn = {name for name in old if int(name.split(".")[0]) >= 2 - layers}
    for name, weight in new.items():
        if name not in drawn:
            assert torch.equal(weight, old[name])
            continue
        assert weight.std().item() == pytest.approx(old[name].std().item(), rel=0.1)
        assert weight.mean().item() == pytest.approx(old[name].mean().item(), abs=0.03)
        both = torch.stack([weight.flatten(), old[name].flatten()])
        assert abs(torch.corrcoef(both)[0, 1].item()) < 0.15
    assert all(torch.equal(*pair) for pair in zip(others(before), others(after), strict=True))
    assert done["layers"] == 2
    assert done["weights"] == sum(old[name].numel() for name in drawn)


def test_the_same_seed_gives_the_same_weights(tiny_st, tmp_path):
    for name, seed in {"first": "0", "again": "0", "other": "1"}.items():
        attack(tiny_st, tmp_path / name, "reinitialisation", {"seed": seed})
    digests = [model_digest(tmp_path / name) for name in ("first", "again", "other")]
    assert digests[0] == digests[1] != digests[2]


def test_decoders_are_drawn_anew_too(tmp_path):
    build_family(tmp_path / "model", "llama")
    attack(tmp_path / "model", tmp_path / "out", "reinitialisation")
    old, new = (matrices(opened(tmp_path / name)) for name in ("model", "out"))
    assert {name for name in old if not torch.equal(old[name], new[name])} == {
        name for name in old if name.startswith("1.")
    }


def test_without_its_layers_nothing_is_shown_nor_of_innocents(tiny_marked, tiny_st, tmp_path):
    attack(tiny_marked.model_folder, tmp_path / "marked", "reinitialisation", {"layers": "2"})
    attack(tiny_st, tmp_path / "innocent", "reinitialisation")
    for name in ("marked", "innocent"):
        assert verify(tiny_marked.key, tmp_path / name).verdict == "not_shown"


@pytest.mark.parametrize(
    "wrong",
    [
        {"layers": "0"},
        {"layers": "-1"},
        {"layers": "3"},  # one more than there are
        {"layers": "all"},
        {"layers": "nan"},
        {"seed": "-1"},
        {"seed": str(2**63)},
        {"scale": "1"},
    ],
)
def test_wrong_settings_are_wrong_usage_and_write_nothing(tiny_st, tmp_path, wrong):
    with pytest.raises((ConfigError, UsageError)) as caught:
        attack(tiny_st, tmp_path / "out", "reinitialisation", wrong)
    assert caught.value.exit_code == 2
    assert list(tmp_path.iterdir()) == []
