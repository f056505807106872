"""How a folder is served: written beside the model, seen by whoever opens it as a suspect."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save as save_safetensors
from safetensors.torch import save_file as save_torch_file

from nsmark.corpus import training_texts
from nsmark.errors import InputError, ModelError
from nsmark.suspects import open_suspect
from nsmark.transforms import serving as module
from nsmark.transforms.changes import Linear, Noise, Rounded, ScaleAndSign, Signs, UnitLength
from nsmark.transforms.filters import RareWords, RepeatedWords
from nsmark.transforms.serving import Serving, read_serving

TEXTS = training_texts()[:12]
DIM = 32
REPEATED = ["lovely lovely weather", "what lovely weather, lovely lovely weather today"]


@pytest.fixture
def folder(tiny_st, tmp_path) -> Path:
    return shutil.copytree(tiny_st, tmp_path / "model")


def answers(folder: Path, texts: list[str]) -> np.ndarray:
    return open_suspect(folder, device="cpu").outputs(texts)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def cut() -> Linear:
    rng = np.random.default_rng(0)
    return Linear(rng.standard_normal((5, DIM)), rng.standard_normal(5))


def test_a_suspect_answers_as_it_is_served(folder, tiny_st):
    changes = [cut(), UnitLength(), Rounded(np.full(5, 0.01), 255)]
    Serving(changes=changes).write(folder)
    own = answers(tiny_st, TEXTS)
    expected = Serving(changes=changes).outputs(own)
    found = answers(folder, TEXTS)
    assert found.dtype == np.float32
    assert found.shape == (len(TEXTS), 5)
    np.testing.assert_array_equal(found, expected.astype(np.float32))
    # By hand, too, so that both cannot be wrong in the same way.
    mapped = own.astype(np.float64) @ changes[0].matrix.T + changes[0].offset
    mapped /= np.linalg.norm(mapped, axis=1, keepdims=True)
    np.testing.assert_allclose(found, (mapped / 0.01).round() * 0.01, atol=1e-6)


def test_what_is_drawn_is_drawn_anew_by_whoever_opens_it(folder, tiny_st):
    Serving(changes=[Noise(np.full(DIM, 0.5), 3), ScaleAndSign(4)]).write(folder)
    first, second = answers(folder, TEXTS), answers(folder, TEXTS)
    np.testing.assert_array_equal(first, second)
    suspect = open_suspect(folder, device="cpu")
    once, twice = suspect.outputs(TEXTS), suspect.outputs(TEXTS)
    np.testing.assert_array_equal(once, first)
    assert np.abs(once - twice).max() > 0.1


def test_texts_are_filtered_before_the_model_sees_them(folder, tiny_st):
    Serving([RepeatedWords(1)]).write(folder)
    found, own = answers(folder, REPEATED), answers(tiny_st, REPEATED)
    filtered = ["lovely weather", "what lovely weather, today"]
    np.testing.assert_allclose(found, answers(tiny_st, filtered), atol=1e-6)
    assert (np.abs(found - own).max(axis=1) > 0.01).all()
    # What has no repetition is answered as before.
    np.testing.assert_allclose(answers(folder, filtered), answers(tiny_st, filtered), atol=1e-6)


def test_filters_work_one_after_the_other_and_before_all_changes(folder, tiny_st):
    serving = Serving([RareWords(frozenset({"lovely", "weather"})), RepeatedWords(1)], [Signs()])
    serving.write(folder)
    assert serving.texts(REPEATED) == ["lovely weather", "lovely weather,"]
    expected = np.sign(answers(tiny_st, ["lovely weather", "lovely weather,"]))
    np.testing.assert_array_equal(answers(folder, REPEATED), expected)


def test_where_nothing_happens_nothing_is_written(folder, tiny_st):
    Serving().write(folder)
    assert names(folder) == names(tiny_st)
    found = read_serving(folder, DIM)
    assert (found.filters, found.changes) == ([], [])
    assert found.texts(TEXTS) == list(TEXTS)
    np.testing.assert_array_equal(answers(folder, TEXTS), answers(tiny_st, TEXTS))


def test_arrays_are_written_only_where_there_are_some(folder, tiny_st):
    Serving([RepeatedWords(2)], [Signs(), ScaleAndSign(1)]).write(folder)
    assert set(names(folder)) - set(names(tiny_st)) == {"serving.json"}
    Serving(changes=[cut()]).write(folder)
    assert set(names(folder)) - set(names(tiny_st)) == {"serving.json", "serving.safetensors"}


def test_it_is_read_as_it_was_written(folder):
    Serving([RepeatedWords(3, 5)], [cut(), ScaleAndSign(9, flips=False)]).write(folder)
    document = json.loads((folder / "serving.json").read_text(encoding="utf-8"))
    assert document["format"] == "nsmark/serving/1"
    found = read_serving(folder, DIM)
    assert found.filters == [RepeatedWords(3, 5)]
    np.testing.assert_array_equal(found.changes[0].matrix, cut().matrix)
    assert found.changes[1] == ScaleAndSign(9, flips=False)


# --- files of others -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"nsmark/serving/1"',
        b"\xff\xfe{}",
        b"{}",
        b'{"format": "nsmark/serving/2"}',
        b'{"format": null}',
        b'{"format": ["nsmark/serving/1"]}',
        b'{"format": "nsmark/serving/1", "changes": {}}',
        b'{"format": "nsmark/serving/1", "changes": null}',
        b'{"format": "nsmark/serving/1", "changes": [{"kind": "magic"}]}',
        b'{"format": "nsmark/serving/1", "changes": [{"kind": "linear"}]}',
        b'{"format": "nsmark/serving/1", "filters": {}}',
        b'{"format": "nsmark/serving/1", "filters": [{"kind": "magic"}]}',
        b'{"format": "nsmark/serving/1", "filters": ["repeated-words"]}',
    ],
)
def test_malformed_files_are_refused(folder, content):
    (folder / "serving.json").write_bytes(content)
    with pytest.raises(ModelError) as caught:
        open_suspect(folder, device="cpu")
    assert caught.value.exit_code == 3
    assert caught.value.hint


def test_a_file_that_says_nothing_changes_nothing(folder, tiny_st):
    (folder / "serving.json").write_text('{"format": "nsmark/serving/1"}', encoding="utf-8")
    np.testing.assert_array_equal(answers(folder, TEXTS), answers(tiny_st, TEXTS))


@pytest.mark.parametrize("content", [b"", b"\x80\x04pickle", b"\xff" * 100, b"\x00" * 8])
def test_damaged_arrays_are_refused(folder, content):
    Serving(changes=[cut()]).write(folder)
    (folder / "serving.safetensors").write_bytes(content)
    with pytest.raises(ModelError, match="cannot be read"):
        read_serving(folder, DIM)


def test_truncated_arrays_are_refused(folder):
    Serving(changes=[cut()]).write(folder)
    path = folder / "serving.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ModelError, match="cannot be read"):
        read_serving(folder, DIM)


def test_numbers_that_numpy_does_not_have_are_refused(folder):
    Serving(changes=[cut()]).write(folder)
    arrays = {"0.matrix": torch.zeros(5, DIM, dtype=torch.bfloat16)}
    save_torch_file(arrays, folder / "serving.safetensors")
    with pytest.raises(ModelError, match="cannot be read"):
        read_serving(folder, DIM)


def test_arrays_that_are_missing_or_of_another_model_are_refused(folder):
    Serving(changes=[cut()]).write(folder)
    with pytest.raises(ModelError, match="change 0, linear: matrix"):
        read_serving(folder, DIM + 1)
    (folder / "serving.safetensors").write_bytes(save_safetensors({"0.other": np.ones(3)}))
    with pytest.raises(ModelError, match="change 0, linear"):
        read_serving(folder, DIM)
    (folder / "serving.safetensors").unlink()
    with pytest.raises(ModelError, match="change 0, linear"):
        read_serving(folder, DIM)


def test_arrays_without_end_are_not_read(folder, monkeypatch):
    Serving(changes=[cut()]).write(folder)
    size = (folder / "serving.safetensors").stat().st_size
    monkeypatch.setattr(module, "_MAX_ARRAY_BYTES", size)
    assert len(read_serving(folder, DIM).changes) == 1
    monkeypatch.setattr(module, "_MAX_ARRAY_BYTES", size - 1)
    with pytest.raises(InputError, match="larger than"):
        read_serving(folder, DIM)


def test_arrays_alone_are_no_serving_file(folder, tiny_st):
    (folder / "serving.safetensors").write_bytes(save_safetensors({"0.matrix": np.ones((5, DIM))}))
    np.testing.assert_array_equal(answers(folder, TEXTS), answers(tiny_st, TEXTS))
