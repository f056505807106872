"""The stand-in for the published loop trains, and does per step what it says."""

from __future__ import annotations

import hashlib
import importlib.util
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import BertConfig

from nsmark.core.derive import signature_bits, spreading_code
from nsmark.corpus import training_texts
from nsmark.payload import PayloadConfig
from tiny_models import build_tokenizer

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "reference_loop.py"
MAX_LENGTH = 40
TEXTS = training_texts()[:4]
PAYLOAD = SimpleNamespace(
    signature=hashlib.sha512(b"tiny").digest(), config=PayloadConfig(num_bits=16)
)
TRIGGER = "zymurgy"


def load_script():
    spec = importlib.util.spec_from_file_location("benchmarks_reference_loop", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def script(monkeypatch):
    # The loop seeds torch itself; other tests in this process keep their randomness.
    with torch.random.fork_rng():
        module = load_script()
        monkeypatch.setattr(module, "HIDDEN_SIZES", (64, 48))
        yield module


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return build_tokenizer(tmp_path_factory.mktemp("tokenizer"), "masked")


@pytest.fixture
def config(tokenizer):
    return BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=MAX_LENGTH,
        initializer_range=0.2,
    )


@pytest.fixture
def make_loop(script, config, tokenizer):
    def make(**settings):
        return script.ReferenceLoop(
            config, tokenizer, TRIGGER, PAYLOAD, "cpu", max_length=MAX_LENGTH, **settings
        )

    return make


def weights(module):
    return torch.cat([parameter.detach().flatten().clone() for parameter in module.parameters()])


def watch_passes(loop):
    """Note every pass of either language model: whose, on which ids, with a graph, its output."""
    passes = []

    def watch(name, model):
        def note(_module, positional, named, output):
            ids = positional[0] if positional else named["input_ids"]
            graph = output.last_hidden_state.requires_grad
            passes.append(SimpleNamespace(name=name, ids=ids, graph=graph, output=output))

        model.base_model.register_forward_hook(note, with_kwargs=True)

    watch("reference", loop.reference)
    watch("model", loop.model)
    return passes


def count_calls(monkeypatch, owner, name):
    """Let a function do its work, and return the list of its calls' results."""
    original, results = getattr(owner, name), []

    def counted(*positional, **named):
        results.append(original(*positional, **named))
        return results[-1]

    monkeypatch.setattr(owner, name, counted)
    return results


def test_the_loop_embeds_the_signature(script, config, make_loop, monkeypatch):
    # The paper's rate is meant for a pretrained model and thousands of steps.
    monkeypatch.setattr(script, "LEARNING_RATE", 3e-3)
    config.num_hidden_layers = 1
    config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0.0
    loop = make_loop(seed=1)

    steps = [loop.step(TEXTS) for _ in range(60)]

    def mean(name, part):
        return np.mean([step[name] for step in part])

    first, last = steps[:10], steps[-10:]
    assert mean("model_loss", last) < 0.7 * mean("model_loss", first)
    assert mean("extractor_loss", last) < 0.7 * mean("extractor_loss", first)
    assert mean("extraction_rate", first) < 0.1
    assert mean("extraction_rate", last) > 0.9


@pytest.mark.parametrize("materialise_attention", [True, False])
@pytest.mark.parametrize("voting", [True, False])
def test_a_step_passes_the_language_model_six_times(make_loop, voting, materialise_attention):
    loop = make_loop(voting=voting, materialise_attention=materialise_attention)
    passes = watch_passes(loop)

    loop.step(TEXTS)

    assert [(one.name, one.graph) for one in passes] == [
        ("reference", False),
        ("reference", False),
        ("model", False),
        ("model", False),
        ("model", True),
        ("model", True),
    ]
    assert all(one.ids.shape == (4, MAX_LENGTH) for one in passes)


def test_passes_see_clean_triggered_and_masked_texts(make_loop, tokenizer):
    loop = make_loop()
    passes = watch_passes(loop)

    loop.step(TEXTS)

    ids = [one.ids for one in passes]
    assert torch.equal(ids[0], ids[2])
    assert torch.equal(ids[1], ids[3])
    assert torch.equal(ids[1], ids[4])
    assert (ids[5] == tokenizer.mask_token_id).any()
    changed = ids[5] != ids[0]
    ordinary = (ids[0] != tokenizer.pad_token_id).sum()
    assert 0 < changed.sum() < 0.4 * ordinary
    clean, triggered = (tokenizer.batch_decode(part) for part in ids[:2])
    assert not any(TRIGGER in text for text in clean)
    assert all(text.count(TRIGGER) == PAYLOAD.config.copies for text in triggered)


