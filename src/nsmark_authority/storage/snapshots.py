"""A look at the whole database as it is at one moment, while others go on writing."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from sqlalchemy import Connection

from nsmark_authority.storage.database import Database


@contextlib.contextmanager
def snapshot(database: Database) -> Iterator[Connection]:
    """Yield a connection that sees what was committed when it was first asked, and no more."""
    with database.read() as connection:
        if database.is_sqlite:
            # A transaction of WAL mode sees one state for as long as it lasts.
            yield connection
        else:
            yield connection.execution_options(
                isolation_level="REPEATABLE READ", postgresql_readonly=True
            )
