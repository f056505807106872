"""Lists of names on the command line."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence


def some_of(known: Sequence[str], what: str) -> Callable[[str], list[str]]:
    """Return what reads a comma-separated list of known names, for ``argparse``."""

    def read(text: str) -> list[str]:
        found = [name for name in text.split(",") if name]
        unknown = [name for name in found if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(
                f"no such {what}: {unknown[0]} (of {', '.join(known)})"
            )
        return found

    return read
