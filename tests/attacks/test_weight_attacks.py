"""Attacks on weights as they are: what each does to them, and in every family."""

from __future__ import annotations

import json
import warnings
from itertools import pairwise

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the torch extra")

import torch
from safetensors.numpy import load_file

from attack_runs import TEXTS, answers, are_other_weights_the_same, attack, matrices, opened
from nsmark.api import verify
from nsmark.attacks.expression import parse_attack
from nsmark.attacks.recipes import layer_dropping
from nsmark.errors import MissingExtraError, ModelError
from nsmark.models.families import FAMILIES
from nsmark.models.folder import POOLINGS, describe_folder, model_digest
from nsmark.models.layers import blocks
from nsmark.models.loading import open_encoder
from tiny_models import FAMILY_CONFIGS, build_family

# --- pruning -------------------------------------------------------------------------------------

SCOPES = ["layer", "global", "feed-forward"]


@pytest.mark.parametrize("scope", SCOPES)
def test_the_smallest_weights_are_zero_and_all_else_stays(attacked, tiny_st, scope):
    folder, facts = attacked(f"pruning[share=0.4,scope={scope}]")
    before, after = opened(tiny_st), opened(folder)
    old, new = matrices(before), matrices(after)
    for name, weight in new.items():
        assert torch.equal(weight[weight != 0], old[name][weight != 0])
    assert are_other_weights_the_same(before, after)
    # Within each group that shares a limit, none that fell was larger than one that stayed.
    groups = {
        "layer": [[name] for name in old],
        "global": [list(old)],
        "feed-forward": [[name] for name in old if name.split(".", 1)[1] == "output.dense.weight"],
    }[scope]
    for group in groups:
        sizes = torch.cat([old[name].abs().flatten() for name in group])
        fell = torch.cat([new[name].flatten() == 0 for name in group])
        assert int(fell.sum()) == int(0.4 * len(sizes))
        assert sizes[fell].max() <= sizes[~fell].min()
    touched = {name for group in groups for name in group}
    assert {name for name in old if not torch.equal(old[name], new[name])} == touched
    assert facts["weights"] == sum(weight.numel() for weight in old.values())
    assert facts["zeros"] == sum(int((weight == 0).sum()) for weight in new.values()) > 0


def test_one_limit_for_all_spares_the_matrices_of_large_weights(tiny_st, tmp_path):
    enlarged = opened(tiny_st)
    name, large = next(iter(matrices(enlarged).items()))
    large *= 100
    enlarged.save(tmp_path / "enlarged")
    shares = {}
    for scope in ("layer", "global"):
        attack(tmp_path / "enlarged", tmp_path / scope, f"pruning[share=0.5,scope={scope}]")
        shares[scope] = (matrices(opened(tmp_path / scope))[name] == 0).float().mean().item()
    assert shares["layer"] == pytest.approx(0.5)
    assert shares["global"] < 0.02


@pytest.mark.parametrize("scope", SCOPES)
def test_shares_are_of_the_whole_and_do_not_add_up(attacked, tiny_st, scope):
    half, more = (f"pruning[share={share},scope={scope}]" for share in ("0.5", "0.7"))
    once = attacked(half).folder
    assert model_digest(once) != model_digest(tiny_st)
    assert model_digest(attacked(f"{half} + {half}").folder) == model_digest(once)
    stepwise, at_once = attacked(f"{half} + {more}").folder, attacked(more).folder
    assert model_digest(stepwise) == model_digest(at_once)


@pytest.mark.parametrize("scope", SCOPES)
def test_decoders_are_pruned_too(tmp_path, scope):
    build_family(tmp_path / "model", "gpt2")
    done = attack(tmp_path / "model", tmp_path / "out", f"pruning[share=0.5,scope={scope}]")
    zero = {
        name: (weight == 0).float().mean().item()
        for name, weight in matrices(opened(tmp_path / "out")).items()
    }
    if scope == "feed-forward":
        names = {"0.mlp.c_proj.weight", "1.mlp.c_proj.weight"}
        assert {name for name, share in zero.items() if share} == names
        assert zero["0.mlp.c_proj.weight"] == pytest.approx(0.5)
    else:
        assert done["zeros"] == done["weights"] // 2
        assert all(zero.values())


