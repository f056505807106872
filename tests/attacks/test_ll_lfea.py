from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file
from safetensors.torch import save_file as save_torch_file

from attack_runs import attack, opened
from nsmark.api import verify
from nsmark.attacks.recipes.ll_lfea import (
    Head,
    check_invertible,
    compensate,
    output_transform,
    read_head,
    transform_from_heads,
    write_head,
)
from nsmark.corpus import training_texts
from nsmark.demo.head import softmax
from nsmark.errors import FileAccessError, InputError, ModelError, UsageError
from nsmark.models.folder import describe_folder
from nsmark.models.loading import open_encoder

TEXTS = training_texts()[:60]
DIM = 32


def run(model: Path, out: Path, settings: dict[str, str], pooling: str | None = None) -> dict:
    return attack(model, out, "ll-lfea", settings, pooling=pooling)


@pytest.fixture
def head(tmp_path) -> Path:
    """A downstream head with as many rows as dimensions, so that W'†W can be inverted."""
    rng = np.random.default_rng(3)
    path = tmp_path / "head.safetensors"
    write_head(Head(rng.standard_normal((DIM + 8, DIM)), rng.standard_normal(DIM + 8)), path)
    return path


@pytest.fixture
def other_head(tmp_path) -> Path:
    path = tmp_path / "other.safetensors"
    write_head(Head(np.random.default_rng(4).standard_normal((DIM + 8, DIM)), None), path)
    return path


def settings_of(kind: str, head: Path, other_head: Path) -> dict[str, str]:
    other = {"other_head": str(other_head)} if kind == "from-heads" else {}
    return {"kind": kind, "head": str(head), "seed": "1"} | other


@pytest.fixture
def stolen(attacked) -> Path:
    return attacked("ll-lfea[]", "marked").folder


# --- the map -------------------------------------------------------------------------------------


@given(seed=st.integers(0, 2**32 - 1), dim=st.integers(1, 24))
@settings(max_examples=40, deadline=None)
def test_conditioned_maps_are_rotations_times_scales(seed, dim):
    transform = output_transform("conditioned", dim, seed)
    scales = np.linalg.svd(transform, compute_uv=False)
    assert scales.min() >= 0.5 - 1e-12
    assert scales.max() <= 2 + 1e-12
    np.testing.assert_array_equal(transform, output_transform("conditioned", dim, seed))


def test_uniform_maps_have_the_papers_entries():
    transform = output_transform("uniform", 200, 0)
    assert transform.shape == (200, 200)
    assert transform.min() >= 0
    assert transform.max() < 1
    assert transform.mean() == pytest.approx(0.5, abs=0.01)
    assert transform.var() == pytest.approx(1 / 12, abs=0.005)
    assert not np.array_equal(transform, output_transform("uniform", 200, 1))


@given(seed=st.integers(0, 2**32 - 1), classes=st.integers(1, 6), dim=st.integers(1, 16))
@settings(max_examples=40, deadline=None)
def test_a_compensated_head_gives_the_same_logits(seed, classes, dim):
    rng = np.random.default_rng(seed)
    head = Head(rng.standard_normal((classes, dim)), rng.standard_normal(classes))
    transform = output_transform("conditioned", dim, seed)
    outputs = rng.standard_normal((5, dim))
    moved = compensate(head, transform).logits(outputs @ transform.T)
    np.testing.assert_allclose(moved, head.logits(outputs), atol=1e-9)


def test_the_map_from_heads_is_the_papers_formula():
    rng = np.random.default_rng(0)
    other, weight = rng.standard_normal((9, 5)), rng.standard_normal((9, 5))
    found = transform_from_heads(other, weight)
    # W'† = (W'ᵀW')⁻¹W'ᵀ where the columns are independent.
    np.testing.assert_allclose(found, np.linalg.inv(other.T @ other) @ other.T @ weight)


