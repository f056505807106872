"""``--set k=v`` into a frozen settings record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

from nsmark.errors import ConfigError, UsageError

Settings = TypeVar("Settings")

COUNTED = ("ordinary", "task")
"""Texts that filters of queries are made from: any a thief has found, or what his users send."""

_READERS = {"int": int, "float": float, "str": str}


def parse_settings(record: type[Settings], settings: Mapping[str, str]) -> Settings:
    """Build a settings dataclass from text, each value read as its field's type.

    Raises:
        UsageError: A name is unknown.
        ConfigError: A value is of the wrong type or out of range.
    """
    known = {field.name: str(field.type) for field in fields(record)}  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for name, text in settings.items():
        if name not in known:
            raise UsageError(
                f"unknown setting {name[:40]!r}", f"known settings: {', '.join(sorted(known))}"
            )
        try:
            values[name] = _READERS[known[name]](text)
        except ValueError as error:
            raise ConfigError(name, text, f"must be of type {known[name]}") from error
    return record(**values)


def check_counted(texts: str) -> None:
    """Refuse names of texts that are none of :data:`COUNTED`."""
    if texts not in COUNTED:
        raise ConfigError("texts", texts, f"must be one of {', '.join(COUNTED)}")
