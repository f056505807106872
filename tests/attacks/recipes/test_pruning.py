from __future__ import annotations

import pytest
import torch

from nsmark.api import verify
from nsmark.errors import ConfigError, UsageError
from nsmark.models.folder import model_digest
from tiny_models import build_family
from weight_attacks import attack, matrices, opened, others

SCOPES = ["layer", "global", "feed-forward"]


def is_last_of_feed_forward(name: str) -> bool:
    return name.split(".", 1)[1] == "output.dense.weight"


@pytest.mark.parametrize("scope", SCOPES)
def test_the_smallest_weights_are_zero_and_all_else_stays(tiny_st, tmp_path, scope):
    done = attack(tiny_st, tmp_path / "out", "pruning", {"share": "0.4", "scope": scope})
    before, after = opened(tiny_st), opened(tmp_path / "out")
    old, new = matrices(before), matrices(after)
    for name, weight in new.items():
        assert torch.equal(weight[weight != 0], old[name][weight != 0])
    assert all(torch.equal(*pair) for pair in zip(others(before), others(after), strict=True))
    # Within each group that shares a limit, none that fell was larger than one that stayed.
    groups = {
        "layer": [[name] for name in old],
        "global": [list(old)],
        "feed-forward": [[name] for name in old if is_last_of_feed_forward(name)],
    }[scope]
    for group in groups:
        sizes = torch.cat([old[name].abs().flatten() for name in group])
        fell = torch.cat([new[name].flatten() == 0 for name in group])
        assert int(fell.sum()) == int(0.4 * len(sizes))
        assert sizes[fell].max() <= sizes[~fell].min()
    touched = {name for group in groups for name in group}
    assert {name for name in old if not torch.equal(old[name], new[name])} == touched
    assert done["weights"] == sum(weight.numel() for weight in old.values())
    assert done["zeros"] == sum(int((weight == 0).sum()) for weight in new.values()) > 0


def test_one_limit_for_all_spares_the_matrices_of_large_weights(tiny_st, tmp_path):
    enlarged = opened(tiny_st)
    name, large = next(iter(matrices(enlarged).items()))
    large *= 100
    enlarged.save(tmp_path / "enlarged")
    shares = {}
    for scope in ("layer", "global"):
        attack(tmp_path / "enlarged", tmp_path / scope, "pruning", {"share": "0.5", "scope": scope})
        shares[scope] = (matrices(opened(tmp_path / scope))[name] == 0).float().mean().item()
    assert shares["layer"] == pytest.approx(0.5)
    assert shares["global"] < 0.02


@pytest.mark.parametrize("scope", SCOPES)
def test_pruning_twice_at_the_same_share_is_pruning_once(tiny_st, tmp_path, scope):
    settings = {"share": "0.5", "scope": scope}
    attack(tiny_st, tmp_path / "once", "pruning", settings)
    attack(tmp_path / "once", tmp_path / "twice", "pruning", settings)
    assert model_digest(tmp_path / "twice") == model_digest(tmp_path / "once")
    assert model_digest(tmp_path / "once") != model_digest(tiny_st)


def test_shares_are_of_the_whole_and_do_not_add_up(tiny_st, tmp_path):
    attack(tiny_st, tmp_path / "half", "pruning", {"share": "0.5"})
    attack(tmp_path / "half", tmp_path / "stepwise", "pruning", {"share": "0.7"})
    attack(tiny_st, tmp_path / "at once", "pruning", {"share": "0.7"})
    assert model_digest(tmp_path / "stepwise") == model_digest(tmp_path / "at once")


@pytest.mark.parametrize("scope", SCOPES)
def test_decoders_are_pruned_too(tmp_path, scope):
    build_family(tmp_path / "model", "gpt2")
    done = attack(tmp_path / "model", tmp_path / "out", "pruning", {"share": "0.5", "scope": scope})
    zero = {
        name: (weight == 0).float().mean().item()
        for name, weight in matrices(opened(tmp_path / "out")).items()
    }
    if scope == "feed-forward":
        assert {name for name, share in zero.items() if share} == {
            "0.mlp.c_proj.weight",
            "1.mlp.c_proj.weight",
        }
        assert zero["0.mlp.c_proj.weight"] == pytest.approx(0.5)
    else:
        assert done["zeros"] == done["weights"] // 2
        assert all(zero.values())


@pytest.mark.parametrize("scope", SCOPES)
def test_hardly_pruned_the_mark_stays_and_innocents_get_none(tiny_marked, tiny_st, tmp_path, scope):
    settings = {"share": "0.01", "scope": scope}
    attack(tiny_marked.model_folder, tmp_path / "marked", "pruning", settings)
    attack(tiny_st, tmp_path / "innocent", "pruning", settings)
    assert verify(tiny_marked.key, tmp_path / "marked").verdict == "owned"
    assert verify(tiny_marked.key, tmp_path / "innocent").verdict == "not_shown"


@pytest.mark.parametrize(
    "wrong",
    [
        {"share": "0"},
        {"share": "1"},
        {"share": "-0.1"},
        {"share": "1.5"},
        {"share": "nan"},
        {"share": "inf"},
        {"share": "half"},
        {"scope": "everything"},
        {"layers": "1"},
    ],
)
def test_wrong_settings_are_wrong_usage_and_write_nothing(tiny_st, tmp_path, wrong):
    with pytest.raises((ConfigError, UsageError)) as caught:
        attack(tiny_st, tmp_path / "out", "pruning", wrong)
    assert caught.value.exit_code == 2
    assert list(tmp_path.iterdir()) == []