def test_maps_that_lose_information_are_refused():
    rng = np.random.default_rng(0)
    singular = rng.standard_normal((6, 6))
    singular[5] = singular[0] + singular[1]
    for transform in (singular, np.zeros((3, 3)), np.ones((2, 2)), np.full((2, 2), np.nan)):
        with pytest.raises(InputError, match="cannot be undone"):
            check_invertible(transform)
    few = rng.standard_normal((3, 6)), rng.standard_normal((3, 6))
    with pytest.raises(InputError, match="cannot be undone"):
        transform_from_heads(*few)
    with pytest.raises(InputError, match="shapes"):
        transform_from_heads(few[0], rng.standard_normal((4, 6)))


# --- heads on disk -------------------------------------------------------------------------------


def test_a_head_survives_writing_and_reading(tmp_path):
    rng = np.random.default_rng(0)
    for bias in (None, rng.standard_normal(3)):
        path = tmp_path / f"{bias is None}.safetensors"
        head = Head(rng.standard_normal((3, 4)) * 1e8, bias)
        write_head(head, path)
        found = read_head(path)
        np.testing.assert_array_equal(found.weight, head.weight)
        assert (found.bias is None) == (bias is None)
        if bias is not None:
            np.testing.assert_array_equal(found.bias, bias)


@pytest.mark.parametrize(
    "arrays",
    [
        {},
        {"bias": np.zeros(3)},
        {"weight": np.zeros(3)},
        {"weight": np.zeros((0, 3))},
        {"weight": np.array([[np.nan, 1.0]])},
        {"weight": np.zeros((2, 3)), "bias": np.zeros(3)},
        {"weight": np.zeros((2, 3)), "bias": np.zeros((2, 1))},
        {"weight": np.zeros((2, 3)), "bias": np.array([np.inf, 0])},
    ],
)
def test_what_is_no_head_is_refused(tmp_path, arrays):
    save_file(arrays, tmp_path / "head.safetensors")
    with pytest.raises(InputError, match="finite"):
        read_head(tmp_path / "head.safetensors")


def test_files_that_are_no_head_are_refused(tmp_path):
    path = tmp_path / "head.safetensors"
    with pytest.raises(FileAccessError):
        read_head(path)
    for content in (b"", b"\x80\x04pickle", b"\xff" * 100):
        path.write_bytes(content)
        with pytest.raises(InputError):
            read_head(path)
    save_torch_file({"weight": torch.zeros(2, 3, dtype=torch.bfloat16)}, path)
    with pytest.raises(InputError, match="ordinary numbers"):
        read_head(path)


# --- the attacked folder -------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["uniform", "conditioned", "from-heads"])
def test_predictions_stay_while_outputs_change(tiny_marked, tmp_path, head, other_head, kind):
    marked, out = tiny_marked.model_folder, tmp_path / "stolen"
    result = run(marked, out, settings_of(kind, head, other_head))
    before = opened(marked).encode(TEXTS)
    after = opened(out).encode(TEXTS)
    transform = load_file(out / "3_Dense" / "model.safetensors")["linear.weight"]
    np.testing.assert_allclose(after, before @ transform.T, atol=1e-4)
    assert np.abs(after - before).max() > 0.1
    logits = read_head(head).logits(before), read_head(out / "head.safetensors").logits(after)
    assert np.abs(softmax(logits[0]) - softmax(logits[1])).max() < 1e-4
    # Without the compensation the predictions are other ones: the map is not harmless.
    assert np.abs(softmax(logits[0]) - softmax(read_head(head).logits(after))).max() > 0.1
    assert result["settings"]["kind"] == kind
    assert result["condition_number"] == pytest.approx(np.linalg.cond(transform), rel=1e-2)
    assert json.loads((out / "attack.json").read_text(encoding="utf-8")) == result["all"]


def test_extraction_collapses_but_the_null_space_tells(tiny_marked, stolen):
    report = verify(tiny_marked.key, stolen, rule="paper")
    found = report.to_mapping()
    assert found["verdict"] == verify(tiny_marked.key, stolen).verdict == "owned"
    assert found["extraction_rate"] < 0.2 < report.thresholds.min_extraction_rate
    assert found["invariant_matching_degree"] < 0.1 * report.thresholds.max_matching_degree
    assert found["matching_degree"] < 0.1
    assert found["subspace_overlap"] > 0.999
    assert found["output_dim"] == DIM


