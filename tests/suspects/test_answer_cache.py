"""Answers on disk: they come back as they were, and nothing else does."""

import contextlib
import json
import os
import re
import stat

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from nsmark.errors import FileAccessError, InputError
from nsmark.suspects import answer_cache
from nsmark.suspects.answer_cache import AnswerCache, AnswerKey, text_digest
from nsmark.suspects.answers import Answer

SUBJECT = {"kind": "embeddings", "endpoint": "http://h/v1/embeddings", "model": "m"}
KEYS = [AnswerKey(text_digest(text), number) for text in ("one", "two") for number in (0, 1)]
ANSWERS = [Answer(np.arange(3.0) + number) for number in range(4)]


@pytest.fixture
def filled(tmp_path):
    with AnswerCache(tmp_path / "cache", SUBJECT, KEYS) as cache:
        cache.add(list(zip(KEYS[:2], ANSWERS[:2], strict=True)))
        cache.add(list(zip(KEYS[2:], ANSWERS[2:], strict=True)))
    return next((tmp_path / "cache").iterdir())


def reload(file, wanted=KEYS, subject=SUBJECT):
    with AnswerCache(file.parent, subject, wanted) as cache:
        return cache.answers


def test_answers_come_back(filled):
    answers = reload(filled)

    assert list(answers) == KEYS
    for answer, expected in zip(answers.values(), ANSWERS, strict=True):
        np.testing.assert_array_equal(answer.values, expected.values)
        assert answer.names is None


@settings(max_examples=50, deadline=None)
@given(
    values=hnp.arrays(
        np.float64, st.integers(1, 9), elements=st.floats(allow_nan=False, allow_infinity=False)
    ),
    names=st.data(),
)
def test_every_number_and_name_survives(tmp_path_factory, values, names):
    size = len(values)
    tokens = names.draw(st.lists(st.text(max_size=5), min_size=size, max_size=size, unique=True))
    folder = tmp_path_factory.mktemp("cache")
    with np.errstate(over="ignore"), AnswerCache(folder, SUBJECT, []) as cache:
        cache.add([(KEYS[0], Answer(values, tuple(tokens)))])

    with AnswerCache(folder, SUBJECT, KEYS) as cache:
        answer = cache.answers[KEYS[0]]

    np.testing.assert_array_equal(answer.values, values)
    assert answer.names == tuple(tokens)


def test_only_what_is_wanted_is_kept_in_memory(filled):
    assert list(reload(filled, KEYS[1:2])) == KEYS[1:2]


def test_other_endpoints_models_and_ways_of_asking_have_files_of_their_own(filled):
    for change in ({"endpoint": "http://i"}, {"model": "n"}, {"kind": "completions"}, {"k": 5}):
        assert reload(filled, subject=SUBJECT | change) == {}
    assert len(list(filled.parent.iterdir())) == 5
    assert len(reload(filled)) == 4


def test_file_says_whose_answers_and_when_but_not_the_texts(filled):
    header, *records = [json.loads(line) for line in filled.read_text().splitlines()]

    assert header.items() >= SUBJECT.items()
    for record in records:
        assert re.fullmatch(r"20\d\d-\d\d-\d\dT[\d:.]{12}\+00:00", record["time"])
        assert record["text"] in {key.text_digest for key in KEYS}
    assert stat.S_IMODE(os.stat(filled).st_mode) == 0o600