@pytest.mark.parametrize("scope", ["global", "feed-forward"])
def test_hardly_pruned_the_mark_stays(tiny_marked, attacked, scope):
    folder = attacked(f"pruning[share=0.01,scope={scope}]", "marked").folder
    assert verify(tiny_marked.key, folder).verdict == "owned"


# --- weight-noise --------------------------------------------------------------------------------


def relative_changes(before, after) -> list[torch.Tensor]:
    old, new = matrices(opened(before)), matrices(opened(after))
    return [((new[name] - old[name]) / old[name].std()).flatten() for name in old]


@pytest.mark.parametrize("share", [0.02, 0.5])
def test_every_matrix_gets_noise_of_its_own_size_and_all_else_stays(attacked, tiny_st, share):
    folder, facts = attacked(f"weight-noise[share={share}]")
    changes = relative_changes(tiny_st, folder)
    for change in changes:
        assert change.std().item() == pytest.approx(share, rel=0.1)
    together = torch.cat(changes) / share
    # Gaussian: no mean, and one in 20 beyond two deviations.
    assert abs(together.mean().item()) < 0.05
    assert (together.abs() > 1.96).float().mean().item() == pytest.approx(0.05, abs=0.01)
    assert are_other_weights_the_same(opened(tiny_st), opened(folder))
    assert facts["weights"] == len(together)


def test_the_same_seed_gives_the_same_noise_at_every_size(attacked, tiny_st):
    small, other, large = (
        torch.cat(relative_changes(tiny_st, attacked(f"weight-noise[{each}]").folder))
        for each in ("share=0.02", "share=0.02,seed=1", "share=0.5")
    )
    assert abs(torch.corrcoef(torch.stack([small, other]))[0, 1].item()) < 0.05
    torch.testing.assert_close(large, 25 * small, rtol=0, atol=1e-3)


def test_decoders_get_noise_too(tmp_path):
    build_family(tmp_path / "model", "llama")
    attack(tmp_path / "model", tmp_path / "out", "weight-noise[share=0.1]")
    for change in relative_changes(tmp_path / "model", tmp_path / "out"):
        assert change.std().item() == pytest.approx(0.1, rel=0.1)


def test_where_nothing_but_noise_is_left_nothing_is_shown(tiny_marked, attacked):
    folder = attacked("weight-noise[share=10]", "marked").folder
    assert verify(tiny_marked.key, folder).verdict == "not_shown"


# --- quantisation --------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
def test_rows_are_rounded_to_the_nearest_level_and_all_else_stays(attacked, tiny_st, bits):
    folder, facts = attacked(f"quantisation[bits={bits}]")
    before, after = opened(tiny_st), opened(folder)
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
    assert facts["relative_error"] == pytest.approx((error / size) ** 0.5, rel=1e-3)
    assert facts["weights"] == sum(weight.numel() for weight in new.values())
    assert are_other_weights_the_same(before, after)


def test_fewer_bits_lose_more(attacked):
    errors = [
        attacked(f"quantisation[bits={bits}]").facts["relative_error"] for bits in (8, 4, 3, 2)
    ]
    assert errors == sorted(errors)
    assert 0 < errors[0] < 0.01 < 0.1 < errors[-1] < 1


def test_rounding_twice_is_rounding_once(attacked):
    four = "quantisation[bits=4]"
    once, twice = (matrices(opened(attacked(e).folder)) for e in (four, f"{four} + {four}"))
    for name, weight in once.items():
        torch.testing.assert_close(twice[name], weight, rtol=1e-6, atol=1e-7)


