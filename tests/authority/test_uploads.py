"""Uploaded model folders: what is let in opens, and nothing else is let in."""

import contextlib
import json
import os
import shutil
import struct
import tracemalloc

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import save

from nsmark.errors import ModelError, NsmarkError
from nsmark.models.folder import model_digest
from nsmark_authority.uploads import (
    UploadLimits,
    check_network,
    check_upload,
    check_upload_name,
    wanted_files,
)

QUICK = settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
WEIGHTS = save({"a": np.ones((2, 3), np.float32), "b": np.zeros(4, np.int8)})


def write(folder, files=None, **changes):
    """A folder that is let in, with some files changed; None leaves one out."""
    shutil.rmtree(folder, ignore_errors=True)
    content = {
        "config.json": {"model_type": "bert", "hidden_size": 32},
        "tokenizer.json": {"version": "1.0"},
        "tokenizer_config.json": {"tokenizer_class": "BertTokenizer"},
        "model.safetensors": WEIGHTS,
    }
    for name, value in (content | (files or {}) | changes).items():
        if value is None:
            continue
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(value if isinstance(value, bytes) else json.dumps(value).encode())
    return folder


def container(header, body=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + body


def refused(folder, limits=None):
    with pytest.raises(ModelError) as caught:
        check_upload(folder, limits)
    assert caught.value.hint
    return f"{caught.value} {caught.value.hint}"


def test_a_plain_folder_is_let_in(tmp_path):
    folder = write(tmp_path / "model")

    found = check_upload(folder)

    assert (found.kind, found.model_type, found.num_weights) == ("hf", "bert", 10)
    assert sorted(found.files) == wanted_files(folder)
    assert found.total_bytes == sum(path.stat().st_size for path in folder.iterdir())
    assert found.model_digest == model_digest(folder)


def test_the_digest_names_every_file(tmp_path):
    first = check_upload(write(tmp_path / "model"))
    again = check_upload(write(tmp_path / "again"))
    other = check_upload(write(tmp_path / "other", {"tokenizer.json": {"version": "2"}}))

    assert first.digest == again.digest != other.digest
    assert first.model_digest == other.model_digest


def test_real_folders_are_let_in_and_open(tiny_st, tiny_mlm, tiny_marked, tmp_path):
    from nsmark.models.loading import open_encoder

    for number, source in enumerate((tiny_st, tiny_mlm, tiny_marked.model_folder)):
        target = tmp_path / str(number)
        for name in wanted_files(source):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source / name, target / name)
        found = check_upload(target)
        check_network(found)
        assert found.model_digest == model_digest(source)
        expected = open_encoder(source, device="cpu").encode(["a text"])
        np.testing.assert_array_equal(
            open_encoder(target, device="cpu").encode(["a text"]), expected
        )


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("pytorch_model.bin", "pickle"),
        ("model.pt", "pickle"),
        ("optimizer.PTH", "pickle"),
        ("data.pkl", "pickle"),
        ("modeling_evil.py", "code is not run"),
        ("tokenizer.model", "tokenizer.json"),
        ("model.gguf", "safetensors"),
        ("serving.json", "leave it out"),
        ("serving.safetensors", "leave it out"),
        ("adapter_config.json", "leave it out"),
        ("adapter_model.safetensors", "leave it out"),
        ("chat_template.jinja", "leave it out"),
        (".hidden", "leave it out"),
        ("config.json ", "leave it out"),
        ("CONFIG.JSON", "leave it out"),
        ("model.safetensors\n", "leave it out"),
        ("model-1-of-2.safetensors", "leave it out"),
        ("", "leave it out"),
        ("..", "leave it out"),
        ("../config.json", "sub-folders"),
        ("/etc/config.json", "sub-folders"),
        ("./config.json", "sub-folders"),
        ("1_Pooling/../config.json", "sub-folders"),
        ("1_Pooling/1_Pooling/config.json", "sub-folders"),
        ("1_Pooling//config.json", "sub-folders"),
        ("1_Pooling\\config.json", "leave it out"),
        ("onnx/config.json", "sub-folders"),
        ("１_Pooling/config.json", "sub-folders"),
        ("config.json\0.txt", "leave it out"),
        ("x" * 10_000, "leave it out"),
        ("\ud800", "leave it out"),
    ],
)
def test_names_that_are_not_let_in(name, said):
    with pytest.raises(ModelError) as caught:
        check_upload_name(name)
    assert said in caught.value.hint
    assert str(caught.value).isprintable()


@given(st.text(max_size=40))
def test_names_that_are_let_in_are_harmless(name):
    try:
        check_upload_name(name)
    except ModelError:
        return
    assert name.isascii()
    assert not name.startswith((".", "/"))
    assert ".." not in name


@pytest.mark.parametrize("name", ["evil.py", "pytorch_model.bin", "2_Normalize/x/config.json"])
def test_files_that_have_no_place_are_refused(tmp_path, name):
    assert "no place" in refused(write(tmp_path / "model", {name: b""}))


