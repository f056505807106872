from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from nsmark.errors import ConfigError, ModelError, UsageError
from nsmark.models.loading import open_encoder, resolve_device


@pytest.fixture
def folder(tiny_st, tmp_path) -> Path:
    """A copy to damage."""
    return Path(shutil.copytree(tiny_st, tmp_path / "copy"))


def change_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8")) | changes
    path.write_text(json.dumps(config), encoding="utf-8")


def change_weights(folder: Path, change: Any) -> None:
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


# --- what is never opened ------------------------------------------------------------------------


class Bomb:
    """Unpickling this leaves a file behind."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


@pytest.mark.parametrize("purpose", ["measure", "train"])
def test_pickled_weights_are_refused_unopened(folder, tmp_path, purpose):
    (folder / "model.safetensors").unlink()
    torch.save({"weights": Bomb(tmp_path / "exploded")}, folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match="cannot be opened"):
        open_encoder(folder, device="cpu", purpose=purpose)
    assert not (tmp_path / "exploded").exists()


def test_even_honest_pickled_weights_are_refused(folder):
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="cannot be opened"):
        open_encoder(folder, device="cpu")


def test_sound_weights_win_over_a_pickle_beside_them(folder, tmp_path):
    torch.save({"weights": Bomb(tmp_path / "exploded")}, folder / "pytorch_model.bin")
    assert open_encoder(folder, device="cpu").encode(["a text"]).shape == (1, 32)
    assert not (tmp_path / "exploded").exists()


def test_code_in_the_folder_is_never_run(folder, tmp_path):
    marker = tmp_path / "ran"
    code = f"from pathlib import Path\nPath({str(marker)!r}).touch()\nclass M: pass\n"
    (folder / "modeling_evil.py").write_text(code, encoding="utf-8")
    targets = {"AutoModel": "modeling_evil.M", "AutoConfig": "modeling_evil.M"}
    change_config(folder, auto_map=targets)
    open_encoder(folder, device="cpu")  # a known family is opened by our own class
    change_config(folder, model_type="evil")
    with pytest.raises(ModelError):
        open_encoder(folder, device="cpu")
    assert not marker.exists()


# --- what is damaged -----------------------------------------------------------------------------


def test_missing_weights_are_refused(folder):
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="cannot be opened") as caught:
        open_encoder(folder, device="cpu")
    assert caught.value.hint


def test_truncated_weights_are_refused(folder):
    content = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(content[:-1000])
    with pytest.raises(ModelError):
        open_encoder(folder, device="cpu")


def test_a_missing_tensor_is_named_not_drawn_at_random(folder):
    name = "encoder.layer.1.output.dense.weight"
    change_weights(folder, lambda weights: weights.pop(name))
    with pytest.raises(ModelError, match=r"lacks 1 weights.*encoder\.layer\.1\.output"):
        open_encoder(folder, device="cpu")


def test_a_tensor_of_another_shape_is_refused(folder):
    def shrink(weights):
        weights["encoder.layer.0.output.dense.bias"] = torch.zeros(5)

    change_weights(folder, shrink)
    with pytest.raises(ModelError):
        open_encoder(folder, device="cpu")


@pytest.mark.parametrize("content", ["{", "[]", '{"model": 5}'])
def test_a_damaged_tokenizer_is_refused(folder, content):
    (folder / "tokenizer.json").write_text(content, encoding="utf-8")
    with pytest.raises(ModelError, match="tokenizer"):
        open_encoder(folder, device="cpu")


def test_a_folder_without_a_tokenizer_is_refused(folder):
    """Transformers would make one of five tokens by itself, to which all words are unknown."""
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt"):
        (folder / name).unlink()
    with pytest.raises(ModelError, match="there is no tokenizer"):
        open_encoder(folder, device="cpu")


def test_a_dense_layer_must_fit_what_it_is_given(folder):
    add_dense(folder, torch.zeros(8, 16))
    with pytest.raises(ModelError, match="takes 16 dimensions, but is given 32"):
        open_encoder(folder, device="cpu")


@pytest.mark.parametrize("content", [b"", b"garbage of some length", None])
def test_a_damaged_dense_layer_is_refused(folder, content):
    add_dense(folder, torch.zeros(8, 32))
    file = folder / "3_Dense" / "model.safetensors"
    if content is None:
        save_file({"linear.weight": torch.zeros(9, 32)}, file)
    else:
        file.write_bytes(content)
    with pytest.raises(ModelError, match="dense layer"):
        open_encoder(folder, device="cpu")


def add_dense(folder: Path, weight: torch.Tensor) -> None:
    (folder / "3_Dense").mkdir()
    config = {
        "in_features": weight.shape[1],
        "out_features": weight.shape[0],
        "bias": False,
        "activation_function": "torch.nn.modules.linear.Identity",
    }
    (folder / "3_Dense" / "config.json").write_text(json.dumps(config), encoding="utf-8")
    save_file({"linear.weight": weight}, folder / "3_Dense" / "model.safetensors")
    modules = json.loads((folder / "modules.json").read_text(encoding="utf-8"))
    modules.append({"path": "3_Dense", "type": "sentence_transformers.models.Dense"})
    (folder / "modules.json").write_text(json.dumps(modules), encoding="utf-8")


@pytest.mark.parametrize("name", ["/no/such/folder", "./none", "a/b/c", "no-such-model", "a/b"])
def test_a_model_that_is_not_there_is_refused(name):
    with pytest.raises(ModelError):
        open_encoder(name, device="cpu")


def test_a_family_that_is_not_known_cannot_be_trained(folder):
    change_config(folder, model_type="bloom")
    with pytest.raises(ModelError, match="bloom") as caught:
        open_encoder(folder, purpose="train")
    assert "roberta" in caught.value.hint


# --- how it is read ------------------------------------------------------------------------------


def test_a_bare_transformer_is_read_at_its_first_position(tiny_bert, tiny_st):
    assert open_encoder(tiny_bert, device="cpu").pooling == "first"
    assert open_encoder(tiny_st, device="cpu").pooling == "mean"
    assert open_encoder(tiny_st, pooling="max", device="cpu").pooling == "max"
    bare = open_encoder(tiny_st, ignore_modules=True, device="cpu")
    assert (bare.pooling, bare.normalise) == ("first", False)


def test_the_smallest_limit_on_the_length_counts(folder):
    assert open_encoder(folder, max_length=50, device="cpu").max_length == 50
    assert open_encoder(folder, max_length=1000, device="cpu").max_length == 128  # the folder's
    (folder / "sentence_bert_config.json").unlink()
    assert open_encoder(folder, max_length=1000, device="cpu").max_length == 160  # positions


def test_families_that_skip_positions_are_not_asked_beyond_the_last(tmp_path, tiny_bert):
    from transformers import RobertaConfig, RobertaModel

    folder = shutil.copytree(tiny_bert, tmp_path / "roberta")
    config = RobertaConfig(
        vocab_size=10_000,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        max_position_embeddings=20,
        pad_token_id=0,
    )
    RobertaModel(config, add_pooling_layer=False).save_pretrained(folder)
    encoder = open_encoder(folder, device="cpu")
    assert encoder.max_length == 19  # position 0 belongs to the padding
    assert encoder.encode(["word " * 40]).shape == (1, 8)


@pytest.mark.parametrize("settings", [{"max_length": 0}, {"max_length": -1}, {"pooling": "median"}])
def test_wrong_settings_are_wrong_usage(tiny_st, settings):
    with pytest.raises(ConfigError) as caught:
        open_encoder(tiny_st, device="cpu", **settings)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("device", ["gpu", "", "cpu:x", "meta", "cuda:99"])
def test_a_device_that_is_not_there_is_wrong_usage(device):
    with pytest.raises(UsageError, match="device"):
        resolve_device(device)


def test_the_processor_is_always_there():
    assert resolve_device("cpu").type == "cpu"
    assert resolve_device("auto").type in ("cpu", "cuda")


# --- what is not in the checkpoint ---------------------------------------------------------------


@pytest.mark.parametrize("purpose", ["measure", "train"])
def test_opening_adds_no_random_weights(tiny_st, purpose):
    """A pooler nobody trained would be drawn anew at each opening, and saved with the model."""
    stored = load_file(tiny_st / "model.safetensors")
    for seed in (0, 1):
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            network = open_encoder(tiny_st, device="cpu", purpose=purpose).network
        found = network.state_dict()
        assert set(found) == set(stored)
        assert all(torch.equal(found[name], stored[name]) for name in stored)


def test_a_trained_pooler_is_kept(folder):
    from transformers import BertConfig, BertModel

    config = BertConfig.from_pretrained(folder)
    BertModel(config).save_pretrained(folder)
    network = open_encoder(folder, device="cpu", purpose="train").network
    stored = load_file(folder / "model.safetensors")["pooler.dense.weight"]
    assert torch.equal(network.pooler.dense.weight, stored)


def test_a_language_model_head_is_opened_for_training_only(tiny_mlm, tiny_bert):
    trained = open_encoder(tiny_mlm, device="cpu", purpose="train")
    measured = open_encoder(tiny_mlm, device="cpu")
    assert trained.has_lm_head
    assert not measured.has_lm_head
    assert not open_encoder(tiny_bert, device="cpu", purpose="train").has_lm_head
    texts = ["the same text", "read with and without the head"]
    assert abs(trained.encode(texts) - measured.encode(texts)).max() < 1e-6


def test_a_head_that_is_announced_but_absent_is_not_made_up(tiny_bert, tmp_path):
    folder = shutil.copytree(tiny_bert, tmp_path / "copy")
    change_config(folder, architectures=["BertForMaskedLM"])
    assert not open_encoder(folder, device="cpu", purpose="train").has_lm_head
