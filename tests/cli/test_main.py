"""What users try first: nothing, help, versions, folders instead of files."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import numpy as np
import pytest

from nsmark.cli.main import main
from nsmark.suspects import load_recorded, save_recorded


def out_of(capsys, *words: str) -> str:
    assert main(words) == 0
    return capsys.readouterr().out


def test_nothing_help_and_a_command_without_arguments_say_what_there_is(capsys):
    whole = out_of(capsys, "--help")
    assert "nsmark verify marked/owner.nsmark SUSPECT" in whole
    assert out_of(capsys) == out_of(capsys, "help") == whole
    assert out_of(capsys, "help", "verify") == out_of(capsys, "verify", "--help")
    assert out_of(capsys, "-V") == out_of(capsys, "--version")


def test_the_shell_completes_commands():
    words = {"_NSMARK_COMPLETE": "bash_complete", "COMP_WORDS": "nsmark ver", "COMP_CWORD": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "nsmark"],
        env={**os.environ, **words},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert "verify" in done.stdout


def test_help_of_embed_has_sections(capsys):
    text = out_of(capsys, "embed", "--help")
    sections = [line[:-1] for line in text.splitlines() if line.endswith(":") and line[0] != " "]
    assert sections[0] == "What is claimed"
    assert sections[-1] == "Other options"
    assert text.count("--max-steps") == 1


def test_a_folder_that_embed_wrote_stands_for_its_key_and_its_model(tiny_marked, capsys):
    folder = str(tiny_marked.key_file.parent)
    assert out_of(capsys, "inspect", folder) == out_of(capsys, "inspect", folder + "/owner.nsmark")
    assert main(["verify", folder, folder, "--device", "cpu", "--quiet"]) == 0
    assert re.fullmatch(r"OWNED: .*\n", capsys.readouterr().out)


def test_what_could_not_be_measured_is_said_once(tiny_marked, tmp_path, capsys):
    key = tiny_marked.key
    save_recorded(
        tmp_path / "nan.npz", np.full_like(key.owner_triggered, np.nan), key.owner_untriggered
    )
    assert (
        main(["verify", str(tiny_marked.key_file), f"recorded:{tmp_path}/nan.npz", "--quiet"]) == 3
    )
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "error: triggered outputs hold NaN or infinite values",
        "hint: find out why the model gives them, and ask again",
    ]


@pytest.mark.parametrize(("ending", "begins"), [(".npz", b"PK"), (".safetensors", None)])
def test_answers_are_kept_as_the_file_name_says(tmp_path, ending, begins):
    rows = np.random.default_rng(0).standard_normal((3, 2))
    path = tmp_path / f"answers{ending}"
    save_recorded(path, rows, -rows)
    assert begins is None or path.read_bytes().startswith(begins)
    found = load_recorded(path)
    np.testing.assert_array_equal(found.triggered, rows)
    np.testing.assert_array_equal(found.untriggered, -rows)
    assert found.pair_texts is None
