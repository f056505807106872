"""Columnar formats, through pyarrow: Parquet, and the Arrow streams that ``save_to_disk`` writes.

Both can say much with few bytes: a dictionary of one long text and a million references to it. The
texts are therefore counted one by one as they become Python strings, never a column at once.
"""

from __future__ import annotations

import contextlib
import errno
import stat
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nsmark.errors import MissingExtraError, TextPoolError
from nsmark.payload.sources.columns import DEFAULT_COLUMN, cell_text, missing_column
from nsmark.payload.sources.stream import Budget, unreadable

_BATCH_ROWS = 1024


def import_pyarrow() -> Any:
    """Return pyarrow, with what we use of it loaded.

    Raises:
        MissingExtraError: It is not installed.
    """
    try:
        import pyarrow
        import pyarrow.ipc
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError("pyarrow", "data") from error
    return pyarrow


def parquet_texts(path: Path, column: str | None, budget: Budget) -> Iterator[str]:
    """Yield one column of a Parquet file, row group by row group."""
    pa = import_pyarrow()
    name = column or DEFAULT_COLUMN
    with _readable(path, budget, "Parquet", pa):
        _check_column(path, pa.parquet.read_schema(path), name, pa)
        # A dictionary stays a dictionary: pages of references are not spelled out by the reader.
        file = pa.parquet.ParquetFile(path, read_dictionary=[name])
        with file:
            # Of the metadata only this: asking for a damaged column chunk's statistics ends the
            # interpreter (an uncaught C++ exception, pyarrow 26), where reading it raises.
            if file.metadata.num_rows > budget.max_rows:
                raise budget.exceeded(f"{budget.max_rows:,} rows")
            batches = file.iter_batches(_BATCH_ROWS, columns=[name], use_threads=False)
            yield from _cells(path, (batch.column(0) for batch in batches), name, budget)


def arrow_texts(path: Path, column: str | None, budget: Budget) -> Iterator[str]:
    """Yield one column of an Arrow stream file."""
    pa = import_pyarrow()
    name = column or DEFAULT_COLUMN
    with _readable(path, budget, "Arrow", pa), pa.memory_map(str(path)) as file:
        _refuse_packed(path, file, pa)
        file.seek(0)
        with pa.ipc.open_stream(file) as reader:
            _check_column(path, reader.schema, name, pa)
            columns = _validated(reader, reader.schema.get_field_index(name))
            yield from _cells(path, columns, name, budget)


@contextlib.contextmanager
def _readable(path: Path, budget: Budget, what: str, pa: Any) -> Iterator[None]:
    """Check the file's size, and turn what pyarrow raises into our errors."""
    _check_file(path, budget)
    try:
        yield
    except (pa.ArrowException, MemoryError, struct.error, UnicodeDecodeError) as error:
        # UnicodeDecodeError: the name of a column; cells are decoded, and named, one by one.
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise TextPoolError(
            f"{path} is not a {what} file that can be read: {reason}", "write or fetch it again"
        ) from error
    except OSError as error:
        # pyarrow reports damaged pages as OSError without an errno; the system's own have one.
        if error.errno is None:
            raise TextPoolError(
                f"{path} is a damaged {what} file: {str(error)[:200]}", "write or fetch it again"
            ) from error
        raise unreadable(path, error) from error


def _check_file(path: Path, budget: Budget) -> None:
    """Refuse what is missing, too large, or no file (pyarrow would wait on a pipe)."""
    try:
        status = path.stat()
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from error
    if stat.S_ISDIR(status.st_mode):
        raise unreadable(path, IsADirectoryError(errno.EISDIR, "Is a directory"))
    if not stat.S_ISREG(status.st_mode):
        raise unreadable(path, OSError(errno.EINVAL, "Not a regular file"))
    if status.st_size > budget.max_bytes:
        raise budget.exceeded(f"{budget.max_bytes:,} bytes")


def _check_column(path: Path, schema: Any, name: str, pa: Any) -> None:
    """Refuse a file without the column, with two of it, or with something else in it."""
    if name not in schema.names:
        raise missing_column(str(path), name, schema.names)
    if schema.names.count(name) > 1:
        raise TextPoolError(f"{path} has several columns {name!r}", "give them different names")
    kind = schema.field(name).type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise TextPoolError(
            f"{path}: column {name!r} is of type {kind}, not text",
            "choose a column of texts with FILE#column",
        )


def _cells(path: Path, columns: Iterator[Any], name: str, budget: Budget) -> Iterator[str]:
    number = 0
    for column in columns:
        for cell in column:
            number += 1
            budget.take_row()
            where = f"{path}, row {number}"
            try:
                text = cell_text(cell.as_py(), where, name)
            except UnicodeDecodeError as error:  # pyarrow does not check what is called a string
                raise TextPoolError(
                    f"{where}: not UTF-8 text: byte {error.start} of {name!r} cannot be decoded",
                    "write the file again from valid text",
                ) from error
            budget.take(len(text))
            yield text


def _validated(reader: Any, index: int) -> Iterator[Any]:
    for batch in reader:
        column = batch.column(index)
        # The offsets are the file's word: unchecked, they would be read outside the file.
        column.validate(full=True)
        yield column


def _refuse_packed(path: Path, file: Any, pa: Any) -> None:
    """Refuse compressed batches: pyarrow unpacks a whole one before its size can be known.

    ``save_to_disk`` writes neither compressed batches nor dictionaries.
    """
    for message in pa.ipc.MessageReader.open_stream(file):
        if message.type == "schema":
            continue
        if message.type != "record batch" or _is_packed(message.metadata.to_pybytes()):
            raise TextPoolError(
                f"{path} holds compressed or dictionary batches, which cannot be read safely",
                "save the dataset again with save_to_disk, or as Parquet",
            )


def _is_packed(metadata: bytes) -> bool:
    """Say whether an Arrow message of a record batch names a compression.

    The flatbuffer is ``Message { version, header type, header: RecordBatch, … }`` with
    ``RecordBatch { length, nodes, buffers, compression, … }``; pyarrow has verified its offsets.
    """

    def field(table: int, index: int) -> int:
        vtable = table - struct.unpack_from("<i", metadata, table)[0]
        slot = 4 + 2 * index
        if slot >= struct.unpack_from("<H", metadata, vtable)[0]:
            return 0
        offset: int = struct.unpack_from("<H", metadata, vtable + slot)[0]
        return table + offset if offset else 0

    header = field(struct.unpack_from("<I", metadata, 0)[0], 2)
    batch: int = header + struct.unpack_from("<I", metadata, header)[0]
    return field(batch, 3) != 0
