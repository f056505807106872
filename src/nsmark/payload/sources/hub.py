"""Datasets of the Hugging Face hub, streamed through package ``datasets``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nsmark.errors import MissingExtraError, NsmarkError, TextPoolError, UsageError
from nsmark.payload.sources.columns import DEFAULT_COLUMN, cell_text, missing_column
from nsmark.payload.sources.folders import choose_split
from nsmark.payload.sources.stream import Budget

_BUILDERS = ("arrow", "csv", "json", "parquet", "text")
"""The readers of ``datasets`` that only read; others unpack, decode or unpickle what they find."""


def hub_texts(
    name: str, config: str | None, split: str | None, column: str | None, budget: Budget
) -> Iterator[str]:
    """Yield one column of a dataset of the hub.

    Raises:
        MissingExtraError: Package ``datasets`` is not installed.
        UsageError: A folder here has the same name.
        TextPoolError: Offline, unknown, not to be read safely, or malformed.
    """
    if Path(name).exists():
        # Package datasets would silently prefer the folder.
        raise UsageError(
            f"{name} is a name on the hub and a path here",
            f"for the folder write dataset:./{name}; for the hub start nsmark elsewhere",
        )
    yield from stream_texts(name, config, split, column, budget)


def stream_texts(
    name: str, config: str | None, split: str | None, column: str | None, budget: Budget
) -> Iterator[str]:
    """Yield one column of what package ``datasets`` finds under a name."""
    datasets = _import_datasets()
    field = column or DEFAULT_COLUMN
    source = f"dataset {name}"
    try:
        builder = datasets.load_dataset_builder(name, config)
        _check_builder(source, builder)
        splits = builder.as_streaming_dataset(split=None)
        rows = splits[choose_split(source, [str(key) for key in splits], split)]
        yield from _cells(source, rows, field, budget)
    except (NsmarkError, MemoryError):
        raise
    except Exception as error:  # the hub's client raises whatever its own libraries raise
        reason = (str(error).splitlines() or [""])[0][:200]
        raise TextPoolError(
            f"cannot read {source}: {type(error).__name__}: {reason}",
            "names are NAME, OWNER/NAME or OWNER/NAME/CONFIG, and the hub must be reachable; "
            "offline, give a file or dataset:./folder",
        ) from error


def _import_datasets() -> Any:
    try:
        import datasets
    except ImportError as error:
        raise MissingExtraError("datasets", "data") from error
    return datasets


def _check_builder(source: str, builder: Any) -> None:
    allowed = {f"datasets.packaged_modules.{name}.{name}" for name in _BUILDERS}
    if type(builder).__module__ not in allowed:
        raise TextPoolError(
            f"{source} is neither Parquet, JSON, CSV, text nor Arrow, or needs code of its own",
            "export its texts to a file and give that",
        )


def _cells(source: str, rows: Any, field: str, budget: Budget) -> Iterator[str]:
    if rows.column_names is not None:
        if field not in rows.column_names:
            raise missing_column(source, field, rows.column_names)
        rows = rows.select_columns([field])  # pictures and sounds beside the text stay undecoded
    for number, row in enumerate(rows, start=1):
        budget.take_row()
        if field not in row:
            raise missing_column(f"{source}, row {number}", field, list(row))
        text = cell_text(row[field], f"{source}, row {number}", field)
        budget.take(len(text))
        yield text