def test_every_line_cut_short_by_a_killed_process_is_forgotten(filled):
    content = filled.read_bytes()
    ends = [place + 1 for place, byte in enumerate(content) if byte == ord("\n")]
    for cut in range(len(content)):
        filled.write_bytes(content[:cut])

        whole = sum(end <= cut for end in ends)
        assert len(reload(filled)) == max(whole - 1, 0)
        if cut in (0, ends[2], ends[2] - 1, ends[2] + 20):
            with AnswerCache(filled.parent, SUBJECT, KEYS) as cache:
                cache.add([(KEYS[3], ANSWERS[3])])
            assert KEYS[3] in reload(filled)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_no_changed_byte_within_a_line_goes_unnoticed(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("cache")
    with AnswerCache(folder, SUBJECT, KEYS) as cache:
        cache.add(list(zip(KEYS, ANSWERS, strict=True)))
    file = next(folder.iterdir())
    content = bytearray(file.read_bytes())
    place = data.draw(st.integers(0, len(content) - 2))
    content[place] ^= data.draw(st.integers(1, 255))
    file.write_bytes(content)

    with contextlib.suppress(InputError):
        # JSON may be spelt in other ways, with the same meaning; otherwise it is refused.
        answers = reload(file)
        for key, expected in zip(KEYS, ANSWERS, strict=True):
            np.testing.assert_array_equal(answers[key].values, expected.values)


@pytest.mark.parametrize(
    "line", [b"\n", b"{}\n", b"[]\n", b"7\n", b"\x80\x04.\n", b"[" * 9999 + b"\n"]
)
def test_foreign_lines_are_refused_with_their_number(filled, line):
    lines = filled.read_bytes().splitlines(keepends=True)
    filled.write_bytes(b"".join([*lines[:2], line, *lines[2:]]))

    with pytest.raises(InputError, match="line 3"):
        reload(filled)


def test_file_of_another_endpoint_under_this_name_is_refused(filled):
    reload(filled, subject=SUBJECT | {"model": "n"})
    other = next(file for file in filled.parent.iterdir() if file != filled)
    other.rename(filled)

    with pytest.raises(InputError, match="another endpoint"):
        reload(filled)


@pytest.mark.parametrize(
    "change",
    [
        {"type": "<O8"},
        {"values": "AAA"},
        {"values": ""},
        {"values": "AADAfwAAwH8AAMB/"},  # NaN
        {"tokens": ["a"]},
        {"tokens": 3},
        {"repetition": "x"},
        {"text": None, "values": None},
    ],
)
def test_records_with_a_right_checksum_and_wrong_content_are_refused(filled, change):
    lines = filled.read_bytes().splitlines(keepends=True)
    record = json.loads(lines[1]) | change
    del record["check"]
    filled.write_bytes(b"".join([lines[0], answer_cache._line(record)]))

    with pytest.raises(InputError, match="line 2"):
        reload(filled)


def test_two_processes_do_not_ask_the_same_at_once(tmp_path):
    with (
        AnswerCache(tmp_path, SUBJECT, []),
        pytest.raises(FileAccessError, match="another process"),
    ):
        AnswerCache(tmp_path, SUBJECT, [])
    AnswerCache(tmp_path, SUBJECT, []).close()


def test_size_is_bounded(filled, monkeypatch):
    size = filled.stat().st_size
    monkeypatch.setattr(answer_cache, "MAX_CACHE_BYTES", size + 10)
    with (
        AnswerCache(filled.parent, SUBJECT, KEYS) as cache,
        pytest.raises(FileAccessError, match="exceed"),
    ):
        cache.add([(KEYS[0], ANSWERS[0])])
    assert filled.stat().st_size == size
    monkeypatch.setattr(answer_cache, "MAX_CACHE_BYTES", size - 1)
    with pytest.raises(InputError, match="larger"):
        reload(filled)
    monkeypatch.setattr(answer_cache, "MAX_LINE_BYTES", 40)
    monkeypatch.setattr(answer_cache, "MAX_CACHE_BYTES", size)
    with pytest.raises(InputError, match="too long"):
        reload(filled)


def test_full_disk_leaves_whole_lines(filled, monkeypatch):
    content, write = filled.read_bytes(), os.write

    def half(handle, content):
        if len(content) < 40:
            raise OSError(28, "No space left on device")
        return write(handle, content[: len(content) // 2])

    with AnswerCache(filled.parent, SUBJECT, KEYS) as cache:
        monkeypatch.setattr(os, "write", half)
        with pytest.raises(FileAccessError, match="No space left"):
            cache.add([(KEYS[0], ANSWERS[0])])
        monkeypatch.undo()

    assert filled.read_bytes() == content


def test_folder_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").write_text("")

    with pytest.raises(FileAccessError, match="cannot write"):
        AnswerCache(tmp_path / "file", SUBJECT, [])