def test_decoders_are_rounded_too(tmp_path):
    build_family(tmp_path / "model", "gpt2")
    attack(tmp_path / "model", tmp_path / "out", "quantisation[bits=3]")
    for weight in matrices(opened(tmp_path / "out")).values():
        assert all(len(torch.unique(row)) <= 7 for row in weight)


@pytest.mark.parametrize(
    ("how", "bits", "worst"),
    [("torchao", 8, 0.01), ("bitsandbytes", 8, 0.01), ("bitsandbytes", 4, 0.12)],
)
def test_packages_round_too_and_the_folder_stays_an_ordinary_one(
    attacked, tiny_st, how, bits, worst
):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # their imports warn
        pytest.importorskip(how, reason=f"needs the package {how}")
        folder, facts = attacked(f"quantisation[how={how},bits={bits}]")
    before, after = opened(tiny_st), opened(folder)
    old, new = matrices(before), matrices(after)
    assert 0 < facts["relative_error"] < worst
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
    assert are_other_weights_the_same(before, after)


@pytest.mark.parametrize("how", ["torchao", "bitsandbytes"])
def test_a_package_that_is_not_there_is_named_before_anything_is_done(
    tiny_st, tmp_path, how, monkeypatch
):
    monkeypatch.setattr("nsmark.attacks.recipes.quantisation.find_spec", lambda _: None)
    parse_attack(f"quantisation[how={how}]")  # it can be planned
    with pytest.raises(MissingExtraError, match=f"needs the package '{how}'") as caught:
        attack(tiny_st, tmp_path / "out", f"quantisation[how={how}]")
    assert caught.value.exit_code == 3  # as every missing extra
    assert "'.[quantisation]'" in caught.value.hint
    assert list(tmp_path.iterdir()) == []


# --- reinitialisation ----------------------------------------------------------------------------


@pytest.mark.parametrize("layers", [1, 2])
def test_matrices_of_the_last_layers_are_drawn_anew_and_all_else_stays(attacked, tiny_st, layers):
    folder, facts = attacked(f"reinitialisation[layers={layers}]")
    before, after = opened(tiny_st), opened(folder)
    old, new = matrices(before), matrices(after)
    drawn = {name for name in old if int(name.split(".")[0]) >= 2 - layers}
    for name, weight in new.items():
        if name not in drawn:
            assert torch.equal(weight, old[name])
            continue
        assert weight.std().item() == pytest.approx(old[name].std().item(), rel=0.1)
        assert weight.mean().item() == pytest.approx(old[name].mean().item(), abs=0.03)
        pair = torch.stack([weight.flatten(), old[name].flatten()])
        assert abs(torch.corrcoef(pair)[0, 1].item()) < 0.15
    assert are_other_weights_the_same(before, after)
    assert facts["layers"] == 2
    assert facts["weights"] == sum(old[name].numel() for name in drawn)


def test_decoders_are_drawn_anew_too(tmp_path):
    build_family(tmp_path / "model", "llama")
    attack(tmp_path / "model", tmp_path / "out", "reinitialisation")
    old, new = (matrices(opened(tmp_path / name)) for name in ("model", "out"))
    changed = {name for name in old if not torch.equal(old[name], new[name])}
    assert changed == {name for name in old if name.startswith("1.")}


# --- layer-dropping ------------------------------------------------------------------------------


def config_of(folder) -> dict:
    return json.loads((folder / "config.json").read_text(encoding="utf-8"))


