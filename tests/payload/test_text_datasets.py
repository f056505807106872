"""Corpora and pools as Parquet, dataset folders and datasets of the hub."""

from __future__ import annotations

import builtins
import json

import pytest

pa = pytest.importorskip("pyarrow", reason="needs the data extra")
datasets = pytest.importorskip("datasets", reason="needs the data extra")

import pyarrow.parquet as pq  # noqa: E402
from hypothesis import HealthCheck, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from text_formats import json_lines, parquet, separated, write  # noqa: E402

from nsmark.core.texts import lines_digest, normalise_text  # noqa: E402
from nsmark.errors import (  # noqa: E402
    FileAccessError,
    MissingExtraError,
    TextPoolError,
    UsageError,
)
from nsmark.payload import read_texts, text_files  # noqa: E402
from nsmark.payload.sources.hub import stream_texts  # noqa: E402
from nsmark.payload.sources.stream import Budget  # noqa: E402

TEXTS = ["one two", "café", 'say "hi"', "nul \x00 byte", "日本語 текст", "last", "one two"]
any_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
quick = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.fixture(autouse=True)
def no_bars():
    datasets.disable_progress_bars()


def saved(folder, texts=TEXTS, **splits):
    if splits:
        kept = {k: datasets.Dataset.from_dict({"text": v}) for k, v in splits.items()}
        datasets.DatasetDict(kept).save_to_disk(folder)
    else:
        datasets.Dataset.from_dict({"n": range(len(texts)), "text": texts}).save_to_disk(folder)
    return f"dataset:{folder}"


# --- Parquet -------------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", ["none", "snappy", "zstd", "gzip"])
@pytest.mark.parametrize("dictionary", [False, True])
@pytest.mark.parametrize("kind", ["string", "large_string", "dictionary"])
def test_parquet_gives_the_same_texts(tmp_path, compression, dictionary, kind):
    array = pa.array(TEXTS)
    array = array.dictionary_encode() if kind == "dictionary" else array.cast(kind)
    table = pa.table({"text": array, "n": range(len(TEXTS))})
    path = tmp_path / "t.parquet"
    pq.write_table(
        table, path, compression=compression, use_dictionary=dictionary, row_group_size=2
    )
    assert read_texts(path) == TEXTS
    assert lines_digest(read_texts(f"{path}#text")) == lines_digest(TEXTS)


@quick
@given(texts=st.lists(any_text, max_size=9))
def test_texts_survive_parquet(tmp_path, texts):
    path = write(tmp_path, "t.parquet", parquet(["kept", *texts]))
    assert read_texts(path) == [t for t in map(normalise_text, ["kept", *texts]) if t]


def test_columns_of_parquet(tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"body": ["x", None, ""], "n": [1, 2, 3], "raw": [b"x"] * 3}), path)
    assert read_texts(f"{path}#body") == ["x"]
    with pytest.raises(TextPoolError, match="no column 'text'; it has: 'body', 'n', 'raw'"):
        read_texts(path)
    for column, kind in (("n", "int64"), ("raw", "binary")):
        with pytest.raises(TextPoolError, match=f"'{column}' is of type {kind}, not text"):
            read_texts(f"{path}#{column}")


def test_parquet_that_is_not_utf8_names_the_row(tmp_path):
    offsets, octets = pa.array([0, 1, 3], pa.int32()).buffers()[1], pa.py_buffer(b"ab\xff")
    array = pa.StringArray.from_buffers(2, offsets, octets)
    pq.write_table(pa.table({"text": array}), tmp_path / "t.parquet")
    with pytest.raises(TextPoolError, match="row 2: not UTF-8 text: byte 1 "):
        read_texts(tmp_path / "t.parquet")


def test_column_names_that_are_not_utf8_are_our_error(tmp_path):
    octets = parquet(TEXTS).replace(b"text", b"te\xff\xff")
    with pytest.raises(TextPoolError, match="Parquet"):
        read_texts(write(tmp_path, "t.parquet", octets))


@quick
@given(data=st.data())
def test_damaged_parquet_is_our_error(tmp_path, data):
    octets = bytearray(parquet(TEXTS))
    if data.draw(st.booleans()):
        octets = octets[: data.draw(st.integers(0, len(octets) - 1))]
    else:
        for place in data.draw(st.lists(st.integers(0, len(octets) - 1), min_size=1, max_size=4)):
            octets[place] ^= data.draw(st.integers(1, 255))
    path = write(tmp_path, "t.parquet", bytes(octets))
    try:
        read_texts(path)
    except TextPoolError as error:
        assert error.hint  # noqa: PT017 - a changed byte may also do no harm


def test_an_empty_parquet_file_has_no_text(tmp_path):
    with pytest.raises(TextPoolError, match="no text"):
        read_texts(write(tmp_path, "t.parquet", parquet([])))
    with pytest.raises(TextPoolError, match="Parquet"):
        read_texts(write(tmp_path, "t.parquet", b""))
    for name in ("missing.parquet", "."):
        with pytest.raises(FileAccessError, match="cannot read"):
            read_texts(tmp_path / name)


