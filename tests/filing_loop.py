"""Run as a program: files prepared keys one after the other and says which were acknowledged.

    python filing_loop.py FOLDER DATABASE-OR-DASH PREPARED

Meant to be killed at any moment.
"""

from __future__ import annotations

import sys
from pathlib import Path


def main(folder: str, database: str, prepared: str) -> None:
    from nsmark_authority.service import open_authority
    from nsmark_authority.settings import AuthoritySettings

    settings = AuthoritySettings(
        folder=Path(folder), database_url=None if database == "-" else database
    )
    authority = open_authority(settings)
    for statement in sorted(Path(prepared).glob("*.json")):
        with statement.with_suffix(".nsmark").open("rb") as content:
            receipt = authority.file_key(statement.read_bytes(), content)
        sys.stdout.write(f"{statement.stem} {receipt.entry_id} {receipt.index}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