def test_what_stays_is_the_model_read_at_an_earlier_layer(tmp_path):
    from transformers import AutoModel

    model = build_family(tmp_path / "model", "bert")
    config = AutoModel.from_pretrained(model).config
    config.num_hidden_layers = 4
    with torch.random.fork_rng():
        torch.manual_seed(0)
        AutoModel.from_config(config).save_pretrained(model)
    done = attack(model, tmp_path / "out", "layer-dropping[layers=3]")
    assert (done["layers_before"], done["layers_after"]) == (4, 1)
    before, after = opened(model), opened(tmp_path / "out")
    kept = dict(after.network.named_parameters())
    for name, weight in before.network.named_parameters():
        dropped = any(name.startswith(f"encoder.layer.{number}.") for number in (1, 2, 3))
        assert dropped != (name in kept)
        if not dropped:
            assert torch.equal(kept[name], weight)
    # What transformers itself gives as the hidden states after the first layer.
    tokens = before.pad(before.token_ids(TEXTS[:8]))
    with torch.no_grad():
        states = before.network(
            input_ids=tokens.input_ids,
            attention_mask=tokens.attention_mask,
            output_hidden_states=True,
        ).hidden_states
    np.testing.assert_allclose(after.encode(TEXTS[:8]), states[1][:, 0].numpy(), atol=1e-5)
    # One by one is at once.
    attack(model, tmp_path / "one by one", " + ".join(["layer-dropping"] * 3))
    assert model_digest(tmp_path / "one by one") == model_digest(tmp_path / "out")


@pytest.mark.parametrize("family", [name for name in FAMILIES if name != "albert"])
def test_the_folder_of_every_family_says_how_many_layers_it_has(tmp_path, family):
    build_family(tmp_path / "model", family)
    before, planned = opened(tmp_path / "model").encode(TEXTS[:4]), config_of(tmp_path / "model")
    attack(tmp_path / "model", tmp_path / "out", "layer-dropping")
    config = config_of(tmp_path / "out")
    names = {"num_hidden_layers", "n_layers", "n_layer"} & config.keys()
    assert {config[name] for name in names} == {1}
    if family in ("modernbert", "qwen3"):  # one entry per layer
        assert config["layer_types"] == planned["layer_types"][:1]
    if family == "deberta-v2":  # two entries, as many as there were layers, but of another meaning
        assert config["pos_att_type"] == FAMILY_CONFIGS[family]["pos_att_type"]
    after = opened(tmp_path / "out")
    assert len(blocks(after.network)) == 1
    assert after.output_dim == before.shape[1]
    assert np.abs(after.encode(TEXTS[:4]) - before).max() > 0.1


def test_a_sentence_transformer_stays_one(attacked, tiny_st):
    folder = attacked("layer-dropping[]").folder
    before, after = (describe_folder(each) for each in (tiny_st, folder))
    assert (after.kind, after.pooling, after.steps) == ("st", before.pooling, before.steps)
    np.testing.assert_allclose(np.linalg.norm(opened(folder).encode(TEXTS), axis=1), 1, atol=1e-5)


def test_models_that_share_one_layer_are_refused(tmp_path):
    build_family(tmp_path / "model", "albert")
    with pytest.raises(ModelError, match="family albert") as caught:
        attack(tmp_path / "model", tmp_path / "out", "layer-dropping")
    assert "one by one" in caught.value.hint
    assert not (tmp_path / "out").exists()


def test_a_model_that_would_not_open_again_is_refused(tiny_bert, tmp_path, monkeypatch):
    monkeypatch.setattr(layer_dropping, "_count_layers", lambda *_: None)
    with pytest.raises(ModelError, match=r"would lack 'encoder\.layer\.1\."):
        attack(tiny_bert, tmp_path / "out", "layer-dropping")
    assert list(tmp_path.iterdir()) == []


# --- pooling-change ------------------------------------------------------------------------------

