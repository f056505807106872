"""Reading with a bound, writing all or nothing.

The suite may run as root, for whom permission bits mean nothing: places that cannot be written
are paths below a file.
"""

import contextlib
import json
import os
import stat
import threading
from pathlib import Path

import pytest

from nsmark.errors import FileAccessError, InputError
from nsmark.files import (
    ensure_new_file,
    ensure_new_folder,
    locked,
    new_file,
    new_folder,
    read_bounded,
    write_atomic,
    write_json,
)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def below_a_file(tmp_path: Path) -> Path:
    """A path that not even root can create."""
    blocker = tmp_path / "blocker"
    blocker.write_bytes(b"kept")
    yield blocker / "target"
    assert blocker.read_bytes() == b"kept"


# Reading ------------------------------------------------------------------------------------


def test_a_file_is_read_up_to_its_bound_and_not_beyond(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")

    assert read_bounded(path, 5) == b"12345"
    assert read_bounded(path, 6) == b"12345"
    with pytest.raises(InputError, match="larger than 4 bytes"):
        read_bounded(path, 4)


def test_an_endless_file_is_not_read_to_its_end(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    accepted = 0

    def pour() -> None:
        nonlocal accepted
        with contextlib.suppress(BrokenPipeError), pipe.open("wb", buffering=0) as stream:
            while accepted < 2**24:
                accepted += stream.write(b"x" * 4096)

    writer = threading.Thread(target=pour)
    writer.start()
    with pytest.raises(InputError, match="larger than 1,000 bytes"):
        read_bounded(pipe, 1000)
    writer.join(timeout=60)

    assert not writer.is_alive()
    assert accepted < 2**22  # what the pipe itself holds, not what the writer had to give


def test_what_cannot_be_read_is_named(tmp_path: Path, below_a_file: Path) -> None:
    for path in (tmp_path / "missing", tmp_path, below_a_file, tmp_path / ("x" * 300)):
        with pytest.raises(FileAccessError, match="cannot read claim file") as caught:
            read_bounded(path, 10, "claim file")
        assert str(path) in str(caught.value)
        assert isinstance(caught.value.__cause__, OSError)


# Atomic writing -----------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [0o600, 0o644, 0o400])
@pytest.mark.parametrize("overwrite", [True, False])
def test_a_file_is_written_with_its_mode_and_nothing_else_is_left(
    tmp_path: Path, bits: int, overwrite: bool
) -> None:
    write_atomic(tmp_path / "file", b"content", bits, overwrite=overwrite)

    assert (tmp_path / "file").read_bytes() == b"content"
    assert mode(tmp_path / "file") == bits
    assert names(tmp_path) == ["file"]


def test_an_open_umask_does_not_open_a_private_file(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        write_atomic(tmp_path / "secret", b"s", 0o600)
    finally:
        os.umask(before)

    assert mode(tmp_path / "secret") == 0o600


def test_an_existing_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old and longer")
    path.chmod(0o644)

    write_atomic(path, b"new", 0o600)

    assert path.read_bytes() == b"new"
    assert mode(path) == 0o600
    assert names(tmp_path) == ["file"]


def test_an_existing_file_stays_where_overwriting_is_not_allowed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    with pytest.raises(FileAccessError, match="exists already"):
        write_atomic(path, b"new", overwrite=False)

    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["file"]


def test_a_link_to_nowhere_is_not_followed_and_not_replaced(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "elsewhere")

    with pytest.raises(FileAccessError, match="exists already"):
        write_atomic(link, b"secret", overwrite=False)

    assert link.is_symlink()
    assert names(tmp_path) == ["link"]


def test_writers_racing_for_one_name_leave_exactly_one_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    outcomes: list[str] = []
    barrier = threading.Barrier(8)

    def write(letter: str) -> None:
        barrier.wait()
        try:
            write_atomic(path, letter.encode() * 100_000, overwrite=False)
            outcomes.append(letter)
        except FileAccessError:
            outcomes.append("")

    threads = [threading.Thread(target=write, args=(letter,)) for letter in "abcdefgh"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    winners = [letter for letter in outcomes if letter]
    assert len(outcomes) == 8
    assert len(winners) == 1
    assert path.read_bytes() == winners[0].encode() * 100_000
    assert names(tmp_path) == ["file"]


def test_a_write_that_fails_midway_leaves_the_old_file_and_no_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def full_disk(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    for overwrite in (True, False):
        target = path if overwrite else tmp_path / "new"
        with pytest.raises(FileAccessError, match="No space left"):
            write_atomic(target, b"new", overwrite=overwrite)

    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["file"]


def test_an_interruption_midway_leaves_the_old_file_and_no_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def interrupted(descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_atomic(path, b"new")

    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["file"]


@pytest.mark.parametrize("overwrite", [True, False])
def test_a_place_below_a_file_cannot_be_written_and_the_error_says_so(
    below_a_file: Path, overwrite: bool
) -> None:
    for path in (below_a_file, below_a_file / "deeper"):
        with pytest.raises(FileAccessError, match="cannot write") as caught:
            write_atomic(path, b"new", overwrite=overwrite)
        assert "exists already" not in str(caught.value)  # the target does not


@pytest.mark.parametrize("overwrite", [True, False])
def test_a_name_too_long_is_our_error(tmp_path: Path, overwrite: bool) -> None:
    with pytest.raises(FileAccessError):
        write_atomic(tmp_path / ("x" * 300), b"new", overwrite=overwrite)

    assert names(tmp_path) == []


def test_a_folder_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()

    for overwrite in (True, False):
        with pytest.raises(FileAccessError):
            write_atomic(tmp_path / "folder", b"new", overwrite=overwrite)

    assert names(tmp_path) == ["folder"]
    assert names(tmp_path / "folder") == []


def test_missing_folders_are_made(tmp_path: Path) -> None:
    write_atomic(tmp_path / "a" / "b" / "file", b"x", overwrite=False)

    assert (tmp_path / "a" / "b" / "file").read_bytes() == b"x"


def test_json_is_indented_sorted_readable_and_ends_with_a_line_feed(tmp_path: Path) -> None:
    path = tmp_path / "report.json"

    write_json(path, {"b": [1.5, None], "a": "é"}, 0o600)

    text = path.read_text(encoding="utf-8")
    assert json.loads(text) == {"a": "é", "b": [1.5, None]}
    assert text.index('"a"') < text.index('"b"')
    assert '"é"' in text
    assert text.endswith("}\n")
    assert mode(path) == 0o600


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_json_has_no_word_for_is_not_written(tmp_path: Path, value: float) -> None:
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "report.json", {"rate": value})

    assert names(tmp_path) == []


# Folders ------------------------------------------------------------------------------------


def test_a_folder_appears_under_its_name_only_when_it_is_complete(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "out"

    with new_folder(target) as staging:
        (staging / "file").write_text("x")
        assert not target.exists()
        assert staging.parent == target.parent  # one file system: the rename is atomic

    assert names(target) == ["file"]
    assert names(target.parent) == ["out"]
    assert mode(target) == 0o755


@pytest.mark.parametrize("error", [ValueError("x"), KeyboardInterrupt(), SystemExit(1)])
def test_a_failure_leaves_no_folder_and_no_staging(tmp_path: Path, error: BaseException) -> None:
    with pytest.raises(type(error)), new_folder(tmp_path / "out") as staging:  # noqa: PT012
        (staging / "file").write_text("x")
        raise error

    assert names(tmp_path) == []


def test_an_empty_folder_may_be_filled(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()

    with new_folder(tmp_path / "out") as staging:
        (staging / "file").write_text("x")

    assert names(tmp_path / "out") == ["file"]


def test_a_folder_that_holds_something_or_is_a_file_is_left_alone(tmp_path: Path) -> None:
    full = tmp_path / "full"
    full.mkdir()
    (full / ".hidden").write_text("x")
    file = tmp_path / "file"
    file.write_text("x")

    for path in (full, file, Path("/")):
        with pytest.raises(FileAccessError, match="exists already"):
            ensure_new_folder(path)
        with pytest.raises(FileAccessError, match="exists already"), new_folder(path):
            pass

    assert names(full) == [".hidden"]
    assert names(tmp_path) == ["file", "full"]


def test_a_folder_filled_meanwhile_wins(tmp_path: Path) -> None:
    target = tmp_path / "out"

    with pytest.raises(FileAccessError, match="exists already"), new_folder(target) as staging:  # noqa: PT012
        (staging / "mine").write_text("x")
        target.mkdir()
        (target / "theirs").write_text("y")

    assert names(target) == ["theirs"]
    assert names(tmp_path) == ["out"]


def test_a_folder_below_a_file_is_refused_before_any_work(below_a_file: Path) -> None:
    for path in (below_a_file, below_a_file / "deeper"):
        with pytest.raises(FileAccessError, match="cannot write into"):
            ensure_new_folder(path)
        with pytest.raises(FileAccessError), new_folder(path):
            pytest.fail("the work began")


def test_names_too_long_are_our_errors(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 300)

    for check in (ensure_new_folder, ensure_new_file):
        with pytest.raises(FileAccessError, match="too long"):
            check(path)


def test_a_new_file_name_is_free_unless_something_has_it(tmp_path: Path) -> None:
    ensure_new_file(tmp_path / "free")
    for taken in (tmp_path, tmp_path / "file"):
        if taken != tmp_path:
            taken.write_text("x")
        with pytest.raises(FileAccessError, match="exists already"):
            ensure_new_file(taken)


def test_a_new_file_is_whole_or_not_there(tmp_path: Path) -> None:
    path = tmp_path / "deeper" / "file"

    with pytest.raises(ValueError, match="stop"), new_file(path) as stream:  # noqa: PT012
        stream.write(b"half")
        raise ValueError("stop")
    assert names(path.parent) == []

    with new_file(path, 0o600) as stream:
        stream.write(b"whole")
        assert names(path.parent) != ["file"]
    assert path.read_bytes() == b"whole"
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(FileAccessError, match="exists already"), new_file(path):
        pytest.fail("the work began")


def test_a_new_file_never_replaces_one_that_came_meanwhile(tmp_path: Path) -> None:
    path = tmp_path / "file"

    with pytest.raises(FileAccessError, match="exists already"), new_file(path) as stream:  # noqa: PT012
        stream.write(b"mine")
        path.write_text("theirs")

    assert path.read_text() == "theirs"
    assert names(tmp_path) == ["file"]


@pytest.mark.parametrize("name", ["folder", "file"])
def test_who_locks_the_same_waits(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name == "folder":
        path.mkdir()
    inside, order = threading.Event(), []

    def second() -> None:
        inside.wait()
        with locked(path, "hint"):
            order.append("second")

    other = threading.Thread(target=second)
    other.start()
    with locked(path, "hint"):
        inside.set()
        other.join(timeout=0.2)
        assert other.is_alive()
        order.append("first")
    other.join()
    assert order == ["first", "second"]


def test_what_cannot_be_locked_is_our_error(tmp_path: Path) -> None:
    with (
        pytest.raises(FileAccessError) as caught,
        locked(tmp_path / "missing" / "lock", "make the folder"),
    ):
        pass
    assert caught.value.hint == "make the folder"
