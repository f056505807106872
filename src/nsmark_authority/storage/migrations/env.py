"""Run by alembic: work on the connection, and in the transaction, that the caller has open."""

from __future__ import annotations

from alembic import context

from nsmark_authority.storage.tables import METADATA

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    compare_type=True,
)
context.run_migrations()
