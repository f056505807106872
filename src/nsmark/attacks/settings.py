"""Checks of settings, and reading them from ``k=v``."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields
from typing import Any, TypeVar

from nsmark.errors import ConfigError, UsageError

Settings = TypeVar("Settings")

SEEDS = (0, 2**63 - 1)
COUNTED = ("ordinary", "task")
"""Texts that filters of queries are made from: any a thief has found, or what his users send."""

_READERS = {"int": int, "float": float, "str": str}


def check_ranges(settings: object, **ranges: tuple[float, float]) -> None:
    """Refuse numbers below the first or above the second, and what is no number.

    Raises:
        ConfigError: Names the first such setting.
    """
    for name, (lowest, highest) in ranges.items():
        value = getattr(settings, name)
        if not lowest <= value <= highest:  # no comparison with nan is true
            raise ConfigError(name, value, f"must lie between {lowest:g} and {highest:g}")


def check_positive(settings: object, **highest: float) -> None:
    """Refuse numbers that are not above 0 or above the highest, and what is no number.

    Raises:
        ConfigError: Names the first such setting.
    """
    for name, most in highest.items():
        value = getattr(settings, name)
        if not 0 < value <= most:
            raise ConfigError(name, value, f"must be above 0 and at most {most:g}")


def check_words(settings: object, **words: Collection[str]) -> None:
    """Refuse words that are none of those.

    Raises:
        ConfigError: Names the first such setting.
    """
    for name, known in words.items():
        value = getattr(settings, name)
        if value not in known:
            raise ConfigError(name, value, f"must be one of {', '.join(known)}")


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
