"""Who handed over which content, whose a job is, and dates that others prove.

Revision ID: 0002
Revises: 0001
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_FILLED = (
    "INSERT INTO handed_over (entry_id, content, fingerprint, bytes, time) "
    "SELECT f.entry_id, f.content_sha256, f.fingerprint, f.content_bytes, f.time "
    "FROM view_filings AS f JOIN contents AS c ON c.sha256 = f.content_sha256 "
    "WHERE NOT c.is_folder",
    "INSERT INTO handed_over (entry_id, content, fingerprint, bytes, time) "
    "SELECT d.entry_id, d.content_sha256, d.fingerprint, d.content_bytes, d.time "
    "FROM view_deposits AS d JOIN contents AS c ON c.sha256 = d.content_sha256 "
    "WHERE c.is_folder = (d.what = 'model')",
)


def upgrade() -> None:
    """Make them.

    What was handed over before is believed to be its announcer's, and to have come with its entry.
    The new columns of views are empty: nothing that was logged before has these members.
    """
    op.create_table(
        "handed_over",
        sa.Column("entry_id", sa.String(length=64), nullable=False),
        sa.Column("content", sa.String(length=64), nullable=False),
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("time", sa.String(length=20), nullable=False),
        sa.ForeignKeyConstraint(
            ["content"], ["contents.sha256"], name=op.f("fk_handed_over_content")
        ),
        sa.PrimaryKeyConstraint("entry_id", name=op.f("pk_handed_over")),
    )
    op.create_index(
        op.f("ix_handed_over_fingerprint"), "handed_over", ["fingerprint"], unique=False
    )
    for filling in _FILLED:
        op.execute(filling)
    op.add_column("view_deposits", sa.Column("proven", sa.String(length=20), nullable=True))
    op.add_column("view_defences", sa.Column("released", sa.String(length=20), nullable=True))
    op.add_column("jobs", sa.Column("owner", sa.String(length=64), nullable=True))
    op.add_column("jobs", sa.Column("not_before", sa.String(length=20), nullable=True))
    op.add_column("jobs", sa.Column("troubles", sa.Integer(), server_default="0", nullable=False))
    op.create_index(op.f("ix_jobs_owner_started"), "jobs", ["owner", "started"], unique=False)
    op.execute("UPDATE jobs SET not_before = ready")


def downgrade() -> None:
    """Remove them."""
    op.drop_index(op.f("ix_jobs_owner_started"), table_name="jobs")
    for table, column in (
        ("jobs", "troubles"),
        ("jobs", "not_before"),
        ("jobs", "owner"),
        ("view_defences", "released"),
        ("view_deposits", "proven"),
    ):
        op.drop_column(table, column)
    op.drop_index(op.f("ix_handed_over_fingerprint"), table_name="handed_over")
    op.drop_table("handed_over")
