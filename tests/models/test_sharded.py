from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from nsmark.corpus import training_texts
from nsmark.errors import ModelError
from nsmark.models.folder import model_digest
from nsmark.models.loading import open_encoder

TEXTS = [*training_texts()[:10], "short"]
INDEX = "model.safetensors.index.json"


def split(folder: Path, target: Path) -> Path:
    """Copy a model folder with its weights in several files."""
    from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

    shutil.copytree(folder, target, ignore=shutil.ignore_patterns("*.safetensors"))
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    is_decoder = config["model_type"] == "llama"
    kind = AutoModelForCausalLM if is_decoder else AutoModelForMaskedLM
    kind.from_pretrained(folder).save_pretrained(target, max_shard_size="20KB")
    return target


def shards(folder: Path) -> list[Path]:
    return sorted(folder.glob("model-*-of-*.safetensors"))


def encode(folder: Path) -> np.ndarray:
    return open_encoder(folder, device="cpu").encode(TEXTS)


@pytest.fixture(scope="module")
def tiny_llama(tmp_path_factory) -> Path:
    pytest.importorskip("torch", reason="needs the torch extra")
    from tiny_models import build_family

    return build_family(tmp_path_factory.mktemp("models") / "llama", "llama")


@pytest.fixture(params=["bert", "llama"])
def whole(request, tiny_mlm, tiny_llama) -> Path:
    return {"bert": tiny_mlm, "llama": tiny_llama}[request.param]


@pytest.fixture
def sharded(whole, tmp_path) -> Path:
    folder = split(whole, tmp_path / "sharded")
    assert len(shards(folder)) > 3
    assert (folder / INDEX).is_file()
    assert not (folder / "model.safetensors").exists()
    return folder


def test_a_sharded_model_is_read_like_the_whole_one(whole, sharded):
    np.testing.assert_array_equal(encode(sharded), encode(whole))
    assert model_digest(sharded) == model_digest(whole)


def test_a_sharded_model_is_trained_with_its_head_and_saved(whole, sharded, tmp_path):
    encoder = open_encoder(sharded, device="cpu", purpose="train")
    assert encoder.has_lm_head
    encoder.save(tmp_path / "saved")
    np.testing.assert_array_equal(encode(tmp_path / "saved"), encode(whole))
    assert model_digest(tmp_path / "saved") == model_digest(whole)


@pytest.mark.parametrize("purpose", ["measure", "train"])
@pytest.mark.parametrize("number", [0, -1])
def test_a_missing_shard_is_an_error_of_ours(sharded, number, purpose):
    shards(sharded)[number].unlink()
    with pytest.raises(ModelError) as caught:
        open_encoder(sharded, device="cpu", purpose=purpose)
    assert caught.value.hint


@pytest.mark.parametrize("purpose", ["measure", "train"])
def test_a_truncated_shard_is_an_error_of_ours(sharded, purpose):
    shard = shards(sharded)[0]
    shard.write_bytes(shard.read_bytes()[:-100])
    with pytest.raises(ModelError):
        open_encoder(sharded, device="cpu", purpose=purpose)
    with pytest.raises(ModelError):
        model_digest(sharded)


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"weight_map": 5}'])
def test_a_damaged_index_is_an_error_of_ours(sharded, content):
    (sharded / INDEX).write_text(content, encoding="utf-8")
    with pytest.raises(ModelError):
        open_encoder(sharded, device="cpu")


def test_a_shard_the_index_does_not_name_leaves_weights_missing(sharded):
    index = json.loads((sharded / INDEX).read_text(encoding="utf-8"))
    dropped = next(v for k, v in index["weight_map"].items() if "embed" in k)
    index["weight_map"] = {k: v for k, v in index["weight_map"].items() if v != dropped}
    (sharded / INDEX).write_text(json.dumps(index), encoding="utf-8")
    with pytest.raises(ModelError):
        open_encoder(sharded, device="cpu")