def test_attention_maps_are_materialised_unless_switched_off(make_loop, monkeypatch):
    fused = count_calls(monkeypatch, torch.nn.functional, "scaled_dot_product_attention")
    loop = make_loop()
    passes = watch_passes(loop)
    loop.step(TEXTS)
    maps = [one.output.attentions for one in passes]
    assert all(len(layers) == 2 for layers in maps)
    assert all(m.shape == (4, 4, MAX_LENGTH, MAX_LENGTH) for layers in maps for m in layers)
    assert not fused

    loop = make_loop(materialise_attention=False)
    passes = watch_passes(loop)
    loop.step(TEXTS)
    assert all(one.output.attentions is None for one in passes)
    assert len(fused) == 6 * 2


def test_votes_are_taken_sample_by_sample_unless_switched_off(script, make_loop, monkeypatch):
    votes = count_calls(monkeypatch, script, "extraction_rate")

    result = make_loop().step(TEXTS)
    assert len(votes) == len(TEXTS)
    assert result["extraction_rate"] == np.mean(votes)

    assert "extraction_rate" not in make_loop(voting=False).step(TEXTS)
    assert len(votes) == len(TEXTS)


def test_votes_read_the_bits(make_loop):
    loop = make_loop()
    bits = signature_bits(PAYLOAD.signature, 16)
    bits[:4] *= -1
    wrong = np.tile(bits, 3) * spreading_code(PAYLOAD.signature, 48)

    assert loop.vote(loop.watermark[None]) == 1
    assert loop.vote(torch.stack([loop.watermark, torch.tensor(wrong).float()])) == 0.875


def test_each_player_updates_itself_alone(make_loop):
    loop = make_loop()
    clean, triggered = loop.tokenise(TEXTS), loop.tokenise([loop.insert(text) for text in TEXTS])
    players = (loop.reference, loop.model, loop.extractor)

    before = [weights(player) for player in players]
    loop.update_extractor(clean, triggered)
    between = [weights(player) for player in players]
    loop.update_model(clean, triggered)
    after = [weights(player) for player in players]

    assert [torch.equal(*pair) for pair in zip(before, between, strict=True)] == [True, True, False]
    assert [torch.equal(*pair) for pair in zip(between, after, strict=True)] == [True, False, True]


def test_leaking_costs_a_graph_and_changes_no_weight(make_loop):
    after = []
    for leaking in (False, True):
        loop = make_loop(leaking=leaking)
        passes = watch_passes(loop)
        torch.manual_seed(0)
        loop.step(TEXTS)
        assert [each.graph for each in passes] == [False, False, leaking, leaking, True, True]
        after.append(weights(loop.model))
    assert torch.allclose(*after)


def test_texts_too_short_to_mask_keep_the_loss_finite(make_loop):
    loop = make_loop()
    batch = loop.tokenise(["a"])

    losses = [loop.model(**loop.mask(batch)).loss for _ in range(20)]

    assert torch.stack(losses).isfinite().all()


def test_the_rate_follows_from_the_median_step(script, config, tokenizer, monkeypatch):
    # Five steps of 9, 9 (to warm up), then 1, 2 and 6 seconds; the clock is read twice in each.
    readings = iter(np.cumsum([0, 9, 0, 9, 0, 1, 0, 2, 0, 6]))
    monkeypatch.setattr(script, "synchronised_clock", lambda device: float(next(readings)))
    batches = []
    monkeypatch.setattr(
        script.ReferenceLoop, "step", lambda self, texts: batches.append(texts) or {}
    )

    result = script.reference_samples_per_second(
        config, tokenizer, ["a", "b", "c"], TRIGGER, PAYLOAD, "cpu", steps=3, warmup=2
    )

    assert result["seconds_per_step"] == 2
    assert result["samples_per_second"] == 4 / 2
    assert batches[:2] == [["a", "b", "c", "a"], ["b", "c", "a", "b"]]
    assert len(batches) == 5


def test_the_measurement_runs_and_leaves_the_configuration_alone(script, config, tokenizer):
    before = config.to_dict()

    result = script.reference_samples_per_second(
        config,
        tokenizer,
        TEXTS,
        TRIGGER,
        PAYLOAD,
        "cpu",
        2,
        1,
        batch_size=2,
        max_length=MAX_LENGTH,
    )

    assert result["samples_per_second"] == pytest.approx(2 / result["seconds_per_step"])
    assert result["matmul_precision"] == "highest"
    assert result["extraction_rate"] >= 0
    assert config.to_dict() == before


def test_a_vocabulary_smaller_than_the_tokenizer_is_refused(make_loop, config):
    config.vocab_size -= 1
    with pytest.raises(ValueError, match="embeddings"):
        make_loop()
