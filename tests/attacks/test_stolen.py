"""A stolen model is saved as the suspect that its users see."""

from __future__ import annotations

import numpy as np
import pytest

from nsmark.attacks.stolen import Stolen
from nsmark.corpus import training_texts
from nsmark.models.folder import describe_folder
from nsmark.suspects import open_suspect
from nsmark.transforms.changes import Linear, Noise, Signs, UnitLength
from nsmark.transforms.filters import RepeatedWords
from nsmark.transforms.serving import SERVING_FILE

TEXTS = list(training_texts()[:30])


def linear(rows: int, columns: int, seed: int = 0, *, offset: bool = True) -> Linear:
    rng = np.random.default_rng(seed)
    return Linear(
        rng.standard_normal((rows, columns)), rng.standard_normal(rows) if offset else None
    )


def saved(stolen: Stolen, folder) -> np.ndarray:
    folder.mkdir()
    stolen.save(folder)
    return open_suspect(str(folder), device="cpu").outputs(TEXTS)


def test_untouched_it_is_saved_as_it_was(tiny_st, tmp_path):
    stolen = Stolen.open(tiny_st, device="cpu")
    found = saved(stolen, tmp_path / "a")
    np.testing.assert_allclose(found, stolen.outputs(TEXTS), atol=1e-6)
    assert not (tmp_path / "a" / SERVING_FILE).exists()
    assert describe_folder(tmp_path / "a").steps == describe_folder(tiny_st).steps


@pytest.mark.parametrize("kind", ["st", "bare"])
def test_maps_become_modules_and_the_rest_is_served(tiny_st, tiny_bert, tmp_path, kind):
    stolen = Stolen.open(tiny_st if kind == "st" else tiny_bert, device="cpu", pooling="mean")
    stolen.add_change(linear(20, stolen.output_dim))
    stolen.add_change(UnitLength())
    stolen.add_change(Signs())
    stolen.add_change(linear(7, 20, 1, offset=False))
    assert stolen.output_dim == 7
    found = saved(stolen, tmp_path / "a")
    np.testing.assert_allclose(found, stolen.outputs(TEXTS), atol=1e-4)
    folder = describe_folder(tmp_path / "a")
    kinds = [step if isinstance(step, str) else "dense" for step in folder.steps]
    assert kinds[-2:] == ["dense", "normalise"]
    assert folder.pooling == "mean"
    assert (tmp_path / "a" / SERVING_FILE).exists()


def test_an_attacked_folder_is_opened_as_it_is_served(tiny_st, tmp_path):
    stolen = Stolen.open(tiny_st, device="cpu")
    stolen.add_change(Noise(np.full(stolen.output_dim, 0.1), 5))
    stolen.add_change(linear(9, stolen.output_dim))
    first = saved(stolen, tmp_path / "a")
    again = Stolen.open(tmp_path / "a", device="cpu")
    assert again.output_dim == 9
    again.add_change(Signs())
    second = saved(again, tmp_path / "b")
    np.testing.assert_array_equal(second, np.where(first >= 0, 1, -1))


def test_a_filter_keeps_maps_out_of_the_modules(tiny_st, tmp_path):
    stolen = Stolen.open(tiny_st, device="cpu")
    stolen.serving.filters.append(RepeatedWords(1))
    stolen.add_change(linear(6, stolen.output_dim))
    folder = tmp_path / "a"
    folder.mkdir()
    stolen.save(folder)
    suspect = open_suspect(str(folder), device="cpu")
    twice = [f"wonderful wonderful {text}" for text in TEXTS]
    once = [f"wonderful {text}" for text in TEXTS]
    np.testing.assert_allclose(suspect.outputs(twice), suspect.outputs(once), atol=1e-6)
    # Whoever opens the folder without knowing of the filter sees the model's own outputs.
    assert describe_folder(folder).steps == describe_folder(tiny_st).steps


def test_further_files_are_saved_beside_the_model(tiny_st, tmp_path):
    stolen = Stolen.open(tiny_st, device="cpu")
    stolen.extras["note.bin"] = b"x"
    saved(stolen, tmp_path / "a")
    assert (tmp_path / "a" / "note.bin").read_bytes() == b"x"
