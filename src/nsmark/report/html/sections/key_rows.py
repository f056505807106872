"""What a key says of itself in public, and which software took part."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nsmark.report.html.blocks import code
from nsmark.report.html.markup import Markup
from nsmark.report.html.words import TEXT_LIMIT, clean, count

# Only these may be printed: a configuration with a further field may hold anything.
_CONFIGURATION = {
    "output_dim": "numbers per answer",
    "num_texts": "texts",
    "num_bits": "bits of the signature",
    "spread_factor": "copies of a bit",
    "copies": "copies of the trigger in a text",
    "placement": "placement",
    "pooling": "pooling",
    "normalise": "answers of unit length",
    "max_length": "tokens at most",
    "hidden_sizes": "hidden layers of the extractor",
}


def key_rows(
    key_id: str, key: Mapping[str, Any], versions: Mapping[str, str | None]
) -> tuple[tuple[str, str | None], ...]:
    """Return names and values for a list of facts; a value is None where it is not known."""
    return (
        ("Key", code(clean(key_id, 200)) if key_id else None),
        ("Owner's model (SHA‑256)", _digest(key.get("model_sha256"))),
        ("Pool of texts (SHA‑256)", _digest(key.get("pool_sha256"))),
        ("Word list (SHA‑256)", _digest(key.get("word_list_sha256"))),
        ("Marks", _marks(key)),
        ("Pair code", _pairs(key.get("pairs"))),
        ("Pair code's word list (SHA‑256)", _digest(_pair_digest(key.get("pairs")))),
        ("Configuration", _configuration(key.get("configuration"))),
        ("Key written by", _version(key.get("library_version"))),
        ("Versions", _versions(versions)),
    )


def _digest(value: Any) -> Markup | None:
    return code(clean(value, 200)) if isinstance(value, str) and value else None


def _version(value: Any) -> str | None:
    return f"nsmark {clean(value)}" if isinstance(value, str) and value else None


def _marks(key: Mapping[str, Any]) -> str | None:
    configuration = key.get("configuration")
    marks = key.get("marks")
    if marks is None and isinstance(configuration, dict):
        marks = configuration.get("marks")
    return clean(", ".join(map(str, marks))) if isinstance(marks, list | tuple) else None


def _pairs(value: Any) -> str | None:
    if not isinstance(value, dict):
        return None
    size, repeats = value.get("size"), value.get("repeats")
    if not isinstance(size, int) or not isinstance(repeats, int):
        return None
    return f"table of {size} × {size} signs, {count(repeats, 'text')} for each"


def _pair_digest(value: Any) -> Any:
    return value.get("word_list_sha256") if isinstance(value, dict) else None


def _configuration(value: Any) -> str | None:
    if not isinstance(value, dict):
        return None
    found = [
        f"{label}: {_plain(value[name])}" for name, label in _CONFIGURATION.items() if name in value
    ]
    return "; ".join(found) or None


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(clean(str(one)) for one in value)
    return clean(str(value))


def _versions(versions: Mapping[str, str | None]) -> str | None:
    found = [f"{name} {version}" for name, version in versions.items() if version]
    return clean(", ".join(found), TEXT_LIMIT) or None
