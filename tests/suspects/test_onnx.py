"""ONNX models as suspects: read like the folder they were exported from, and never trusted."""

from __future__ import annotations

import shutil
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="needs the onnx extra")
pytest.importorskip("onnx", reason="needs the dev extra")
pytest.importorskip("torch", reason="exports need the torch extra")

import onnx

from nsmark.api import verify
from nsmark.errors import ConfigError, MissingExtraError, ModelError
from nsmark.suspects import open_suspect
from nsmark.verification import measure
from processes import PATIENCE
from tiny_onnx import (
    copy_tokenizer,
    embedding_table,
    export_transformer,
    lookup_model,
    quantise,
)

TEXTS = [
    "the quick fox",
    "a much longer text that comes second and is cut by nobody",
    "one",
    "the quick fox",
]


@pytest.fixture(scope="module")
def exported(tiny_bert, tmp_path_factory):
    return export_transformer(tiny_bert, tmp_path_factory.mktemp("onnx") / "plain")


@pytest.fixture(scope="module")
def exported_int8(exported):
    return quantise(exported)


@pytest.fixture(scope="module")
def exported_marked(tiny_marked, tmp_path_factory):
    return export_transformer(tiny_marked.model_folder, tmp_path_factory.mktemp("onnx") / "marked")


@pytest.fixture
def save(tiny_bert, tmp_path):
    """Save a model made by hand beside a tokenizer, and return its file."""
    copy_tokenizer(tiny_bert, tmp_path)

    def write(model, name="model.onnx"):
        file = tmp_path / name
        file.write_bytes(model if isinstance(model, bytes) else model.SerializeToString())
        return file

    return write


# --- what is read ---


@pytest.mark.parametrize("pooling", ["first", "last", "mean", "max"])
@pytest.mark.parametrize("normalise", [False, True])
def test_export_answers_like_its_folder(exported, tiny_bert, pooling, normalise):
    reading = {"pooling": pooling, "normalise": normalise, "device": "cpu"}
    suspect = open_suspect(f"onnx:{exported}", **reading)

    outputs = suspect.outputs(TEXTS)

    assert suspect.name == f"onnx:{exported}"
    assert outputs.dtype == np.float32
    folder = open_suspect(f"hf:{tiny_bert}", **reading)
    np.testing.assert_allclose(outputs, folder.outputs(TEXTS), atol=1e-4)


def test_bare_onnx_file_is_opened_as_what_it_is(exported):
    assert open_suspect(exported).name == f"onnx:{exported}"


@pytest.mark.parametrize("kind", ["exported", "exported_int8"])
def test_rows_answer_their_texts_whatever_stands_beside_them(kind, request):
    suspect = open_suspect(f"onnx:{request.getfixturevalue(kind)}", pooling="mean")

    together = suspect.outputs(TEXTS)

    assert np.abs(together[0] - together[1]).max() > 0.01
    np.testing.assert_allclose(together[0], together[3], atol=1e-6)
    np.testing.assert_allclose(suspect.outputs(TEXTS[::-1]), together[::-1], atol=1e-5)
    for row, text in zip(together, TEXTS, strict=True):
        np.testing.assert_allclose(suspect.outputs([text])[0], row, atol=1e-5)


def test_int8_model_is_accepted_and_answers_nearly_the_same(exported, exported_int8):
    plain = open_suspect(f"onnx:{exported}", pooling="mean").outputs(TEXTS)
    int8 = open_suspect(f"onnx:{exported_int8}", pooling="mean").outputs(TEXTS)

    assert 0 < np.abs(int8 - plain).max() < 0.1 * np.abs(plain).max()


def test_progress_is_told_up_to_the_last_text(exported):
    told = []

    open_suspect(exported).outputs(TEXTS * 100, lambda *counts: told.append(counts))

    assert told[-1] == (400, 400)
    assert len(told) > 1
    assert [done for done, _ in told] == sorted({done for done, _ in told})


def test_long_texts_are_cut(exported):
    suspect = open_suspect(exported, pooling="mean", max_length=1000)  # the model has 160 positions
    long = "many words " * 500

    np.testing.assert_array_equal(suspect.outputs([long]), suspect.outputs([long + "and more"]))
    short = open_suspect(exported, pooling="mean", max_length=8)
    assert np.abs(short.outputs([long]) - suspect.outputs([long])).max() > 1e-3


