"""Authorities on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("sqlalchemy", reason="needs the authority extra")

from authority_world import KeyOwner, make_authority
from nsmark_authority.service import Authority
from postgres_server import PostgresServer, running_postgres


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with running_postgres() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest) -> str | None:
    """Where the authority's database is: None for SQLite in its folder."""
    if request.param == "sqlite":
        return None
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.new_database()


@pytest.fixture
def authority(tmp_path: Path) -> Iterator[Authority]:
    """A new authority on SQLite, in which disputes need not wait."""
    opened = make_authority(tmp_path, answer_seconds=0)
    yield opened
    opened.close()


@pytest.fixture
def any_authority(tmp_path: Path, database_url: str | None) -> Iterator[Authority]:
    """A new authority, on either database."""
    opened = make_authority(tmp_path, database_url, answer_seconds=0)
    yield opened
    opened.close()


@pytest.fixture
def owner(authority: Authority) -> KeyOwner:
    """Somebody who is registered with ``authority``."""
    somebody = KeyOwner(1)
    somebody.register(authority)
    return somebody
