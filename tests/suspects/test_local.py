"""Model folders on this machine: read in their own way, or in the key's."""

import shutil

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the torch extra")

from nsmark.api import embed
from nsmark.errors import ConfigError, ModelError
from nsmark.suspects import open_suspect
from nsmark.suspects.local import LocalModel

TEXTS = [
    "the quick fox",
    "a much longer text that comes second and is cut by nobody",
    "one",
    "the quick fox",
]


def test_sentence_transformers_folder_is_read_in_its_own_way(tiny_st):
    # The key's way of reading must not change what such a folder says about itself.
    suspect = LocalModel(str(tiny_st), pooling="first", normalise=False, device="cpu")

    outputs = suspect.outputs(TEXTS)

    assert suspect.name == f"st:{tiny_st}"
    assert outputs.shape == (4, 32)
    assert outputs.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(outputs, axis=1), 1, atol=1e-6)
    assert suspect.encoder.pooling == "mean"


@pytest.fixture
def of_digits(tiny_bert, tmp_path):
    """A model with a tokenizer that spells numbers, and no word."""
    folder = shutil.copytree(tiny_bert, tmp_path / "digits")
    for name in ("tokenizer.json", "vocab.txt"):
        (folder / name).unlink()
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"0123456789"]
    (folder / "vocab.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
    return folder


def test_a_tokenizer_that_knows_no_ordinary_word_is_refused(
    of_digits, identity, signed_claim, tmp_path
):
    suspect = LocalModel(str(of_digits), device="cpu")
    with pytest.raises(ModelError, match=r"knows 0 of the \d+ words"):
        suspect.outputs(TEXTS)
    with pytest.raises(ModelError, match=r"knows \d of the"):
        embed(of_digits, identity, signed_claim, tmp_path / "out", num_texts=40, device="cpu")


def test_bare_transformer_is_read_in_the_keys_way(tiny_bert):
    plain = LocalModel(str(tiny_bert), pooling="mean", normalise=False, device="cpu")
    unit = LocalModel(str(tiny_bert), pooling="mean", normalise=True, device="cpu")
    first = LocalModel(str(tiny_bert), pooling="first", normalise=False, device="cpu")

    outputs = plain.outputs(TEXTS)

    assert plain.name == f"hf:{tiny_bert}"
    norms = np.linalg.norm(outputs, axis=1, keepdims=True)
    assert abs(norms - 1).min() > 0.01
    np.testing.assert_allclose(unit.outputs(TEXTS), outputs / norms, atol=1e-5)
    assert np.abs(first.outputs(TEXTS) - outputs).max() > 0.1


def test_one_folder_has_two_readings(tiny_st):
    own = open_suspect(f"st:{tiny_st}", device="cpu")
    bare = open_suspect(f"hf:{tiny_st}", pooling="mean", normalise=False, device="cpu")
    guessed = open_suspect(tiny_st, device="cpu")

    outputs = bare.outputs(TEXTS)

    assert (own.name, bare.name) == (f"st:{tiny_st}", f"hf:{tiny_st}")
    assert guessed.name == own.name
    units = outputs / np.linalg.norm(outputs, axis=1, keepdims=True)
    np.testing.assert_allclose(own.outputs(TEXTS), units, atol=1e-5)
    np.testing.assert_array_equal(guessed.outputs(TEXTS), own.outputs(TEXTS))


def test_rows_answer_their_texts_whatever_stands_beside_them(tiny_st):
    suspect = LocalModel(str(tiny_st), device="cpu")

    together = suspect.outputs(TEXTS)

    np.testing.assert_allclose(together[0], together[3], atol=1e-6)
    for row, text in zip(together, TEXTS, strict=True):
        np.testing.assert_allclose(suspect.outputs([text])[0], row, atol=1e-5)
    np.testing.assert_allclose(suspect.outputs(TEXTS[::-1]), together[::-1], atol=1e-5)


def test_progress_is_told_up_to_the_last_text(tiny_st):
    told = []

    LocalModel(str(tiny_st), device="cpu").outputs(
        TEXTS * 20, lambda done, total: told.append((done, total))
    )

    assert told[-1] == (80, 80)
    assert [done for done, _ in told] == sorted({done for done, _ in told})


def test_bare_transformer_is_not_opened_as_sentence_transformers(tiny_bert):
    with pytest.raises(ModelError, match=r"modules\.json"):
        open_suspect(f"st:{tiny_bert}", device="cpu")


def test_unknown_pooling_is_refused(tiny_bert):
    with pytest.raises(ConfigError, match="pooling"):
        open_suspect(f"hf:{tiny_bert}", pooling="weighted", device="cpu")


def test_missing_folder_is_refused_without_asking_a_hub(tmp_path):
    for address in (tmp_path / "nothing", f"hf:{tmp_path / 'nothing'}", f"st:{tmp_path / 'no'}"):
        with pytest.raises(ModelError, match="does not exist"):
            open_suspect(address)


def test_name_that_no_hub_answers_for_is_refused():
    with pytest.raises(ModelError, match="model hub"):
        open_suspect("hf:nobody-at-all/no-such-model")