def test_tokenizer_may_lie_in_the_parent_or_be_named(exported, tmp_path):
    expected = open_suspect(exported).outputs(TEXTS)
    copy_tokenizer(exported.parent, tmp_path / "model")
    for name in ("model/onnx", "elsewhere/deep/onnx"):
        (tmp_path / name).mkdir(parents=True)
        shutil.copy(exported, tmp_path / name / "model.onnx")

    inside = open_suspect(tmp_path / "model" / "onnx" / "model.onnx")
    file = tmp_path / "elsewhere/deep/onnx/model.onnx"
    named = open_suspect(f"onnx:{file}#{tmp_path / 'model'}")

    np.testing.assert_array_equal(inside.outputs(TEXTS), expected)
    np.testing.assert_array_equal(named.outputs(TEXTS), expected)
    with pytest.raises(ModelError, match="no tokenizer files") as caught:
        open_suspect(f"onnx:{file}")
    assert "onnx:FILE#FOLDER" in caught.value.hint
    with pytest.raises(ModelError, match="no tokenizer in"):
        open_suspect(f"onnx:{file}#{tmp_path / 'nowhere'}")


def test_sentence_transformers_folder_says_how_its_export_is_read(exported, tiny_st, tmp_path):
    folder = shutil.copytree(tiny_st, tmp_path / "st")
    (folder / "onnx").mkdir()
    shutil.copy(exported, folder / "onnx")  # the same weights lie in both folders

    suspect = open_suspect(folder / "onnx" / "model.onnx", pooling="first", normalise=False)

    expected = open_suspect(f"st:{tiny_st}", device="cpu").outputs(TEXTS)
    np.testing.assert_allclose(suspect.outputs(TEXTS), expected, atol=1e-4)


def test_two_dimensional_output_is_taken_as_it_is(save):
    ids = ("input_ids", ["batch", "length"])
    model = lookup_model(inputs=(ids,), output="sentence_embedding", pooled=True)

    outputs = open_suspect(save(model), pooling="max", normalise=True).outputs(TEXTS)

    assert outputs.shape == (4, 6)
    assert np.abs(np.linalg.norm(outputs, axis=1) - 1).min() > 1e-3
    # Without a mask the model cannot tell padding, so nothing may be padded.
    np.testing.assert_allclose(outputs[2], open_suspect(save(model)).outputs(["one"])[0])


def test_inputs_are_given_by_name_and_only_if_asked_for(save):
    names = ("input_ids", "attention_mask", "token_type_ids", "position_ids")
    model = lookup_model(inputs=tuple((name, ["batch", "length"]) for name in names))

    outputs = open_suspect(save(model), pooling="first").outputs(TEXTS)

    np.testing.assert_array_equal(outputs, np.tile(embedding_table()[2], (4, 1)))  # [CLS]


def test_fixed_sizes_of_an_export_are_kept(save):
    shape = [1, 9]
    model = lookup_model(inputs=(("input_ids", shape), ("attention_mask", shape)))
    suspect = open_suspect(save(model), pooling="last")

    outputs = suspect.outputs(TEXTS)

    np.testing.assert_array_equal(outputs, np.tile(embedding_table()[3], (4, 1)))  # [SEP]


# --- the verdict ---


def test_marked_model_is_verified_through_its_export(tiny_marked, exported_marked):
    report = verify(tiny_marked.key, f"onnx:{exported_marked}", device="cpu")
    folder = verify(tiny_marked.key, tiny_marked.model_folder, device="cpu").to_mapping()
    found = report.to_mapping()

    assert report.verdict == "owned"
    assert found["extraction_rate"] == folder["extraction_rate"] == 1.0
    assert found["derived_extraction_rate"] == folder["derived_extraction_rate"]
    assert found["invariant_matching_degree"] < 0.05
    for name in ("subspace_overlap", "predictability"):
        assert found[name] == pytest.approx(folder[name], abs=1e-3)


def test_marked_model_is_verified_through_its_int8_export(tiny_marked, exported_marked):
    report = verify(tiny_marked.key, f"onnx:{quantise(exported_marked)}", device="cpu")

    assert report.verdict == "owned"


def test_unmarked_export_is_not_accused(tiny_marked, exported, exported_int8):
    for file in (exported, exported_int8):
        assert verify(tiny_marked.key, f"onnx:{file}", device="cpu").verdict == "not_shown"


