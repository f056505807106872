"""Corpora and pools as text, CSV, TSV and JSON lines, packed or not; and hostile ones."""

from __future__ import annotations

import contextlib
import gzip
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from text_formats import FORMATS, TABLES, separated, write

from nsmark.core.texts import decode_lines, lines_digest, normalise_text
from nsmark.errors import FileAccessError, TextPoolError, UsageError
from nsmark.payload import read_texts, text_files
from nsmark.payload.sources import rows, stream

TEXTS = ["one two", "café, “quoted”", 'say "hi"', "a;b", "nul \x00 byte", "日本語 текст", "last"]
DIGEST = "90a90fff9c0be15aa8394cf77a7b02303f0f06f96236b84dc54b682d0df61dcf"  # by hashlib
NAMES = [name + packed for name in FORMATS for packed in ("", ".gz")]

quick = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
any_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


@pytest.mark.parametrize("name", NAMES)
def test_every_format_gives_the_same_texts_and_the_same_digest(tmp_path, name):
    path = write(tmp_path, name, FORMATS[name.removesuffix(".gz")](TEXTS))

    for source in (path, str(path)):
        assert read_texts(source) == TEXTS
    assert lines_digest(read_texts(path)) == DIGEST


@pytest.mark.parametrize("name", TABLES)
@quick
@given(texts=st.lists(any_text, min_size=1, max_size=8))
def test_texts_survive_a_table(tmp_path, name, texts):
    path = write(tmp_path, name, TABLES[name](["kept", *texts]))

    expected = [text for text in map(normalise_text, ["kept", *texts]) if text]
    assert read_texts(path) == expected


@quick
@given(octets=st.binary(max_size=60) | any_text.map(str.encode))
def test_plain_text_is_read_as_the_specification_says(tmp_path, octets):
    path = write(tmp_path, "t.txt", octets)
    try:
        expected = decode_lines(octets)
    except UnicodeDecodeError as error:
        with pytest.raises(TextPoolError, match=f"byte {error.start} "):
            read_texts(path)
    else:
        if expected:
            assert read_texts(path) == expected


@quick
@given(
    octets=st.binary(max_size=80),
    name=st.sampled_from([n + g for n in TABLES for g in ("", ".gz")]),
)
def test_no_bytes_raise_anything_but_our_errors(tmp_path, octets, name):
    (tmp_path / name).write_bytes(octets)
    with contextlib.suppress(TextPoolError):
        assert all(read_texts(tmp_path / name))


def test_a_byte_order_mark_and_new_lines_in_quotes_are_no_part_of_a_text(tmp_path):
    path = write(tmp_path, "t.csv", '\ufefftext\r\n"two\r\n\nlines"\r\n\r\n""\r\nlast'.encode())
    assert read_texts(path) == ["two lines", "last"]
    path = write(tmp_path, "t.jsonl", '\ufeff{"text": "a\\nb"}\r\n\r\n{"text": null}\n"c"'.encode())
    assert read_texts(path) == ["a b", "c"]


# --- columns -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.jsonl", "t.jsonl.gz"])
def test_a_column_is_named_after_a_hash(tmp_path, name):
    octets = b'{"a b": "x"}\n{"a b": "y"}' if "json" in name else b"n,a b\n1,x\n2,y\n"
    path = write(tmp_path, name, octets)

    assert read_texts(f"{path}#a b") == ["x", "y"]
    with pytest.raises(TextPoolError, match=r"no column 'text'; it has: .*'a b'") as caught:
        read_texts(path)
    assert "FILE#column" in caught.value.hint


def test_a_hash_in_a_file_name_is_not_a_column(tmp_path):
    path = write(tmp_path, "a#b.csv", separated(["x"], column="other"))
    assert read_texts(f"{path}#other") == ["x"]
    assert read_texts(str(write(tmp_path, "c#d", b"plain"))) == ["plain"]
    assert read_texts(write(tmp_path, "e#f", b"plain")) == ["plain"]


def test_plain_text_has_no_columns(tmp_path):
    path = write(tmp_path, "t.txt", b"x")
    with pytest.raises(UsageError, match="plain text"):
        read_texts(f"{path}#text")


@pytest.mark.parametrize("source", ["", "#", "#text", "t.csv#"])
def test_half_a_source_is_wrong_usage(source):
    with pytest.raises(UsageError) as caught:
        read_texts(source)
    assert caught.value.hint


