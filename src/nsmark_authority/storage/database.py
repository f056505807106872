"""Connections: many readers, and one writer at a time who waits for the disk."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

from nsmark.errors import ConfigError
from nsmark_authority.errors import AuthorityError

_BUSY_SECONDS = 60
_WRITING = "nsmark_writing"
_ADVISORY_LOCK = 0x6E736D61726B  # "nsmark"
_MIGRATIONS = "nsmark_authority.storage:migrations"


class Database:
    """A database with the present tables; threads may share it, processes open their own."""

    def __init__(self, url: str) -> None:
        """Connect and bring the tables up to date.

        Raises:
            ConfigError: The URL is none we know.
            AuthorityError: The database cannot be reached, or a newer nsmark made it.
        """
        self._engine = _make_engine(parse_url(url))
        self._writer = threading.Lock()
        self._migrate()

    @property
    def engine(self) -> Engine:
        """SQLAlchemy's engine."""
        return self._engine

    @property
    def is_sqlite(self) -> bool:
        """Whether it is a file of ours."""
        return self._engine.dialect.name == "sqlite"

    @contextlib.contextmanager
    def read(self) -> Iterator[Connection]:
        """Look at the database."""
        with _database_errors(), self._engine.connect() as connection:
            yield connection

    @contextlib.contextmanager
    def write(self) -> Iterator[Connection]:
        """Change the database in one transaction: all of it is on the disk afterwards, or nothing.

        Writers stand in line, across processes too, so what a writer reads is the last word.
        """
        # Threads wait here, in order; SQLite would let them poll.
        with self._writer, _database_errors(), self._engine.connect() as connection:
            writing = connection.execution_options(**{_WRITING: True})
            with writing.begin():
                if not self.is_sqlite:
                    lock = text("SELECT pg_advisory_xact_lock(:lock)")
                    writing.execute(lock, {"lock": _ADVISORY_LOCK})
                yield writing

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    def _migrate(self) -> None:
        try:
            with self.write() as connection:
                command.upgrade(migration_config(connection), "head")
        except CommandError as error:
            self.close()
            raise AuthorityError(
                "the database was made by another version of nsmark", "upgrade nsmark"
            ) from error
        except BaseException:
            self.close()
            raise


def migration_config(connection: Connection) -> Config:
    """Return what alembic needs to work on an open connection."""
    config = Config()
    config.set_main_option("script_location", _MIGRATIONS)
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config


def parse_url(url: str) -> URL:
    """Return the URL with the driver we use.

    Raises:
        ConfigError: Neither SQLite nor PostgreSQL. The URL may hold a password: it is not shown.
    """
    rule = "must be sqlite:///FILE or postgresql://USER:PASSWORD@HOST/NAME"
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError) as error:
        raise ConfigError("database", "…", rule) from error
    kind = parsed.drivername.partition("+")[0]
    if kind in ("postgresql", "postgres"):
        return parsed.set(drivername="postgresql+pg8000")
    if kind != "sqlite" or parsed.database in (None, "", ":memory:"):
        raise ConfigError("database", kind, rule)
    return parsed.set(drivername="sqlite")


def _make_engine(url: URL) -> Engine:
    if url.drivername != "sqlite":
        return create_engine(
            url, pool_size=8, max_overflow=24, pool_pre_ping=True, hide_parameters=True
        )
    engine = create_engine(
        url,
        pool_size=8,
        max_overflow=24,
        connect_args={"timeout": _BUSY_SECONDS},
        hide_parameters=True,
    )

    @event.listens_for(engine, "connect")
    def _set_up(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # transactions begin below, not when sqlite3 thinks so
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {pragma}").close()

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        # A transaction that reads first and writes later would fail if another wrote between.
        writing = connection.get_execution_options().get(_WRITING, False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")

    return engine


@contextlib.contextmanager
def _database_errors() -> Iterator[None]:
    """Turn what the driver raises into our error, without statements or values in it."""
    try:
        yield
    except SQLAlchemyError as error:
        cause = error.orig if isinstance(error, DBAPIError) else error
        raise AuthorityError(
            f"the database did not do its work ({type(cause).__name__})",
            "see whether it runs and can be reached, and whether its disk has space",
        ) from error
