"""Addresses of suspects: which scheme opens what."""

import numpy as np
import pytest

from nsmark.errors import EvidenceError, FileAccessError, ModelError, UsageError
from nsmark.suspects import RecordedOutputs, open_suspect, save_recorded

TABLE = np.arange(12.0).reshape(4, 3)


@pytest.fixture
def answers(tmp_path):
    file = tmp_path / "answers.safetensors"
    save_recorded(file, TABLE, -TABLE)
    return file


def test_recorded_file_is_opened_with_and_without_its_scheme(answers):
    for address in (f"recorded:{answers}", str(answers), answers):
        suspect = open_suspect(address)
        assert isinstance(suspect, RecordedOutputs)
        assert suspect.name == f"recorded:{answers}"
        np.testing.assert_array_equal(suspect.untriggered, -TABLE)


def test_file_with_a_colon_in_its_name_is_still_a_file(answers):
    odd = answers.rename(answers.with_name("run:3.safetensors"))

    assert isinstance(open_suspect(odd), RecordedOutputs)


def test_any_bare_file_is_taken_for_recorded_outputs(tmp_path):
    file = tmp_path / "weights.bin"
    file.write_bytes(b"\x80\x04 a pickle, which nobody opens")

    with pytest.raises(EvidenceError, match="recorded outputs"):
        open_suspect(file)


@pytest.mark.parametrize("name", ["missing.npz", "missing.safetensors"])
def test_missing_recorded_file_is_a_missing_file(tmp_path, name):
    for address in (f"recorded:{tmp_path / name}", str(tmp_path / name)):
        with pytest.raises(FileAccessError, match=name):
            open_suspect(address)


@pytest.mark.parametrize("address", ["ftp:somewhere", "pickle:model.bin", "c:/models/bert", ":"])
def test_unknown_schemes_are_wrong_usage(address):
    with pytest.raises(UsageError, match="scheme"):
        open_suspect(address)


@pytest.mark.parametrize("scheme", ["", "hf:", "st:"])
def test_folder_without_a_model_is_refused(tmp_path, scheme):
    with pytest.raises(ModelError, match=r"config\.json"):
        open_suspect(f"{scheme}{tmp_path}")


@pytest.mark.parametrize("scheme", ["hf:", "st:"])
def test_file_is_no_model_folder(answers, scheme):
    with pytest.raises(ModelError, match="not a folder"):
        open_suspect(f"{scheme}{answers}")