def test_a_long_list_of_columns_is_cut(tmp_path):
    header = ",".join(f"column {i} {'x' * 99}" for i in range(500))
    with pytest.raises(TextPoolError, match="and 480 more") as caught:
        read_texts(write(tmp_path, "t.csv", header.encode()))
    assert len(str(caught.value)) < 2000


def test_a_column_twice_is_refused(tmp_path):
    with pytest.raises(TextPoolError, match="2 columns 'text'"):
        read_texts(write(tmp_path, "t.csv", b"text,text\na,b\n"))


# --- malformed -----------------------------------------------------------------------------------

DEEP = b'{"text": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"

MALFORMED = [
    ("t.csv", b"text,n\na,1\nb\n", r"row 2 \(line 3\): 1 fields, the header has 2"),
    ("t.csv", b'text,n\n"a\na",1\n\nb,1,2\n', r"row 2 \(line 5\): 3 fields"),
    ("t.csv", b'text\n"never closed\n', r"row 1 \(line 2\): unexpected end"),
    ("t.csv", b'text\n"a"b\n', r"row 1 \(line 2\): "),
    ("t.csv", b"text\n" + b"x" * 200_000, r"row 1 \(line 2\): field larger"),
    ("t.csv", b'text\ngood\n"bad \xff"', r"byte 15 \(line 3\)"),
    ("t.tsv", b"text\tn\na\t1\nb,1\n", r"row 2 \(line 3\)"),
    ("t.jsonl", b'{"text": "a"}\n{"text": \n', "line 2: not JSON"),
    ("t.jsonl", b'"a"\n"raw \x00 nul"\n', "line 2: not JSON"),
    ("t.jsonl", b'"a"\n\n{"text": 5}\n', "line 3: 'text' is of type int"),
    ("t.jsonl", b'{"text": ["a"]}', "line 1: 'text' is of type list"),
    ("t.jsonl", b'"a"\n["a"]', "line 2: a JSON list"),
    ("t.jsonl", b'"a"\nnull', "line 2: a JSON NoneType"),
    ("t.jsonl", b'"a"\n{"other": "x"}', "line 2 has no column 'text'; it has: 'other'"),
    ("t.jsonl", b"{}", "it has: none"),
    ("t.jsonl", rb'"a"' + b"\n" + rb'{"text": "\ud800"}', "line 2: 'text' holds half"),
    ("t.jsonl", b'{"text": ' + b"9" * 5000 + b"}", "line 1: not JSON"),
    ("t.jsonl", DEEP, "line 1: not JSON: nested too deeply"),
    ("t.jsonl", b'"a"\n"\xe9"', r"byte 5 \(line 2\)"),
    ("t.json", b'["a"]', ".json is no format"),
    ("t.json.gz", b'["a"]', ".json.gz is no format"),
    ("t.parquet.gz", b"PAR1", ".parquet.gz is no format"),
]


@pytest.mark.parametrize(("name", "octets", "message"), MALFORMED)
def test_a_malformed_row_is_named(tmp_path, name, octets, message):
    path = write(tmp_path, name, octets)
    with pytest.raises(TextPoolError, match=message) as caught:
        read_texts(path)
    assert path.name in str(caught.value)
    assert caught.value.hint


def test_a_string_has_no_field(tmp_path):
    path = write(tmp_path, "t.jsonl", b'"a"')
    with pytest.raises(TextPoolError, match="line 1: a JSON str"):
        read_texts(f"{path}#text")


@pytest.mark.parametrize("octets", [b"", b"\n", b"\xef\xbb\xbf", b" \r\n"])
@pytest.mark.parametrize("name", ["t.txt.gz", "t.csv", "t.csv.gz", "t.jsonl", "t.jsonl.gz"])
def test_nothing_in_it_is_an_error(tmp_path, name, octets):
    with pytest.raises(TextPoolError, match=r"no text|no column"):
        read_texts(write(tmp_path, name, octets))


@pytest.mark.parametrize("octets", [b"text\n", b"text,n\n,1\n , \n"])
def test_a_table_without_a_text_is_an_error(tmp_path, octets):
    with pytest.raises(TextPoolError, match="no text"):
        read_texts(write(tmp_path, "t.csv", octets))


