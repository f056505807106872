from __future__ import annotations

import gzip
import json

import pytest

import nsmark.attacks.labelled
from nsmark.attacks.labelled import read_labelled
from nsmark.errors import FileAccessError, InputError

ROWS = [("A first  text, with a comma.", "good"), ('A "second" text', "bad"), ("Größe – 3", "good")]
FOUND = (["A first text, with a comma.", 'A "second" text', "Größe – 3"], ["good", "bad", "good"])


def as_json() -> str:
    return "".join(json.dumps({"label": label, "text": text}) + "\n" for text, label in ROWS)


def as_table(delimiter: str) -> str:
    quoted = [[f'"{cell.replace(chr(34), 2 * chr(34))}"' for cell in row] for row in ROWS]
    return "\r\n".join(delimiter.join(row) for row in [["text", "label"], *quoted])


CONTENTS = {
    "task.jsonl": as_json(),
    "task.ndjson": as_json(),
    "task.csv": as_table(","),
    "task.tsv": as_table("\t"),
    "TASK.CSV": as_table(","),
}


@pytest.mark.parametrize("name", CONTENTS)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_every_format_gives_the_same_rows(tmp_path, name, packed, encoding):
    content = CONTENTS[name].encode(encoding)
    path = tmp_path / (f"{name}.gz" if packed else name)
    path.write_bytes(gzip.compress(content) if packed else content)
    assert read_labelled(path) == FOUND


def test_labels_may_be_numbers_and_other_columns_do_not_matter(tmp_path):
    path = tmp_path / "task.jsonl"
    path.write_text('{"text": "a", "label": 1, "id": 7}\n\n  \n{"label": "1", "text": "b"}\n')
    assert read_labelled(path) == (["a", "b"], ["1", "1"])
    path = tmp_path / "task.csv"
    path.write_text("id,label,text\n7,1,a\n8,2,b\n")
    assert read_labelled(path) == (["a", "b"], ["1", "2"])


def test_rows_with_an_empty_text_are_left_out_with_their_labels(tmp_path):
    path = tmp_path / "task.jsonl"
    path.write_text('{"text": " ", "label": "x"}\n{"text": "a", "label": "y"}\n')
    assert read_labelled(path) == (["a"], ["y"])


@pytest.mark.parametrize(
    "row",
    [
        '{"text": "a"}',
        '{"label": "x"}',
        '{"text": null, "label": "x"}',
        '{"text": 3, "label": "x"}',
        '{"text": "a", "label": null}',
        '{"text": "a", "label": 0.5}',
        '{"text": "a", "label": ["x"]}',
        '["a", "x"]',
        '"text"',
        "3",
    ],
)
def test_a_row_without_text_and_label_is_refused_by_number(tmp_path, row):
    path = tmp_path / "task.jsonl"
    path.write_text('{"text": "a", "label": "x"}\n' + row + "\n")
    with pytest.raises(InputError, match="row 2 has no text and label"):
        read_labelled(path)


@pytest.mark.parametrize("content", ["text;label\na;x\n", "a,x\nb,y\n", "text,label\na\n"])
def test_a_table_without_these_columns_is_refused(tmp_path, content):
    path = tmp_path / "task.csv"
    path.write_text(content)
    with pytest.raises(InputError, match="row 1"):
        read_labelled(path)


@pytest.mark.parametrize("line", ["{", "text", "[" * 100_000, '{"label": ' + "9" * 5000 + "}"])
def test_a_line_that_is_no_json_is_refused_by_number(tmp_path, line):
    path = tmp_path / "task.jsonl"
    path.write_text('{"text": "a", "label": "x"}\n' + line)
    with pytest.raises(InputError, match="line 2"):
        read_labelled(path)


def test_a_table_with_an_endless_cell_is_refused(tmp_path):
    path = tmp_path / "task.csv"
    path.write_text('text,label\n"' + "a" * 200_000)
    with pytest.raises(InputError, match="no table"):
        read_labelled(path)


@pytest.mark.parametrize("name", ["task", "task.txt", "task.json", "task.parquet", "task.gz"])
def test_other_formats_are_refused(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(gzip.compress(as_json().encode()) if name.endswith("gz") else b"text")
    with pytest.raises(InputError, match="no file of labelled texts") as caught:
        read_labelled(path)
    assert ".jsonl" in caught.value.hint


def test_other_encodings_are_refused(tmp_path):
    path = tmp_path / "task.csv"
    path.write_bytes(as_table(",").encode("utf-16"))
    with pytest.raises(InputError, match="UTF-8"):
        read_labelled(path)


def test_a_file_that_is_not_there_cannot_be_read(tmp_path):
    with pytest.raises(FileAccessError):
        read_labelled(tmp_path / "task.csv")


@pytest.mark.parametrize("damage", ["cut", "other", "checksum", "empty"])
def test_a_damaged_gzip_file_is_refused(tmp_path, damage):
    whole = bytearray(gzip.compress(as_json().encode() * 50))
    content = {
        "cut": whole[: len(whole) // 2],
        "other": b"text,label\n",
        "checksum": whole[:-8] + bytes(8),
        "empty": b"\x1f\x8b",
    }[damage]
    path = tmp_path / "task.jsonl.gz"
    path.write_bytes(bytes(content))
    with pytest.raises(InputError, match="gzip"):
        read_labelled(path)


def test_large_files_are_refused_packed_or_not(tmp_path, monkeypatch):
    monkeypatch.setattr(nsmark.attacks.labelled, "_MAX_BYTES", 1000)
    rows = b'{"text": "a", "label": "x"}\n' * 36  # 1008 bytes
    for name, content in (("a.jsonl", rows), ("b.jsonl.gz", gzip.compress(rows))):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match="larger than"):
            read_labelled(tmp_path / name)
    (tmp_path / "c.jsonl.gz").write_bytes(gzip.compress(rows[:980]))
    assert len(read_labelled(tmp_path / "c.jsonl.gz")[0]) == 35


def test_a_bomb_is_not_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr(nsmark.attacks.labelled, "_MAX_BYTES", 1 << 20)
    asked = []

    class Watched(gzip.GzipFile):
        def read(self, size=-1):
            asked.append(size)
            return super().read(size)

    monkeypatch.setattr(nsmark.attacks.labelled.gzip, "GzipFile", Watched)
    path = tmp_path / "task.csv.gz"
    path.write_bytes(gzip.compress(bytes(64 << 20)))
    with pytest.raises(InputError, match="unpacked"):
        read_labelled(path)
    assert asked == [(1 << 20) + 1]
