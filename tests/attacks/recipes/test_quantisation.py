from __future__ import annotations

import warnings

import pytest
import torch

from nsmark.api import verify
from nsmark.attacks.expression import parse_attack
from nsmark.errors import ConfigError, MissingExtraError, UsageError
from nsmark.models.folder import model_digest
from tiny_models import build_family
from weight_attacks import attack, matrices, opened, others


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
def test_rows_are_rounded_to_the_nearest_level_and_all_else_stays(tiny_st, tmp_path, bits):
    done = attack(tiny_st, tmp_path / "out", "quantisation", {"bits": str(bits)})
    before, after = opened(tiny_st), opened(tmp_path / "out")
    old, new = matrices(before), matrices(after)
    most = 2 ** (bits - 1) - 1
    error = size = 0.0
    for name, weight in new.items():
        step = old[name].abs().amax(dim=1, keepdim=True) / most
        levels = weight / step
        torch.testing.assert_close(levels, levels.round(), rtol=0, atol=1e-4)
        assert (weight - old[name]).abs().le(step * 0.5001).all()
        assert levels.round().abs().amax(dim=1).eq(most).all()
        error += (weight - old[name]).square().sum().item()
        size += old[name].square().sum().item()
    assert done["relative_error"] == pytest.approx((error / size) ** 0.5, rel=1e-3)
    assert done["weights"] == sum(weight.numel() for weight in new.values())
    assert all(torch.equal(*pair) for pair in zip(others(before), others(after), strict=True))


def test_fewer_bits_lose_more(tiny_st, tmp_path):
    errors = [
        attack(tiny_st, tmp_path / bits, "quantisation", {"bits": bits})["relative_error"]
        for bits in "8642"
    ]
    assert errors == sorted(errors)
    assert 0 < errors[0] < 0.01 < 0.1 < errors[-1] < 1


def test_rounding_twice_is_rounding_once(tiny_st, tmp_path):
    attack(tiny_st, tmp_path / "once", "quantisation", {"bits": "4"})
    attack(tmp_path / "once", tmp_path / "twice", "quantisation", {"bits": "4"})
    once, twice = (matrices(opened(tmp_path / name)) for name in ("once", "twice"))
    for name, weight in once.items():
        torch.testing.assert_close(twice[name], weight, rtol=1e-6, atol=1e-7)
    assert model_digest(tmp_path / "once") != model_digest(tiny_st)


def test_decoders_are_rounded_too(tmp_path):
    build_family(tmp_path / "model", "gpt2")
    attack(tmp_path / "model", tmp_path / "out", "quantisation", {"bits": "3"})
    for weight in matrices(opened(tmp_path / "out")).values():
        assert all(len(torch.unique(row)) <= 7 for row in weight)


def test_eight_bits_leave_the_mark_and_give_innocents_none(tiny_marked, tiny_st, tmp_path):
    attack(tiny_marked.model_folder, tmp_path / "marked", "quantisation")
    attack(tiny_st, tmp_path / "innocent", "quantisation")
    assert verify(tiny_marked.key, tmp_path / "marked").verdict == "owned"
    assert verify(tiny_marked.key, tmp_path / "innocent").verdict == "not_shown"


# --- packages ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "bits", "worst"),
    [("torchao", 8, 0.01), ("bitsandbytes", 8, 0.01), ("bitsandbytes", 4, 0.12)],
)
def test_packages_round_too_and_the_folder_stays_an_ordinary_one(
    tiny_st, tmp_path, how, bits, worst
):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # their imports warn
        pytest.importorskip(how, reason=f"needs the package {how}")
        done = attack(tiny_st, tmp_path / "out", "quantisation", {"how": how, "bits": str(bits)})
    before, after = opened(tiny_st), opened(tmp_path / "out")
    old, new = matrices(before), matrices(after)
    assert 0 < done["relative_error"] < worst
    for name, weight in new.items():
        assert weight.dtype == torch.float32
        assert not torch.equal(weight, old[name])
        # By rows, or by blocks of 64 entries; the largest entry of each is a level.
        parts, exact = (each if bits == 8 else each.reshape(-1, 64) for each in (weight, old[name]))
        assert all(len(torch.unique(part)) <= 2**bits for part in parts)
        largest = exact.abs().amax(dim=1, keepdim=True)
        torch.testing.assert_close(
            parts.abs().amax(dim=1, keepdim=True), largest, rtol=5e-3, atol=0
        )
        # Half the largest distance of two levels, of NF4 that of -1 and -0.696; bitsandbytes makes
        # int8 from float16, which may add 2^-11 of an entry.
        half = {8: 0.501 / 127, 4: 0.153}[bits] + (2**-11 if how == "bitsandbytes" else 0)
        assert ((parts - exact).abs() <= half * largest).all()
    assert all(torch.equal(*pair) for pair in zip(others(before), others(after), strict=True))


@pytest.mark.parametrize("how", ["torchao", "bitsandbytes"])
def test_a_package_that_is_not_there_is_named_before_anything_is_done(
    tiny_st, tmp_path, how, monkeypatch
):
    monkeypatch.setattr(
        "nsmark.attacks.recipes.quantisation.find_spec", lambda name: None if name == how else 1
    )
    with pytest.raises(MissingExtraError, match=f"needs the package '{how}'") as caught:
        attack(tiny_st, tmp_path / "out", "quantisation", {"how": how})
    assert caught.value.exit_code == 3  # as every missing extra
    assert "nsmark[quantisation]" in caught.value.hint
    assert list(tmp_path.iterdir()) == []


def test_the_suite_can_be_planned_without_any_package(monkeypatch):
    from nsmark.attacks.recipes.quantisation import RECIPE

    monkeypatch.setattr("nsmark.attacks.recipes.quantisation.find_spec", lambda name: None)
    found = [parse_attack(f"quantisation[{trial}]")[0].settings.how for trial in RECIPE.trials]
    assert set(found) == {"symmetric", "torchao", "bitsandbytes"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"bits": "1"},
        {"bits": "9"},
        {"bits": "-8"},
        {"bits": "4.5"},
        {"bits": "nan"},
        {"how": "magic"},
        {"how": "torchao", "bits": "4"},
        {"how": "bitsandbytes", "bits": "5"},
        {"scale": "1"},
    ],
)
def test_wrong_settings_are_wrong_usage_and_write_nothing(tiny_st, tmp_path, wrong):
    with pytest.raises((ConfigError, UsageError)) as caught:
        attack(tiny_st, tmp_path / "out", "quantisation", wrong)
    assert caught.value.exit_code == 2
    assert list(tmp_path.iterdir()) == []