def test_links_and_pipes_are_refused(tmp_path):
    folder = write(tmp_path / "model", {"tokenizer.json": None})
    (folder / "tokenizer.json").symlink_to("/etc/hostname")
    assert "no plain file" in refused(folder)
    (folder / "tokenizer.json").unlink()
    os.mkfifo(folder / "tokenizer.json")
    assert "no plain file" in refused(folder)
    folder = write(tmp_path / "model")
    (tmp_path / "elsewhere").mkdir()
    (folder / "1_Pooling").symlink_to(tmp_path / "elsewhere")
    assert "no p" in refused(folder)


def test_sizes_are_bounded(tmp_path):
    folder = write(tmp_path / "model", {"vocab.txt": b"x" * 1000})
    assert "bytes" in refused(folder, UploadLimits(max_file_bytes=999))
    assert "bytes" in refused(folder, UploadLimits(max_total_bytes=1200))
    assert "files" in refused(folder, UploadLimits(max_files=4))
    check_upload(folder, UploadLimits(max_files=5, max_file_bytes=1000))
    large = write(tmp_path / "model", {"config.json": b" " * ((1 << 20) + 1)})
    assert "1,048,576 are allowed" in refused(large)


def test_a_sparse_file_of_a_terabyte_is_not_read(tmp_path):
    folder = write(tmp_path / "model")
    with (folder / "tokenizer.json").open("wb") as stream:
        stream.truncate(1 << 40)
    assert "are allowed" in refused(folder)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", {"model_type": "bert", "auto_map": {"AutoModel": "evil.Evil"}}),
        ("config.json", {"model_type": "bert", "text_config": {"auto_map": {"a": "b"}}}),
        ("config.json", {"model_type": "bert", "list": [{"auto_map": {"a": "b"}}]}),
        ("config.json", {"model_type": "bert", "quantization_config": {"quant_method": "gptq"}}),
        ("config.json", {"model_type": "bert", "_attn_implementation": "somebody/kernels"}),
        ("config.json", {"model_type": "bert", "transformers_weights": "../../weights"}),
        ("config.json", {"model_type": "bert", "custom_pipelines": {"x": {"impl": "evil"}}}),
        ("config.json", {"model_type": "bert", "hidden_size": 1 << 40}),
        ("config.json", {"model_type": "bert", "num_hidden_layers": 10**6}),
        ("config.json", {"model_type": "bert", "layer_sizes": [10**9]}),
        ("config.json", {"model_type": "timm_wrapper"}),
        ("config.json", {"model_type": "rag"}),
        ("config.json", {"model_type": ["bert"]}),
        ("config.json", {}),
        ("config.json", []),
        ("config.json", b"\xff\xfe"),
        ("config.json", b"[" * 100_000),
        ("config.json", b'{"a":' * 5_000 + b"1" + b"}" * 5_000),
        ("config.json", b'{"model_type": "bert", "a": ' + b"9" * 5_000 + b"}"),
        ("config.json", b'{"model_type": "bert", "a": ' + b"[" * 30 + b"]" * 30 + b"}"),
        ("config.json", None),
        ("tokenizer_config.json", {"auto_map": {"AutoTokenizer": ["evil.Evil", None]}}),
        ("tokenizer_config.json", {"tokenizer_file": "/etc/passwd"}),
        ("tokenizer_config.json", {"vocab_file": "/etc/passwd"}),
        ("tokenizer_config.json", b"no JSON"),
        ("model.safetensors", None),
        ("modules.json", {"type": "x"}),
        ("modules.json", [{"type": "sentence_transformers.models.Transformer", "path": ".."}]),
        ("model.safetensors.index.json", {"weight_map": {"a": "../other.safetensors"}}),
        ("model.safetensors.index.json", {"weight_map": {"c": "model.safetensors"}}),
        ("model.safetensors.index.json", {"weight_map": {"a": ["model.safetensors"]}}),
        ("model.safetensors.index.json", {"weight_map": []}),
        ("model.safetensors.index.json", []),
    ],
)
def test_settings_that_load_something_else_or_are_malformed_are_refused(tmp_path, name, content):
    refused(write(tmp_path / "model", {name: content}))


def test_settings_that_say_nothing_are_let_in(tmp_path):
    config = {"model_type": "bert", "quantization_config": None, "id2label": {"0": "auto_map"}}
    index = {"weight_map": {"a": "model.safetensors", "b": "model.safetensors"}}
    files = {"config.json": config, "model.safetensors.index.json": index}
    check_upload(write(tmp_path / "model", files))