def test_a_dictionary_bomb_is_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(text_files, "MAX_TEXT_FILE_BYTES", 1 << 24)
    path = tmp_path / "t.parquet"
    bomb = pa.DictionaryArray.from_arrays(pa.array([0] * 1_000_000, pa.int32()), ["x" * 100_000])
    pq.write_table(pa.table({"text": bomb}), path)  # 100 GB of text
    assert path.stat().st_size < 1 << 18
    before = pa.default_memory_pool().max_memory()
    with pytest.raises(TextPoolError, match="larger than 16,777,216 bytes"):
        read_texts(path)
    assert pa.default_memory_pool().max_memory() < before + (1 << 28)


def test_a_compression_bomb_is_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(text_files, "MAX_TEXT_FILE_BYTES", 1 << 18)
    path = tmp_path / "t.parquet"
    table = pa.table({"text": ["x" * 1_000_000]})
    pq.write_table(table, path, compression="zstd", use_dictionary=False)
    with pytest.raises(TextPoolError, match="larger than 262,144 bytes"):
        read_texts(path)


# --- folders -------------------------------------------------------------------------------------


def test_what_save_to_disk_wrote_gives_the_same_texts(tmp_path, monkeypatch):
    assert read_texts(saved(tmp_path / "one")) == TEXTS
    source = saved(tmp_path / "two", train=["a"], test=["b", "c"])
    assert read_texts(source) == ["a"]
    assert read_texts(f"{source}:test#text") == ["b", "c"]
    monkeypatch.chdir(tmp_path)
    assert read_texts("dataset:./two:test") == ["b", "c"]
    with pytest.raises(TextPoolError, match="no split 'dev'; it has: 'train', 'test'"):
        read_texts("dataset:./two:dev")
    with pytest.raises(TextPoolError, match="no column 'x'; it has: 'n', 'text'"):
        read_texts("dataset:./one#x")
    with pytest.raises(TextPoolError, match="'n' is of type int64"):
        read_texts("dataset:./one#n")


def test_a_folder_of_data_files_is_read_by_split(tmp_path):
    folder = tmp_path / "data set"
    (folder / "data").mkdir(parents=True)
    (folder / ".cache").mkdir()
    write(folder / ".cache", "train.jsonl", json_lines(["hidden"]))
    write(folder / "data", "train-00001-of-00002.parquet", parquet(["c"]))
    write(folder / "data", "train-00000-of-00002.parquet", parquet(["a", "b"]))
    write(folder, "test.jsonl.gz", json_lines(["t"]))
    write(folder, "README.md", b"# not data")
    assert read_texts(f"dataset:{folder}") == ["a", "b", "c"]
    assert read_texts(f"dataset:{folder}:test#text") == ["t"]
    with pytest.raises(TextPoolError, match="no split 'dev'; it has: 'test', 'train'"):
        read_texts(f"dataset:{folder}:dev")


def test_a_folder_without_split_names_is_one_split(tmp_path):
    write(tmp_path, "a.csv", separated(["a"]))
    write(tmp_path, "b.jsonl", json_lines(["b"]))
    assert read_texts(f"dataset:{tmp_path}") == ["a", "b"]


def test_the_bound_is_for_the_folder_together(tmp_path, monkeypatch):
    for name in "abc":
        write(tmp_path, f"{name}.jsonl", json_lines(["x" * 100]))
    monkeypatch.setattr(text_files, "MAX_TEXT_FILE_BYTES", 300)
    with pytest.raises(TextPoolError, match="larger than 300 bytes"):
        read_texts(f"dataset:{tmp_path}")


@pytest.mark.parametrize("name", ["../secret.arrow", "/etc/passwd", "..", "", 5, None])
def test_a_saved_folder_names_nothing_outside_itself(tmp_path, name):
    saved(tmp_path / "one")
    state = tmp_path / "one" / "state.json"
    state.write_text(json.dumps({"_data_files": [{"filename": name}]}))
    with pytest.raises(TextPoolError, match="not what save_to_disk writes"):
        read_texts(f"dataset:{tmp_path / 'one'}")
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "dataset_dict.json").write_text(json.dumps({"splits": [name]}))
    with pytest.raises(TextPoolError, match="not what save_to_disk writes"):
        read_texts(f"dataset:{tmp_path / 'two'}")


@pytest.mark.parametrize("content", ["", "[]", "{}", "[" * 100_000, '{"_data_files": 5}', "\0"])
def test_a_damaged_manifest_is_refused(tmp_path, content):
    (tmp_path / "state.json").write_text(content)
    with pytest.raises(TextPoolError, match="not what save_to_disk writes"):
        read_texts(f"dataset:{tmp_path}")