@pytest.mark.parametrize(
    "name", ["no.txt", "no.csv", "no.jsonl.gz", "no.csv#text", "no.txt#a", "a\0"]
)
def test_a_missing_file_is_named(tmp_path, name):
    with pytest.raises(FileAccessError, match="cannot read text file") as caught:
        read_texts(str(tmp_path / name))
    assert caught.value.hint


def test_a_folder_is_answered_with_how_to_write_one(tmp_path):
    with pytest.raises(FileAccessError) as caught:
        read_texts(str(tmp_path))
    assert "dataset:" in caught.value.hint


# --- packed --------------------------------------------------------------------------------------

# Without the time: test names are made of it, and every test process must find the same ones.
PACKED = gzip.compress(b"some text\n" * 1000, mtime=0)


@pytest.mark.parametrize(
    "octets",
    [
        b"no gzip",
        b"\x1f\x8b",
        PACKED[:10],
        PACKED[:-1],
        PACKED[:-9],
        PACKED + b"tail",
        PACKED[:20] + b"?" * 30,
    ],
    ids=["no gzip", "two bytes", "header", "short", "no checksum", "tail", "garbage"],
)
@pytest.mark.parametrize("name", ["t.txt.gz", "t.csv.gz", "t.jsonl.gz"])
def test_a_damaged_archive_is_refused(tmp_path, name, octets):
    (tmp_path / name).write_bytes(octets)
    with pytest.raises(TextPoolError) as caught:
        read_texts(tmp_path / name)
    if name == "t.txt.gz":
        assert "not a whole gzip file" in str(caught.value)


def test_members_of_an_archive_follow_each_other(tmp_path):
    (tmp_path / "t.gz").write_bytes(gzip.compress(b"one\ntw") + gzip.compress(b"o\n"))
    assert read_texts(tmp_path / "t.gz") == ["one", "two"]


@pytest.mark.parametrize("name", ["t.txt.gz", "t.csv.gz", "t.jsonl.gz"])
def test_a_bomb_is_stopped_while_it_unpacks(tmp_path, monkeypatch, name):
    monkeypatch.setattr(text_files, "MAX_TEXT_FILE_BYTES", 1 << 18)
    line = {"t": b"text\n", "c": b"text\n", "j": b'"x"\n'}[name[2]]
    path = write(tmp_path, name, line * (1 << 22))
    assert path.stat().st_size < 1 << 17
    taken = []
    take = stream.Budget.take
    monkeypatch.setattr(stream.Budget, "take", lambda self, n: taken.append(n) or take(self, n))

    with pytest.raises(TextPoolError, match="larger than 262,144 bytes"):
        read_texts(path)
    assert sum(taken) < 1 << 19  # of 16 MiB


def test_a_large_file_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(text_files, "MAX_TEXT_FILE_BYTES", 8)
    assert read_texts(write(tmp_path, "t", b"a\n" * 4)) == ["a"] * 4
    with pytest.raises(TextPoolError, match="larger than 8 bytes"):
        read_texts(write(tmp_path, "t", b"a\n" * 4 + b"b"))


@pytest.mark.parametrize(
    "octets", [b'text\n"' + b'","' * 99, b'text\n"' + b'x\n"\n"' * 5 + b"y\n" * 99]
)
def test_one_record_is_bounded(tmp_path, monkeypatch, octets):
    monkeypatch.setattr(rows, "MAX_RECORD_BYTES", 64)
    with pytest.raises(TextPoolError, match="longer than 64 bytes"):
        read_texts(write(tmp_path, "t.csv", octets))
    with pytest.raises(TextPoolError, match="line 2: longer than 64 bytes"):
        read_texts(write(tmp_path, "t.jsonl", b'"a"\n' + json.dumps("x" * 99).encode()))


def test_rows_are_bounded(tmp_path, monkeypatch):
    def small(source: str, max_bytes: int) -> stream.Budget:
        return stream.Budget(source, max_bytes, max_rows=3)

    monkeypatch.setattr(text_files, "Budget", small)
    for name, make in FORMATS.items():
        assert len(read_texts(write(tmp_path, name, make(["a"] * 3)))) == 3
        with pytest.raises(TextPoolError, match="larger than 3 rows"):
            read_texts(write(tmp_path, name, make(["a"] * 4)))


def test_a_device_without_end_is_bounded(monkeypatch):
    monkeypatch.setattr(text_files, "MAX_TEXT_FILE_BYTES", 1 << 18)
    with pytest.raises(TextPoolError, match="larger than"):
        read_texts(Path("/dev/zero"))
