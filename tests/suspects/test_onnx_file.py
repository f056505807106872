"""Every path in an ONNX file is found and held against the folder, before a runtime opens it."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("onnx", reason="needs the dev extra")

import onnx

from nsmark.errors import ModelError
from nsmark.suspects import onnx_file
from nsmark.suspects.onnx_file import FOLLOWED, check_onnx_file, read_references
from tiny_onnx import lookup_model


def external_tensor(location, name="weights"):
    tensor = onnx.TensorProto(name=name, dims=[2], data_type=onnx.TensorProto.FLOAT)
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="offset", value="0")
    tensor.external_data.add(key="location", value=location)
    return tensor


def subgraph(location):
    return onnx.GraphProto(name="inner", initializer=[external_tensor(location)])


def everywhere():
    """A model with weights in other files at every place that can hold a tensor."""
    model = lookup_model()
    model.graph.initializer.append(external_tensor("initializer"))
    sparse = onnx.SparseTensorProto(
        values=external_tensor("sparse-values"), indices=external_tensor("sparse-indices")
    )
    model.graph.sparse_initializer.append(sparse)
    node = model.graph.node.add(op_type="If", output=["x"])
    node.attribute.add(name="t", t=external_tensor("attribute"))
    node.attribute.add(name="ts", tensors=[external_tensor("attributes")])
    node.attribute.add(name="g", g=subgraph("subgraph"))
    node.attribute.add(name="gs", graphs=[subgraph("subgraphs")])
    node.attribute.add(name="s", sparse_tensor=sparse)
    node.attribute.add(name="ss", sparse_tensors=[sparse])
    function = model.functions.add(name="f")
    inner = function.node.add(op_type="Constant")
    inner.attribute.add(name="value", t=external_tensor("function"))
    function.attribute_proto.add(name="default", t=external_tensor("function-default"))
    model.training_info.add(initialization=subgraph("init"), algorithm=subgraph("algorithm"))
    return model


def test_weights_in_other_files_are_found_wherever_they_are_named():
    found = read_references(everywhere().SerializeToString())

    assert found.locations == {
        *("initializer", "sparse-values", "sparse-indices", "attribute", "attributes"),
        *("subgraph", "subgraphs", "function", "function-default", "init", "algorithm"),
    }
    assert {"Gather", "If", "Constant"} == found.operators


def test_every_way_from_a_model_to_a_tensor_is_followed():
    """Our table against the format's own definition."""
    kinds = {name: getattr(onnx, name).DESCRIPTOR for name in FOLLOWED}
    leading = {"TensorProto", *FOLLOWED}
    for name, descriptor in kinds.items():
        if name == "TensorProto":
            continue
        expected = {
            field.number: field.message_type.name
            for field in descriptor.fields
            if field.message_type is not None and field.message_type.name in leading
        }
        assert FOLLOWED[name] == expected, name
    fields = onnx.TensorProto.DESCRIPTOR.fields_by_name
    assert fields["external_data"].number in FOLLOWED["TensorProto"]
    # Other messages of the model hold no tensors themselves.
    for descriptor in kinds.values():
        for field in descriptor.fields:
            inner = field.message_type
            if inner is not None and inner.name not in leading:
                names = {f.message_type.name for f in inner.fields if f.message_type is not None}
                assert not names & leading, inner.name


@pytest.fixture
def write(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret").write_bytes(bytes(8))
    (folder / "inside.bin").write_bytes(bytes(8))
    (folder / "link").symlink_to(tmp_path / "secret")

    def write(location):
        model = lookup_model()
        model.graph.initializer.append(external_tensor(location))
        (folder / "model.onnx").write_bytes(model.SerializeToString())
        return folder / "model.onnx"

    return write


@pytest.mark.parametrize(
    "location",
    ["/etc/passwd", "../secret", "link", "a/../../secret", "", "*/_ORT_MEM_ADDR_/*", "a\0b"],
)
def test_location_outside_the_folder_is_refused(write, location):
    with pytest.raises(ModelError, match="outside its folder"):
        check_onnx_file(write(location))


def test_location_inside_the_folder_is_taken(write):
    assert check_onnx_file(write("inside.bin")).locations == {"inside.bin"}
    with pytest.raises(ModelError, match="missing"):
        check_onnx_file(write("nothing.bin"))


def test_sizes_are_bounded(write, monkeypatch):
    file = write("inside.bin")
    monkeypatch.setattr(onnx_file, "MAX_EXTERNAL_BYTES", 7)
    with pytest.raises(ModelError, match="8 bytes"):
        check_onnx_file(file)
    monkeypatch.setattr(onnx_file, "_MAX_FIELDS", 5)
    with pytest.raises(ModelError, match="too many parts"):
        check_onnx_file(file)
    monkeypatch.setattr(onnx_file, "MAX_MODEL_BYTES", 10)
    with pytest.raises(ModelError, match="bytes"):
        check_onnx_file(file)


def test_graphs_nested_without_end_are_refused():
    content = subgraph("deep").SerializeToString()
    for _ in range(60):
        for number in (6, 5, 1):  # of an attribute, of a node, of a graph
            content = delimited(number, content)
    with pytest.raises(ValueError, match="nested"):
        read_references(delimited(7, content))


def delimited(number, content):
    length, octets = len(content), b""
    while length > 127:
        octets += bytes([128 | length & 127])
        length >>= 7
    return bytes([number << 3 | 2]) + octets + bytes([length]) + content


@settings(max_examples=200, deadline=None)
@given(content=st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(content):
    with contextlib.suppress(ValueError):
        read_references(content)


@settings(max_examples=200, deadline=None)
@given(at=st.integers(0, 400), octet=st.integers(0, 255), cut=st.integers(0, 400))
def test_damaged_models_are_read_or_refused(at, octet, cut):
    content = bytearray(lookup_model(table=np.ones((2, 2), np.float32)).SerializeToString())
    content[at % len(content)] = octet
    with contextlib.suppress(ValueError):
        read_references(bytes(content[: len(content) - cut % len(content)]))