def test_missing_and_empty_folders_are_refused(tmp_path):
    with pytest.raises(FileAccessError, match="no such folder"):
        read_texts(f"dataset:{tmp_path}/missing")
    with pytest.raises(TextPoolError, match="holds no"):
        read_texts(f"dataset:{tmp_path}")


@quick
@given(data=st.data())
def test_a_damaged_arrow_file_is_our_error(tmp_path, data):
    if not (tmp_path / "one").exists():
        saved(tmp_path / "one")
        (tmp_path / "kept").write_bytes(next((tmp_path / "one").glob("*.arrow")).read_bytes())
    octets = bytearray((tmp_path / "kept").read_bytes())
    for place in data.draw(st.lists(st.integers(0, len(octets) - 1), min_size=1, max_size=4)):
        octets[place] ^= data.draw(st.integers(1, 255))
    next((tmp_path / "one").glob("*.arrow")).write_bytes(octets[: data.draw(st.integers(8, 9999))])
    try:
        read_texts(f"dataset:{tmp_path / 'one'}")
    except TextPoolError as error:
        assert error.hint  # noqa: PT017 - a changed byte may also do no harm


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_packed_arrow_batches_are_refused(tmp_path, codec):
    saved(tmp_path / "one")
    path = next((tmp_path / "one").glob("*.arrow"))
    table = pa.table({"text": ["x" * 100_000]})
    for compression in (codec, None):
        options = pa.ipc.IpcWriteOptions(compression=compression)
        with pa.ipc.new_stream(path, table.schema, options=options) as writer:
            writer.write_table(table)
        if compression:
            with pytest.raises(TextPoolError, match="compressed or dictionary batches"):
                read_texts(f"dataset:{tmp_path / 'one'}")
    assert len(read_texts(f"dataset:{tmp_path / 'one'}")[0]) == 100_000


# --- the hub -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["imdb", "owner/name", "owner/name/config:test#column", "json"])
def test_offline_or_unknown_is_said_so(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TextPoolError, match="cannot read dataset") as caught:
        read_texts(f"dataset:{name}")
    assert "dataset:./folder" in caught.value.hint


@pytest.mark.parametrize(
    "name",
    ["", "#text", ":train", "a/b/c/d", "a b", "a#", "https://x", "a:", "a:b:c", "-x", "a/../b"],
)
def test_what_names_no_dataset_is_wrong_usage(name):
    with pytest.raises(UsageError) as caught:
        read_texts(f"dataset:{name}")
    assert caught.value.hint


def test_a_folder_never_stands_in_for_the_hub(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "imdb").mkdir()
    with pytest.raises(UsageError, match="a path here"):
        read_texts("dataset:imdb")


def streamed(folder, split=None, column=None, max_bytes=1 << 20):
    """What package datasets makes of a folder: the road of the hub, without the hub."""
    return list(stream_texts(str(folder), None, split, column, Budget("it", max_bytes)))


@pytest.mark.parametrize(("name", "make"), [("train.parquet", parquet), ("a.jsonl", json_lines)])
def test_package_datasets_streams_the_same_texts(tmp_path, monkeypatch, name, make):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    (tmp_path / "d").mkdir()
    write(tmp_path / "d", name, make(TEXTS))
    assert streamed(tmp_path / "d") == streamed(tmp_path / "d", "train", "text") == TEXTS
    with pytest.raises(TextPoolError, match="no column 'x'; it has: 'id', 'text'"):
        streamed(tmp_path / "d", column="x")
    with pytest.raises(TextPoolError, match="'id' is of type int"):
        streamed(tmp_path / "d", column="id")
    with pytest.raises(TextPoolError, match="no split 'test'; it has: 'train'"):
        streamed(tmp_path / "d", "test")
    with pytest.raises(TextPoolError, match="larger than 9 bytes"):
        streamed(tmp_path / "d", max_bytes=9)


def test_builders_that_do_more_than_read_are_refused(tmp_path, monkeypatch):
    class Builder:
        def as_streaming_dataset(self, split):
            raise AssertionError("must not be run")

    Builder.__module__ = "datasets.packaged_modules.pandas.pandas"
    asked = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        datasets,
        "load_dataset_builder",
        lambda *names, **kw: asked.append((names, kw)) or Builder(),
    )
    with pytest.raises(TextPoolError, match="needs code of its own"):
        read_texts("dataset:owner/name/config:test#body")
    assert asked == [(("owner/name", "config"), {})]  # never trust_remote_code


# --- without the extra ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("package", "source"), [("pyarrow", "{}/t.parquet"), ("datasets", "dataset:owner/name")]
)
def test_a_missing_package_names_its_extra(tmp_path, monkeypatch, package, source):
    write(tmp_path, "t.parquet", parquet(TEXTS))
    real = builtins.__import__

    def without(name, *rest):
        if name.partition(".")[0] == package:
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtraError, match=package) as caught:
        read_texts(source.format(tmp_path))
    assert caught.value.hint == "in the folder of nsmark: pip install -c constraints.txt '.[data]'"
