"""The folder alone: complete or not there, newest only, nothing damaged believed."""

from __future__ import annotations

import errno
import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from nsmark.embedding.checkpoint_folder import CheckpointFolder
from nsmark.errors import FileAccessError, InputError

CONTENT = {"claim": {"owner": "Zoë"}, "state": {"loss": 0.1 + 0.2, "big": 2**70}}


def write_some(path: Path) -> None:
    path.write_bytes(b"tensors" * 100)


@pytest.fixture
def folder(tmp_path) -> CheckpointFolder:
    return CheckpointFolder(tmp_path / "out")


def names(folder: CheckpointFolder) -> list[str]:
    return sorted(entry.name for entry in folder.path.iterdir())


def test_what_was_saved_is_read(folder, tmp_path):
    assert folder.path == tmp_path / "out.checkpoint"
    folder.save(50, CONTENT, write_some)
    content = folder.read()
    assert {name: content[name] for name in CONTENT} == CONTENT
    assert folder.tensors_file(content).read_bytes() == b"tensors" * 100
    assert stat.S_IMODE((folder.path / "step-50").stat().st_mode) == 0o700  # secret as the key


def test_only_the_newest_is_kept_and_the_one_before_until_it_is_complete(folder):
    def look(path: Path) -> None:
        assert names(folder)[-1] == "step-50"
        write_some(path)

    folder.save(50, CONTENT, write_some)
    folder.save(100, CONTENT, look)
    assert names(folder) == ["step-100"]
    assert folder.newest_step() == 100


def test_of_two_complete_ones_the_later_step_counts_not_the_later_name(folder):
    folder.save(900, CONTENT, write_some)
    (folder.path / "step-900").rename(folder.path / "kept")
    folder.save(1000, CONTENT, write_some)
    (folder.path / "kept").rename(folder.path / "step-900")  # killed before the removal
    assert folder.newest_step() == 1000
    folder.save(1100, CONTENT, write_some)
    assert names(folder) == ["step-1100"]


def test_cleaning_takes_nothing_that_is_not_ours(folder):
    folder.save(50, CONTENT, write_some)
    (folder.path / "notes.txt").write_text("mine", encoding="utf-8")
    folder.clean(keep=None)
    assert names(folder) == ["notes.txt"]
    (folder.path / "notes.txt").unlink()
    folder.clean(keep=None)
    assert not folder.path.exists()


def test_starting_anew_over_a_checkpoint_is_refused_with_both_ways_out(folder):
    folder.refuse_unfinished()
    folder.save(50, CONTENT, write_some)
    with pytest.raises(FileAccessError, match=r"unfinished run \(step 50\)") as caught:
        folder.refuse_unfinished()
    assert caught.value.hint == f"resume with --resume, or remove {folder.path}"


def test_resuming_without_a_checkpoint_is_refused(folder):
    for _ in range(2):
        with pytest.raises(FileAccessError, match="there is no checkpoint") as caught:
            folder.require()
        assert "without --resume" in caught.value.hint
        folder.path.mkdir(exist_ok=True)  # an empty folder is none either


# --- writes that fail ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        RuntimeError("Error while serializing: I/O error: No space left on device (os error 28)"),
    ],
)
@pytest.mark.parametrize("previous", [None, 50])
def test_a_full_disk_keeps_the_checkpoint_before(folder, tmp_path, previous, error):
    def fail(path: Path) -> None:
        path.write_bytes(b"half")
        raise error

    if previous is not None:
        folder.save(previous, CONTENT, write_some)
    with pytest.raises(FileAccessError, match="No space left") as caught:
        folder.save(100, CONTENT, fail)
    assert ("--resume" in caught.value.hint) is (previous is not None)
    assert folder.newest_step() == previous
    if previous is None:
        assert list(tmp_path.iterdir()) == []
    else:
        assert names(folder) == ["step-50"]
        folder.tensors_file(folder.read())


def test_a_full_disk_at_the_last_moment_keeps_the_checkpoint_before(folder, monkeypatch):
    folder.save(50, CONTENT, write_some)
    calls = []

    def fail(handle: int) -> None:
        calls.append(handle)
        if len(calls) == 2:  # the tensors are on the disk, the JSON file is not
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(FileAccessError, match="No space left"):
        folder.save(100, CONTENT, write_some)
    assert names(folder) == ["step-50"]


def test_other_errors_are_not_taken_for_a_full_disk(folder):
    def fail(path: Path) -> None:
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        folder.save(100, CONTENT, fail)
    assert not folder.path.exists()


KILLED_WHILE_WRITING = """
import os, signal, sys
from pathlib import Path
from nsmark.embedding.checkpoint_folder import CheckpointFolder

def die(path):
    path.write_bytes(b"half a file")
    os.kill(os.getpid(), signal.SIGKILL)

CheckpointFolder(Path(sys.argv[1])).save(100, {}, die)
"""


def test_a_write_that_was_killed_is_ignored_and_cleaned(folder, tmp_path):
    folder.save(50, CONTENT, write_some)
    command = [sys.executable, "-c", KILLED_WHILE_WRITING, str(tmp_path / "out")]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert len(names(folder)) == 2
    assert folder.newest_step() == 50
    assert folder.read()["state"] == CONTENT["state"]
    folder.clean(keep=50)
    assert names(folder) == ["step-50"]


def test_a_first_write_that_was_killed_is_no_checkpoint(folder, tmp_path):
    command = [sys.executable, "-c", KILLED_WHILE_WRITING, str(tmp_path / "out")]
    subprocess.run(command, check=False)
    folder.refuse_unfinished()
    with pytest.raises(FileAccessError, match="no checkpoint"):
        folder.require()
    folder.clean(keep=None)
    assert list(tmp_path.iterdir()) == []


# --- damage --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["state.json", "tensors.safetensors"])
@pytest.mark.parametrize("damage", ["missing", "empty", "truncated", "flipped", "longer"])
def test_a_damaged_file_is_refused(folder, name, damage):
    folder.save(50, CONTENT, write_some)
    path = folder.path / "step-50" / name
    octets = path.read_bytes()
    middle = len(octets) // 2
    if damage == "missing":
        path.unlink()
    else:
        flipped = octets[:middle] + bytes([octets[middle] ^ 1]) + octets[middle + 1 :]
        changed = {"empty": b"", "truncated": octets[:-3], "flipped": flipped}
        path.write_bytes(changed.get(damage, octets + b"x"))
    with pytest.raises(InputError, match="damaged") as caught:
        folder.tensors_file(folder.read())
    assert str(folder.path) in caught.value.hint


@pytest.mark.parametrize(
    "document", [[], {}, {"format": "nsmark/checkpoint/2", "content": {}}, {"content": 1}, "x"]
)
def test_another_document_is_refused(folder, document):
    folder.save(50, CONTENT, write_some)
    (folder.path / "step-50" / "state.json").write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(InputError, match="damaged"):
        folder.read()