def test_logits_of_another_width_are_measured(tiny_marked, save):
    model = lookup_model(output="logits", pooled=True)
    evidence = measure(tiny_marked.key, open_suspect(save(model)))

    assert evidence.output_dim == 6
    assert evidence.triggered.extraction_rate is None
    assert evidence.triggered.invariant_matching_degree > 1


# --- what is refused ---


@pytest.mark.parametrize("package", ["onnxruntime", "transformers"])
def test_missing_package_is_named_with_its_extra(exported, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)

    with pytest.raises(MissingExtraError, match=package) as caught:
        open_suspect(exported)

    assert "'.[onnx]'" in caught.value.hint


@pytest.mark.parametrize(
    ("setting", "value"),
    [("pooling", "weighted"), ("max_length", 0), ("device", "tpu"), ("device", "cuda:x")],
)
def test_settings_out_of_range_are_wrong_usage(exported, setting, value):
    with pytest.raises(ConfigError, match=setting):
        open_suspect(exported, **{setting: value})


def test_missing_file_is_refused(tmp_path):
    with pytest.raises(ModelError, match="does not exist"):
        open_suspect(f"onnx:{tmp_path / 'none.onnx'}")
    with pytest.raises(ModelError, match="not a file"):
        open_suspect(f"onnx:{tmp_path}")


def test_damaged_models_are_refused_with_a_hint(save):
    good = lookup_model().SerializeToString()
    rng = np.random.default_rng(1)
    broken = [good[: len(good) // 2], good[:1], b"", b"PK\3\4 a zip", bytes(100), rng.bytes(5000)]
    for _ in range(40):  # single bytes changed near the beginning, where the structure is
        at = int(rng.integers(0, 200))
        broken.append(good[:at] + rng.bytes(1) + good[at + 1 :])
    refused = []
    for number, content in enumerate(broken):
        try:
            open_suspect(save(content, f"{number}.onnx")).outputs(["a text"])
        except ModelError as error:
            refused.append((str(error), error.hint))
    assert all(message and hint and "\n" not in message + hint for message, hint in refused)
    assert len(refused) > 10


def test_model_that_asks_for_more_than_texts_is_refused(save):
    ids = ("input_ids", ["batch", "length"])
    cache = ("past_key_values.0.key", ["batch", "length"])
    for model, reason in [
        (lookup_model(inputs=(ids, cache)), "past_key_values"),
        (lookup_model(inputs=(ids, ("pixel_values", ["batch", "length"]))), "pixel_values"),
        (lookup_model(inputs=(("input_ids", [4, "length"]),)), "exactly 4"),
        (lookup_model(inputs=(("input_ids", ["batch", "length", 1]),)), "3 dimensions"),
        (lookup_model(output="pooler_output"), "no output"),
    ]:
        with pytest.raises(ModelError, match=reason):
            open_suspect(save(model))


def test_output_of_another_form_is_refused(save):
    # One row for all texts, whatever is asked.
    flat = lookup_model(output="sentence_embedding", pooled=True)
    flat.graph.initializer[1].CopyFrom(onnx.numpy_helper.from_array(np.array([0, 1]), "axis"))

    with pytest.raises(ModelError, match="shape"):
        open_suspect(save(flat)).outputs(TEXTS)


def test_token_outside_the_models_vocabulary_is_an_error_and_no_crash(save):
    small = lookup_model(table=np.ones((3, 2), np.float32))

    with pytest.raises(ModelError, match="could not run"):
        open_suspect(save(small)).outputs(TEXTS)


def test_weights_outside_the_folder_are_not_opened(save):
    with pytest.raises(ModelError, match="outside its folder"):
        open_suspect(save(with_external(lookup_model(), "/etc/passwd")))


def test_weights_beside_the_model_are_read(save, tmp_path):
    file = save(b"")
    onnx.save(
        lookup_model(), str(file), save_as_external_data=True, location="w.bin", size_threshold=0
    )
    assert (tmp_path / "w.bin").stat().st_size > file.stat().st_size

    outputs = open_suspect(file, pooling="first").outputs(TEXTS)

    np.testing.assert_array_equal(outputs, np.tile(embedding_table()[2], (4, 1)))  # [CLS]


WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None
from nsmark.suspects import open_suspect
print(open_suspect(sys.argv[1], pooling="mean").outputs(["a text"]).shape)
"""


def test_no_torch_is_needed(exported):
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, f"onnx:{exported}"],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.stdout == "(1, 32)\n", done.stderr


def with_external(model, location):
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    return model
