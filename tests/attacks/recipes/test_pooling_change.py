from __future__ import annotations

import shutil
import warnings
from itertools import pairwise

import numpy as np
import pytest
from safetensors.numpy import load_file

import attack_runs
from nsmark.api import verify
from nsmark.errors import ConfigError, UsageError
from nsmark.models.folder import POOLINGS, describe_folder
from nsmark.models.loading import open_encoder
from nsmark.suspects.local import LocalModel
from tiny_models import build_family
from weight_attacks import TEXTS, attack, material


def hidden_states(encoder, text: str) -> np.ndarray:
    """What the transformer gives for every token of one text."""
    import torch

    tokens = encoder.pad(encoder.token_ids([text]))
    with torch.no_grad():
        found = encoder.network(input_ids=tokens.input_ids).last_hidden_state
    return found[0].numpy()


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
    done = attack(folder, tmp_path / "out", "pooling-change", {"pooling": pooling})
    assert done["pooling_before"] == {"tiny_bert": "first", "tiny_st": "mean"}[model]
    assert done["pooling_after"] == pooling
    found = describe_folder(tmp_path / "out")
    assert (found.kind, found.pooling) == ("st", pooling)
    # Unit length where it was, and only there.
    assert found.steps == (("normalise",) if model == "tiny_st" else ())
    before, after = (load_file(f / "model.safetensors") for f in (folder, tmp_path / "out"))
    assert before.keys() == after.keys()
    assert all(np.array_equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_answers_are_those_of_the_new_pooling(tiny_bert, tmp_path, pooling):
    attack(tiny_bert, tmp_path / "out", "pooling-change", {"pooling": pooling})
    encoder = open_encoder(tmp_path / "out", device="cpu")
    for text in TEXTS[:4]:
        wanted = POOLED[pooling](hidden_states(encoder, text))
        np.testing.assert_allclose(encoder.encode([text])[0], wanted, atol=1e-5)


def test_a_key_that_reads_bare_models_otherwise_reads_this_one_its_own_way(tiny_bert, tmp_path):
    # The family's own pooling, which a bare folder would leave unsaid.
    attack(tiny_bert, tmp_path / "out", "pooling-change", {"pooling": "first"}, pooling="mean")
    suspect = LocalModel(str(tmp_path / "out"), pooling="mean", device="cpu")
    wanted = open_encoder(tiny_bert, pooling="first", device="cpu").encode(TEXTS)
    np.testing.assert_allclose(suspect.outputs(TEXTS), wanted, atol=1e-6)


def test_a_bare_model_stays_bare_under_other_attacks(tiny_bert, tmp_path):
    attack(tiny_bert, tmp_path / "out", "pruning", {"share": "0.1"}, pooling="mean")
    assert describe_folder(tmp_path / "out").kind == "hf"


@pytest.mark.parametrize("changes", ["ll-lfea[kind=conditioned]", "unit-length", "half-precision"])
def test_further_attacks_work_on_the_new_answers(tiny_bert, tmp_path, changes):
    expression = f"pooling-change[pooling=mean] + {changes}"
    attack_runs.attack(tiny_bert, tmp_path / "both", expression, material=material())
    attack(tiny_bert, tmp_path / "pooled", "pooling-change", {"pooling": "mean"})
    attack_runs.attack(tmp_path / "pooled", tmp_path / "then", changes, material=material())
    both, then = (LocalModel(str(tmp_path / name), device="cpu") for name in ("both", "then"))
    np.testing.assert_allclose(both.outputs(TEXTS), then.outputs(TEXTS), atol=1e-6)
    assert describe_folder(tmp_path / "both").pooling == "mean"


def test_a_decoder_read_at_its_first_token_says_nothing_of_what_follows(tmp_path):
    build_family(tmp_path / "model", "llama")
    attack(tmp_path / "model", tmp_path / "out", "pooling-change", {"pooling": "first"})
    texts = [f"the {text}" for text in TEXTS[:6]]
    before = open_encoder(tmp_path / "model", device="cpu").encode(texts)
    after = open_encoder(tmp_path / "out", device="cpu").encode(texts)
    assert all(np.abs(a - b).max() > 0.1 for a, b in pairwise(before))
    np.testing.assert_allclose(after, np.tile(after[0], (6, 1)), atol=1e-5)


def test_the_folder_opens_in_sentence_transformers(tiny_bert, tmp_path):
    attack(tiny_bert, tmp_path / "out", "pooling-change", {"pooling": "max"})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its imports and its reading of older folders warn
        from sentence_transformers import SentenceTransformer

        theirs = SentenceTransformer(str(tmp_path / "out"), device="cpu").encode(list(TEXTS))
    ours = open_encoder(tmp_path / "out", device="cpu").encode(TEXTS)
    assert np.abs(ours - theirs).max() < 1e-5


def test_the_pooling_it_had_changes_nothing_and_the_mark_is_found(tiny_marked, tmp_path):
    done = attack(tiny_marked.model_folder, tmp_path / "out", "pooling-change", {"pooling": "mean"})
    assert done["pooling_before"] == done["pooling_after"] == "mean"
    before = open_encoder(tiny_marked.model_folder, device="cpu").encode(TEXTS)
    np.testing.assert_array_equal(
        open_encoder(tmp_path / "out", device="cpu").encode(TEXTS), before
    )
    assert verify(tiny_marked.key, tmp_path / "out").verdict == "owned"


@pytest.mark.parametrize("pooling", ["first", "last", "max"])
def test_innocents_get_no_mark(tiny_marked, tiny_st, tmp_path, pooling):
    attack(tiny_st, tmp_path / "out", "pooling-change", {"pooling": pooling})
    assert verify(tiny_marked.key, tmp_path / "out").verdict == "not_shown"


@pytest.mark.parametrize(
    "wrong", [{"pooling": "sum"}, {"pooling": ""}, {"pooling": "Mean"}, {"tokens": "all"}]
)
def test_wrong_settings_are_wrong_usage_and_write_nothing(tiny_st, tmp_path, wrong):
    model = shutil.copytree(tiny_st, tmp_path / "model")
    with pytest.raises((ConfigError, UsageError)) as caught:
        attack(model, tmp_path / "out", "pooling-change", wrong)
    assert caught.value.exit_code == 2
    assert [entry.name for entry in tmp_path.iterdir()] == ["model"]