POOLED = {
    "first": lambda states: states[0],
    "last": lambda states: states[-1],
    "mean": lambda states: states.mean(axis=0),
    "max": lambda states: states.max(axis=0),
}


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("model", ["tiny_bert", "tiny_st"])
def test_the_folder_says_its_pooling_and_keeps_its_weights(request, tmp_path, pooling, model):
    folder = request.getfixturevalue(model)
    done = attack(folder, tmp_path / "out", f"pooling-change[pooling={pooling}]")
    assert done["pooling_before"] == {"tiny_bert": "first", "tiny_st": "mean"}[model]
    assert done["pooling_after"] == pooling
    found = describe_folder(tmp_path / "out")
    assert (found.kind, found.pooling) == ("st", pooling)
    # Unit length where it was, and only there.
    assert found.steps == (("normalise",) if model == "tiny_st" else ())
    before, after = (load_file(f / "model.safetensors") for f in (folder, tmp_path / "out"))
    assert before.keys() == after.keys()
    assert all(np.array_equal(before[name], after[name]) for name in before)
    if model == "tiny_st":
        return
    encoder = opened(tmp_path / "out")
    for text in TEXTS[:4]:
        tokens = encoder.pad(encoder.token_ids([text]))
        with torch.no_grad():
            states = encoder.network(input_ids=tokens.input_ids).last_hidden_state[0].numpy()
        np.testing.assert_allclose(encoder.encode([text])[0], POOLED[pooling](states), atol=1e-5)


def test_a_key_that_reads_bare_models_otherwise_reads_this_one_its_own_way(tiny_bert, tmp_path):
    # The family's own pooling, which a bare folder would leave unsaid.
    attack(tiny_bert, tmp_path / "out", "pooling-change[pooling=first]", pooling="mean")
    wanted = open_encoder(tiny_bert, pooling="first", device="cpu").encode(TEXTS)
    np.testing.assert_allclose(answers(tmp_path / "out", pooling="mean"), wanted, atol=1e-6)


def test_a_bare_model_stays_bare_under_other_attacks(tiny_bert, tmp_path):
    attack(tiny_bert, tmp_path / "out", "pruning[share=0.1]", pooling="mean")
    assert describe_folder(tmp_path / "out").kind == "hf"


@pytest.mark.parametrize("changes", ["ll-lfea[kind=conditioned]", "half-precision"])
def test_further_attacks_work_on_the_new_answers(tiny_bert, tmp_path, changes):
    attack(tiny_bert, tmp_path / "together", f"pooling-change[pooling=mean] + {changes}")
    attack(tiny_bert, tmp_path / "pooled", "pooling-change[pooling=mean]")
    attack(tmp_path / "pooled", tmp_path / "then", changes)
    together, then = (answers(tmp_path / name) for name in ("together", "then"))
    np.testing.assert_allclose(together, then, atol=1e-6)
    assert describe_folder(tmp_path / "together").pooling == "mean"


def test_a_decoder_read_at_its_first_token_says_nothing_of_what_follows(tmp_path):
    build_family(tmp_path / "model", "llama")
    attack(tmp_path / "model", tmp_path / "out", "pooling-change[pooling=first]")
    texts = [f"the {text}" for text in TEXTS[:6]]
    before, after = (opened(tmp_path / name).encode(texts) for name in ("model", "out"))
    assert all(np.abs(a - b).max() > 0.1 for a, b in pairwise(before))
    np.testing.assert_allclose(after, np.tile(after[0], (6, 1)), atol=1e-5)


def test_a_new_pooling_is_read_by_sentence_transformers(tiny_bert, tmp_path):
    attack(tiny_bert, tmp_path / "out", "pooling-change[pooling=max]")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its imports and its reading of older folders warn
        from sentence_transformers import SentenceTransformer

        theirs = SentenceTransformer(str(tmp_path / "out"), device="cpu").encode(list(TEXTS))
    assert np.abs(opened(tmp_path / "out").encode(TEXTS) - theirs).max() < 1e-5


def test_the_pooling_it_had_changes_nothing(attacked, tiny_st):
    folder, facts = attacked("pooling-change[pooling=mean]")
    assert facts["pooling_before"] == facts["pooling_after"] == "mean"
    np.testing.assert_array_equal(answers(folder), answers(tiny_st))


@pytest.mark.parametrize("pooling", ["first", "last"])
def test_no_pooling_marks_an_innocent_model(tiny_marked, attacked, pooling):
    folder = attacked(f"pooling-change[pooling={pooling}]").folder
    assert verify(tiny_marked.key, folder).verdict == "not_shown"
