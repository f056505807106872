from __future__ import annotations

import hashlib
import json
import os
import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from nsmark.errors import ModelError, NsmarkError
from nsmark.models.folder import DenseLayer, describe_folder, model_digest

IDENTITY = "torch.nn.modules.linear.Identity"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The JSON skeleton of a sentence-transformers folder: no weights are needed to describe it."""
    root = tmp_path / "model"
    for sub_folder in ("1_Pooling", "2_Dense"):
        (root / sub_folder).mkdir(parents=True)
    write(root / "config.json", {"model_type": "bert"})
    write(root / "sentence_bert_config.json", {"max_seq_length": 77})
    write(root / "1_Pooling" / "config.json", {"pooling_mode_mean_tokens": True})
    write(root / "2_Dense" / "config.json", dense_config())
    write(root / "modules.json", [module("Transformer", ""), module("Pooling", "1_Pooling")])
    return root


def write(path: Path, document: Any) -> None:
    path.write_text(json.dumps(document), encoding="utf-8")


def module(name: str, path: str) -> dict[str, str]:
    return {"type": f"sentence_transformers.models.{name}", "path": path}


def dense_config(**changes: Any) -> dict[str, Any]:
    plain = {"in_features": 8, "out_features": 4, "bias": False, "activation_function": IDENTITY}
    return plain | changes


def set_modules(folder: Path, *further: dict[str, str], transformer: str = "") -> None:
    first = [module("Transformer", transformer), module("Pooling", "1_Pooling")]
    write(folder / "modules.json", [*first, *further])


# --- what a folder is ----------------------------------------------------------------------------


def test_a_transformers_folder_leaves_pooling_and_length_open(tiny_bert):
    found = describe_folder(tiny_bert)
    assert (found.kind, found.model_type, found.pooling) == ("hf", "bert", None)
    assert (found.steps, found.max_length, found.normalises) == ((), None, False)


def test_a_sentence_transformers_folder_says_how_it_is_read(tiny_st):
    found = describe_folder(tiny_st)
    assert (found.kind, found.model_type, found.pooling) == ("st", "bert", "mean")
    assert (found.steps, found.max_length, found.normalises) == (("normalise",), 128, True)


def test_modules_can_be_ignored_to_read_the_bare_transformer(tiny_st):
    found = describe_folder(tiny_st, ignore_modules=True)
    assert (found.kind, found.pooling, found.steps) == ("hf", None, ())


def test_modules_after_the_pooling_keep_their_order(folder):
    set_modules(folder, module("Normalize", "9"), module("Dense", "2_Dense"))
    found = describe_folder(folder)
    assert found.steps == ("normalise", DenseLayer("2_Dense", 8, 4, False))
    assert not found.normalises  # unit length before a linear map is not unit length after it
    set_modules(folder, module("Dense", "2_Dense"), module("Normalize", "9"))
    assert describe_folder(folder).normalises


def test_the_transformer_may_live_in_a_sub_folder(folder):
    inner = folder / "0_Transformer"
    inner.mkdir()
    for name in ("config.json", "sentence_bert_config.json"):
        (folder / name).rename(inner / name)
    set_modules(folder, transformer="0_Transformer")
    found = describe_folder(folder)
    assert (found.transformer_path, found.max_length) == (inner, 77)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"pooling_mode_cls_token": True}, "first"),
        ({"pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": False}, "mean"),
        ({"pooling_mode_max_tokens": True}, "max"),
        ({"pooling_mode_lasttoken": True}, "last"),
        ({"pooling_mode": "cls"}, "first"),
        ({"pooling_mode": "lasttoken", "embedding_dimension": 8}, "last"),
    ],
)
def test_both_spellings_of_the_pooling_are_read(folder, config, expected):
    write(folder / "1_Pooling" / "config.json", config)
    assert describe_folder(folder).pooling == expected


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": True},
        {"pooling_mode_weightedmean_tokens": True},
        {"pooling_mode_mean_sqrt_len_tokens": True},
        {"pooling_mode": "weightedmean"},
        {"pooling_mode": ["cls", "max"]},
    ],
)
def test_poolings_we_cannot_compute_are_refused(folder, config):
    write(folder / "1_Pooling" / "config.json", config)
    with pytest.raises(ModelError, match="pooling"):
        describe_folder(folder)


# --- folders that want to be trusted too far -----------------------------------------------------


@pytest.mark.parametrize("path", ["..", "../other", "/etc", "1_Pooling/../../other", "a\0b"])
@pytest.mark.parametrize("position", ["transformer", "pooling", "dense"])
def test_modules_that_point_outside_the_folder_are_refused(folder, path, position):
    write(folder.parent / "config.json", {"model_type": "bert"} | dense_config())
    modules = [
        module("Transformer", ""),
        module("Pooling", "1_Pooling"),
        module("Dense", "2_Dense"),
    ]
    modules[["transformer", "pooling", "dense"].index(position)]["path"] = path
    write(folder / "modules.json", modules)
    with pytest.raises(ModelError, match="outside"):
        describe_folder(folder)


def test_a_symbolic_link_out_of_the_folder_is_refused(folder):
    outside = folder.parent / "outside"
    outside.mkdir()
    write(outside / "config.json", {"pooling_mode_mean_tokens": True})
    os.symlink(outside, folder / "linked")
    write(folder / "modules.json", [module("Transformer", ""), module("Pooling", "linked")])
    with pytest.raises(ModelError, match="outside"):
        describe_folder(folder)


@pytest.mark.parametrize("name", ["LSTM", "CNN", "LayerNorm", "WordWeights", "dense", ""])
def test_unknown_modules_are_refused_by_name(folder, name):
    set_modules(folder, module(name, "2_Dense"))
    with pytest.raises(ModelError, match="unknown") as caught:
        describe_folder(folder)
    assert "Dense" in caught.value.hint


@pytest.mark.parametrize(
    "modules",
    [
        [],
        {},
        5,
        None,
        [5],
        ["Transformer"],
        [{"type": "x.Transformer"}],
        [module("Transformer", "")],
        [module("Pooling", "1_Pooling"), module("Transformer", "")],
    ],
)
def test_a_malformed_list_of_modules_is_refused(folder, modules):
    write(folder / "modules.json", modules)
    with pytest.raises(ModelError):
        describe_folder(folder)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b"\x00" * 10])
@pytest.mark.parametrize(
    "name", ["modules.json", "config.json", "1_Pooling/config.json", "sentence_bert_config.json"]
)
def test_files_that_are_no_json_are_refused(folder, name, content):
    (folder / name).write_bytes(content)
    with pytest.raises(ModelError, match="not valid JSON"):
        describe_folder(folder)


@pytest.mark.parametrize(
    "name",
    ["config.json", "1_Pooling/config.json", "2_Dense/config.json", "sentence_bert_config.json"],
)
@pytest.mark.parametrize("document", [[], 5, "text", None])
def test_settings_that_are_no_json_object_are_refused(folder, name, document):
    set_modules(folder, module("Dense", "2_Dense"))
    write(folder / name, document)
    with pytest.raises(ModelError):
        describe_folder(folder)


@pytest.mark.parametrize(
    "changes",
    [
        {"activation_function": "torch.nn.modules.activation.Tanh"},
        {"activation_function": None},
        {"in_features": 0},
        {"in_features": -8},
        {"out_features": 65537},
        {"out_features": "4"},
        {"out_features": True},
        {"in_features": None},
    ],
)
def test_a_dense_layer_that_is_no_plain_linear_map_is_refused(folder, changes):
    set_modules(folder, module("Dense", "2_Dense"))
    write(folder / "2_Dense" / "config.json", dense_config(**changes))
    with pytest.raises(ModelError, match="plain linear map"):
        describe_folder(folder)


@pytest.mark.parametrize("limit", [0, -1, "128", True, None, 1.5])
def test_a_senseless_maximum_length_counts_as_none(folder, limit):
    write(folder / "sentence_bert_config.json", {"max_seq_length": limit})
    assert describe_folder(folder).max_length is None


@pytest.mark.parametrize("name", ["config.json", "1_Pooling/config.json"])
def test_a_missing_file_is_an_error_of_ours(folder, name):
    (folder / name).unlink()
    with pytest.raises(NsmarkError) as caught:
        describe_folder(folder)
    assert caught.value.exit_code == 3
    assert caught.value.hint


def test_what_is_no_model_folder_is_refused(tmp_path):
    (tmp_path / "file").write_text("x", encoding="utf-8")
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "file", tmp_path / "empty", tmp_path / "missing"):
        with pytest.raises(ModelError):
            describe_folder(path)
    write(tmp_path / "empty" / "config.json", {"model_type": 5})
    with pytest.raises(ModelError, match="model_type"):
        describe_folder(tmp_path / "empty")


# --- the digest of a model -----------------------------------------------------------------------

TENSORS = {
    "embeddings": np.arange(6, dtype=np.float32).reshape(2, 3),
    "layer.bias": np.array([1.5, -2.0], dtype=np.float64),
    "ids": np.array([[7]], dtype=np.int64),
}
DTYPES = {"embeddings": b"F32", "layer.bias": b"F64", "ids": b"I64"}


def save(folder: Path, shards: dict[str, list[str]], metadata: dict[str, str] | None = None) -> str:
    shutil.rmtree(folder, ignore_errors=True)
    for file, names in shards.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        save_file({name: TENSORS[name] for name in names}, folder / file, metadata)
    return model_digest(folder)


def test_the_digest_is_the_documented_one(tmp_path):
    expected = hashlib.sha256()
    for name in sorted(TENSORS):
        array = TENSORS[name]
        shape = json.dumps(list(array.shape)).replace(" ", "").encode()
        for part in (name.encode(), DTYPES[name], shape, hashlib.sha256(array.tobytes()).digest()):
            expected.update(len(part).to_bytes(8, "big") + part)
    assert save(tmp_path / "model", {"model.safetensors": list(TENSORS)}) == expected.hexdigest()


def test_the_digest_does_not_depend_on_shards_order_or_metadata(tmp_path):
    one = save(tmp_path / "model", {"model.safetensors": list(TENSORS)})
    split = {"model-1.safetensors": ["ids"], "model-2.safetensors": ["layer.bias", "embeddings"]}
    assert save(tmp_path / "model", split) == one
    swapped = {"model-2.safetensors": ["ids"], "model-1.safetensors": ["embeddings", "layer.bias"]}
    assert save(tmp_path / "model", swapped, {"format": "pt"}) == one


def test_the_digest_names_tensors_by_their_sub_folder(tmp_path):
    flat = save(tmp_path / "model", {"model.safetensors": list(TENSORS)})
    rest = ["embeddings", "layer.bias"]
    nested = save(tmp_path / "model", {"model.safetensors": rest, "2/model.safetensors": ["ids"]})
    assert nested != flat
    other = save(tmp_path / "model", {"model.safetensors": rest, "3/model.safetensors": ["ids"]})
    assert other not in (flat, nested)


def test_every_byte_of_every_tensor_changes_the_digest(tmp_path):
    digests = {save(tmp_path / "model", {"model.safetensors": list(TENSORS)})}
    file = tmp_path / "model" / "model.safetensors"
    content = bytearray(file.read_bytes())
    begin = 8 + int.from_bytes(content[:8], "little")
    for position in range(begin, len(content)):
        content[position] ^= 1
        file.write_bytes(content)
        digests.add(model_digest(tmp_path / "model"))
        content[position] ^= 1
    assert len(digests) == 1 + sum(array.nbytes for array in TENSORS.values())


def raw_file(header: Any, body: bytes) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


def test_name_type_and_shape_of_a_tensor_change_the_digest(tmp_path):
    file = tmp_path / "model.safetensors"
    digests = set()
    for name, dtype, shape in [
        ("a", "F32", [2, 3]),
        ("b", "F32", [2, 3]),
        ("a", "I32", [2, 3]),
        ("a", "F32", [3, 2]),
        ("a", "F32", [6]),
    ]:
        info = {"dtype": dtype, "shape": shape, "data_offsets": [0, 24]}
        file.write_bytes(raw_file({name: info}, bytes(24)))
        digests.add(model_digest(tmp_path))
    assert len(digests) == 5


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x02\x00\x00",
        struct.pack("<Q", 2**63) + b"{}",
        struct.pack("<Q", 100) + b"{}",
        raw_file(b"[]", b""),
        raw_file(b"{", b""),
        raw_file(b"\xff\xff", b""),
        raw_file({"a": 5}, b""),
        raw_file({"a": {"dtype": "F32", "shape": [1]}}, bytes(4)),
        raw_file({"a": {"dtype": "F32", "shape": [9], "data_offsets": [0, 36]}}, bytes(4)),
        raw_file({"a": {"dtype": "F32", "shape": [1], "data_offsets": [-99, -95]}}, bytes(4)),
        raw_file({"a": {"dtype": "F32", "shape": [1], "data_offsets": "ab"}}, bytes(4)),
        raw_file({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0.5, 4]}}, bytes(4)),
        raw_file({"\ud800": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}, bytes(4)),
    ],
)
def test_damaged_weights_have_no_digest(tmp_path, content):
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(ModelError, match="no valid safetensors"):
        model_digest(tmp_path)


@given(data=st.data())
@settings(
    max_examples=50,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_truncated_weights_have_no_digest(tmp_path, data):
    save(tmp_path / "model", {"model.safetensors": list(TENSORS)})
    file = tmp_path / "model" / "model.safetensors"
    content = file.read_bytes()
    file.write_bytes(content[: data.draw(st.integers(0, len(content) - 1))])
    with pytest.raises(ModelError):
        model_digest(tmp_path / "model")


def test_a_folder_without_safetensors_has_no_digest(tmp_path):
    (tmp_path / "pytorch_model.bin").write_bytes(b"weights")
    with pytest.raises(ModelError, match="no safetensors"):
        model_digest(tmp_path)