@pytest.mark.parametrize("kind", ["conditioned", "from-heads"])
def test_every_kind_of_map_is_seen_through(tiny_marked, tmp_path, head, other_head, kind):
    run(tiny_marked.model_folder, tmp_path / "stolen", settings_of(kind, head, other_head))
    report = verify(tiny_marked.key, tmp_path / "stolen")
    assert report.verdict == "owned"
    # In 32 dimensions an extractor may by chance read through a map: only the degree is sure.
    assert report.to_mapping()["invariant_matching_degree"] < 0.1


def test_the_attacked_folder_opens_in_sentence_transformers(stolen):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its imports and its reading of older folders warn
        from sentence_transformers import SentenceTransformer

        theirs = SentenceTransformer(str(stolen), device="cpu").encode(list(TEXTS))
    ours = opened(stolen).encode(TEXTS)
    assert np.abs(ours - theirs).max() < 1e-5
    assert np.abs(np.linalg.norm(ours, axis=1) - 1).max() > 0.1


def test_a_folder_can_be_attacked_twice(stolen, tmp_path):
    run(stolen, tmp_path / "again", {"kind": "conditioned"})
    found = describe_folder(tmp_path / "again")
    assert [type(step).__name__ for step in found.steps] == ["str", "DenseLayer", "DenseLayer"]
    once = opened(stolen).encode(TEXTS)
    twice = opened(tmp_path / "again").encode(TEXTS)
    transform = output_transform("conditioned", DIM, 0)
    np.testing.assert_allclose(twice, once @ transform.T, atol=1e-4)


def test_a_bare_transformer_becomes_a_folder_that_says_how_it_is_read(tiny_bert, tmp_path):
    run(tiny_bert, tmp_path / "stolen", {"kind": "conditioned"}, "mean")
    assert describe_folder(tmp_path / "stolen").pooling == "mean"
    before = open_encoder(tiny_bert, pooling="mean", device="cpu").encode(TEXTS)
    after = opened(tmp_path / "stolen").encode(TEXTS)
    transform = output_transform("conditioned", DIM, 0)
    np.testing.assert_allclose(after, before @ transform.T, atol=1e-4)


# --- what is refused -----------------------------------------------------------------------------


def test_a_head_of_another_model_is_refused(tiny_st, tmp_path):
    path = tmp_path / "head.safetensors"
    write_head(Head(np.ones((2, DIM + 1)), None), path)
    with pytest.raises(UsageError, match="33 dimensions, the model gives 32"):
        run(tiny_st, tmp_path / "out", {"head": str(path)})
    assert not (tmp_path / "out").exists()


def test_a_singular_map_from_heads_is_refused_and_writes_nothing(tiny_st, tmp_path):
    rng = np.random.default_rng(0)
    for name in ("head", "other"):
        write_head(Head(rng.standard_normal((3, DIM)), None), tmp_path / f"{name}.safetensors")
    kept = sorted(tmp_path.iterdir())
    with pytest.raises(InputError, match="cannot be undone"):
        run(
            tiny_st,
            tmp_path / "out",
            settings_of(
                "from-heads", tmp_path / "head.safetensors", tmp_path / "other.safetensors"
            ),
        )
    assert sorted(tmp_path.iterdir()) == kept


def test_an_existing_folder_is_left_as_it_is(tiny_st, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "precious").write_text("x", encoding="utf-8")
    with pytest.raises(FileAccessError, match="exists already"):
        run(tiny_st, out, {})
    assert [entry.name for entry in out.iterdir()] == ["precious"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["out"]


def test_what_is_no_model_cannot_be_attacked(tmp_path, tiny_st):
    with pytest.raises(ModelError):
        run(tmp_path / "missing", tmp_path / "out", {})
    broken = shutil.copytree(tiny_st, tmp_path / "broken")
    (broken / "model.safetensors").unlink()
    with pytest.raises(ModelError):
        run(broken, tmp_path / "out", {})
    assert not (tmp_path / "out").exists()