SPAN = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x80\x04\x95" + b"x" * 100,
        b"PK\x03\x04" + b"x" * 100,
        container({}),
        container(b"{}", length=1 << 60),
        container(b"{}", length=3),
        container(b" {}"),
        container(b"[]"),
        container(b"{"),
        container(b"\xff\xff"),
        container(b'{"a":' * 10_000 + b"1" + b"}" * 10_000),
        container(b'{"a":1,"a":2}'),
        container(b'{"a":NaN}'),
        container({"a": SPAN}, bytes(7)),
        container({"a": SPAN}, bytes(9)),
        container({"a": SPAN, "b": SPAN}, bytes(8)),
        container({"a": SPAN, "b": SPAN | {"data_offsets": [4, 12]}}, bytes(12)),
        container({"a": SPAN, "b": SPAN | {"data_offsets": [12, 20]}}, bytes(20)),
        container({"a": SPAN | {"data_offsets": [8, 0]}}, bytes(8)),
        container({"a": SPAN | {"data_offsets": [-8, 0]}}, bytes(8)),
        container({"a": SPAN | {"data_offsets": [0, 8, 8]}}, bytes(8)),
        container({"a": SPAN | {"data_offsets": [0.0, 8.0]}}, bytes(8)),
        container({"a": SPAN | {"data_offsets": [False, 8]}}, bytes(8)),
        container({"a": SPAN | {"shape": [1 << 62, 1 << 62]}}, bytes(8)),
        container({"a": SPAN | {"shape": [-1, -2]}}, bytes(8)),
        container({"a": SPAN | {"shape": [1] * 9 + [2]}}, bytes(8)),
        container({"a": SPAN | {"shape": "2"}}, bytes(8)),
        container({"a": SPAN | {"dtype": "OBJECT"}}, bytes(8)),
        container({"a": SPAN | {"dtype": ["F32"]}}, bytes(8)),
        container({"a": SPAN | {"extra": 1}}, bytes(8)),
        container({"a": None}, bytes(8)),
        container({"x" * 301: SPAN}, bytes(8)),
        container({"a": SPAN, "__metadata__": {"format": 1}}, bytes(8)),
        container({"a": SPAN, "__metadata__": []}, bytes(8)),
    ],
)
def test_malformed_weights_are_refused(tmp_path, content):
    folder = write(tmp_path / "model", {"model.safetensors": content})
    assert "no valid safetensors file" in refused(folder)


def test_a_giant_header_takes_no_memory(tmp_path):
    folder = write(tmp_path / "model")
    with (folder / "model.safetensors").open("wb") as stream:
        stream.write(struct.pack("<Q", 1 << 30) + b"{")
        stream.truncate((1 << 30) + 8)
    tracemalloc.start()
    try:
        assert "too large" in refused(folder)
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()


sizes = st.integers(-(2**70), 2**70) | st.integers(0, 16)
values = st.recursive(
    st.none() | st.booleans() | sizes | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)
spans = (
    st.fixed_dictionaries(
        {
            "dtype": st.sampled_from(["F32", "F16", "I8", "BOOL", "F8", "f32"]) | values,
            "shape": st.lists(sizes, max_size=3) | values,
            "data_offsets": st.tuples(sizes, sizes).map(list) | values,
        }
    )
    | values
)


@QUICK
@given(
    header=st.dictionaries(st.text(max_size=4) | st.just("__metadata__"), spans, max_size=4),
    body=st.binary(max_size=40),
)
def test_hostile_headers_are_refused_or_good_for_the_library_too(tmp_path, header, body):
    content = container(header, body)
    folder = write(tmp_path / "model", {"model.safetensors": content})
    try:
        check_upload(folder)
    except NsmarkError:
        return
    with safe_open(folder / "model.safetensors", "numpy") as opened:
        for name in opened.keys():  # noqa: SIM118 - not a mapping
            opened.get_slice(name)


shapes = st.lists(st.lists(st.integers(0, 5), max_size=3), min_size=1, max_size=5)


@QUICK
@given(shapes, st.sampled_from([np.float32, np.float16, np.int64, np.uint8]))
def test_what_the_library_writes_is_let_in(tmp_path, shapes, kind):
    tensors = {str(number): np.zeros(shape, kind) for number, shape in enumerate(shapes)}
    folder = write(tmp_path / "model", {"model.safetensors": save(tensors)})
    assert check_upload(folder).num_weights == sum(each.size for each in tensors.values())


@QUICK
@given(st.data())
def test_flipped_bytes_never_crash(tmp_path, data):
    content = bytearray(WEIGHTS)
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(content)))
    folder = write(tmp_path / "model", {"model.safetensors": bytes(content[:cut])})
    with contextlib.suppress(NsmarkError):
        check_upload(folder)


@QUICK
@given(values)
def test_any_json_as_settings_is_refused_or_let_in(tmp_path, value):
    for name in ("config.json", "tokenizer_config.json", "modules.json"):
        content = json.dumps(value).encode()
        with contextlib.suppress(NsmarkError):
            check_upload(write(tmp_path / "model", {name: content}))


@pytest.mark.parametrize(
    "changes",
    [
        {"hidden_size": 65536, "intermediate_size": 262144},
        {"vocab_size": 2_000_000, "hidden_size": 4096},
        {"num_hidden_layers": 900, "hidden_size": 4096},
        {"hidden_size": -1},
        {"hidden_size": "many"},
        {"num_attention_heads": 0},
    ],
)
def test_a_configuration_that_asks_for_more_than_was_uploaded_is_refused(
    tiny_bert, tmp_path, changes
):
    folder = tmp_path / "model"
    shutil.copytree(tiny_bert, folder)
    config = json.loads((folder / "config.json").read_text()) | changes
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match=r"asks for|describes no"):
        check_network(check_upload(folder))
