"""The first tables.

Revision ID: 0001
Revises:
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make them."""
    op.create_table(
        "contents",
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("is_folder", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("sha256", name=op.f("pk_contents")),
    )
    op.create_table(
        "events",
        sa.Column(
            "number",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("time", sa.String(length=20), nullable=False),
        sa.Column("who", sa.String(length=128), nullable=False),
        sa.Column("what", sa.String(length=64), nullable=False),
        sa.Column("subject", sa.String(length=128), nullable=False),
        sa.Column("outcome", sa.String(length=512), nullable=False),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_events")),
    )
    op.create_table(
        "jobs",
        sa.Column("job_id", sa.String(length=32), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("subject", sa.String(length=64), nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("progress", sa.Float(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("worker", sa.String(length=128), nullable=True),
        sa.Column("ready", sa.String(length=20), nullable=False),
        sa.Column("created", sa.String(length=20), nullable=False),
        sa.Column("started", sa.String(length=20), nullable=True),
        sa.Column("heartbeat", sa.String(length=20), nullable=True),
        sa.Column("finished", sa.String(length=20), nullable=True),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_jobs")),
        sa.UniqueConstraint("number", name=op.f("uq_jobs_number")),
    )
    op.create_index(op.f("ix_jobs_state"), "jobs", ["state"], unique=False)
    op.create_index(op.f("ix_jobs_subject"), "jobs", ["subject"], unique=False)
    op.create_table(
        "log_checkpoints",
        sa.Column("size", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("note", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("size", name=op.f("pk_log_checkpoints")),
    )
    op.create_table(
        "log_nodes",
        sa.Column("start", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("level", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("start", "level", name=op.f("pk_log_nodes")),
    )
    op.create_table(
        "log_roots",
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("pem", sa.Text(), nullable=False),
        sa.Column("is_local", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("sha256", name=op.f("pk_log_roots")),
    )
    op.create_table(
        "nonces",
        sa.Column("nonce", sa.String(length=64), nullable=False),
        sa.Column("expires", sa.String(length=20), nullable=False),
        sa.PrimaryKeyConstraint("nonce", name=op.f("pk_nonces")),
    )
    op.create_index(op.f("ix_nonces_expires"), "nonces", ["expires"], unique=False)
    op.create_table(
        "tokens",
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("token_id", sa.String(length=32), nullable=False),
        sa.Column("fingerprint", sa.String(length=64), nullable=True),
        sa.Column("scopes", sa.String(length=64), nullable=False),
        sa.Column("label", sa.String(length=128), nullable=False),
        sa.Column("created", sa.String(length=20), nullable=False),
        sa.Column("expires", sa.String(length=20), nullable=False),
        sa.Column("revoked", sa.String(length=20), nullable=True),
        sa.PrimaryKeyConstraint("sha256", name=op.f("pk_tokens")),
        sa.UniqueConstraint("token_id", name=op.f("uq_tokens_token_id")),
    )
    op.create_index(op.f("ix_tokens_fingerprint"), "tokens", ["fingerprint"], unique=False)
    op.create_table(
        "view_defences",
        sa.Column("position", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("entry_id", sa.String(length=64), nullable=False),
        sa.Column("time", sa.String(length=20), nullable=False),
        sa.Column("dispute", sa.String(length=64), nullable=False),
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.Column("evidence", sa.String(length=64), nullable=True),
        sa.Column("statement", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("position", name=op.f("pk_view_defences")),
        sa.UniqueConstraint("entry_id", name=op.f("uq_view_defences_entry_id")),
    )
    op.create_index(op.f("ix_view_defences_dispute"), "view_defences", ["dispute"], unique=False)
    op.create_table(
        "view_deposits",
        sa.Column("position", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("entry_id", sa.String(length=64), nullable=False),
        sa.Column("time", sa.String(length=20), nullable=False),
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.Column("what", sa.String(length=32), nullable=False),
        sa.Column("content_sha256", sa.String(length=64), nullable=False),
        sa.Column("content_bytes", sa.BigInteger(), nullable=False),
        sa.Column("model_digest", sa.String(length=64), nullable=True),
        sa.Column("note", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("position", name=op.f("pk_view_deposits")),
        sa.UniqueConstraint("entry_id", name=op.f("uq_view_deposits_entry_id")),
    )
    op.create_index(
        op.f("ix_view_deposits_content_sha256"), "view_deposits", ["content_sha256"], unique=False
    )
    op.create_index(
        op.f("ix_view_deposits_fingerprint"), "view_deposits", ["fingerprint"], unique=False
    )
    op.create_index(
        op.f("ix_view_deposits_model_digest"), "view_deposits", ["model_digest"], unique=False
    )
    op.create_table(
        "view_disputes",
        sa.Column("position", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("entry_id", sa.String(length=64), nullable=False),
        sa.Column("time", sa.String(length=20), nullable=False),
        sa.Column("key_id", sa.String(length=64), nullable=False),
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.Column("suspect", sa.Text(), nullable=False),
        sa.Column("content_sha256", sa.String(length=64), nullable=True),
        sa.Column("released", sa.String(length=20), nullable=False),
        sa.Column("statement", sa.Text(), nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("outcome", sa.String(length=32), nullable=True),
        sa.Column("ruling", sa.String(length=64), nullable=True),
        sa.PrimaryKeyConstraint("position", name=op.f("pk_view_disputes")),
        sa.UniqueConstraint("entry_id", name=op.f("uq_view_disputes_entry_id")),
    )
    op.create_index(
        op.f("ix_view_disputes_fingerprint"), "view_disputes", ["fingerprint"], unique=False
    )
    op.create_index(op.f("ix_view_disputes_key_id"), "view_disputes", ["key_id"], unique=False)
    op.create_index(op.f("ix_view_disputes_state"), "view_disputes", ["state"], unique=False)
    op.create_table(
        "view_filings",
        sa.Column("position", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("entry_id", sa.String(length=64), nullable=False),
        sa.Column("time", sa.String(length=20), nullable=False),
        sa.Column("key_id", sa.String(length=64), nullable=False),
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.Column("owner", sa.String(length=256), nullable=False),
        sa.Column("folded_owner", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("folded_text", sa.Text(), nullable=False),
        sa.Column("created", sa.String(length=20), nullable=False),
        sa.Column("signature_sha256", sa.String(length=64), nullable=False),
        sa.Column("content_sha256", sa.String(length=64), nullable=False),
        sa.Column("content_bytes", sa.BigInteger(), nullable=False),
        sa.Column("model_digest", sa.String(length=64), nullable=True),
        sa.Column("succeeds", sa.String(length=64), nullable=True),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("admitted", sa.Boolean(), nullable=True),
        sa.Column("admission", sa.String(length=64), nullable=True),
        sa.Column("revealed_by", sa.String(length=64), nullable=True),
        sa.Column("withdrawn_by", sa.String(length=64), nullable=True),
        sa.PrimaryKeyConstraint("position", name=op.f("pk_view_filings")),
        sa.UniqueConstraint("entry_id", name=op.f("uq_view_filings_entry_id")),
        sa.UniqueConstraint("key_id", name=op.f("uq_view_filings_key_id")),
    )
    op.create_index(
        op.f("ix_view_filings_fingerprint"), "view_filings", ["fingerprint"], unique=False
    )
    op.create_index(
        op.f("ix_view_filings_folded_owner"), "view_filings", ["folded_owner"], unique=False
    )
    op.create_index(op.f("ix_view_filings_state"), "view_filings", ["state"], unique=False)
    op.create_index(op.f("ix_view_filings_succeeds"), "view_filings", ["succeeds"], unique=False)
    op.create_table(
        "view_owners",
        sa.Column("position", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("entry_id", sa.String(length=64), nullable=False),
        sa.Column("time", sa.String(length=20), nullable=False),
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.Column("owner", sa.String(length=256), nullable=False),
        sa.Column("folded_owner", sa.Text(), nullable=False),
        sa.Column("public_key", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("position", name=op.f("pk_view_owners")),
        sa.UniqueConstraint("entry_id", name=op.f("uq_view_owners_entry_id")),
        sa.UniqueConstraint("fingerprint", name=op.f("uq_view_owners_fingerprint")),
    )
    op.create_index(
        op.f("ix_view_owners_folded_owner"), "view_owners", ["folded_owner"], unique=False
    )
    op.create_table(
        "view_publications",
        sa.Column("position", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("entry_id", sa.String(length=64), nullable=False),
        sa.Column("time", sa.String(length=20), nullable=False),
        sa.Column("what", sa.String(length=32), nullable=False),
        sa.Column("name", sa.String(length=256), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("content_sha256", sa.String(length=64), nullable=False),
        sa.Column("content_bytes", sa.BigInteger(), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("position", name=op.f("pk_view_publications")),
        sa.UniqueConstraint("entry_id", name=op.f("uq_view_publications_entry_id")),
    )
    op.create_index(
        op.f("ix_view_publications_what_digest"),
        "view_publications",
        ["what", "digest"],
        unique=True,
    )
    op.create_table(
        "view_rulings",
        sa.Column("position", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("entry_id", sa.String(length=64), nullable=False),
        sa.Column("time", sa.String(length=20), nullable=False),
        sa.Column("dispute", sa.String(length=64), nullable=False),
        sa.Column("key_id", sa.String(length=64), nullable=False),
        sa.Column("outcome", sa.String(length=32), nullable=False),
        sa.Column("verdict", sa.String(length=32), nullable=True),
        sa.Column("report_sha256", sa.String(length=64), nullable=True),
        sa.PrimaryKeyConstraint("position", name=op.f("pk_view_rulings")),
        sa.UniqueConstraint("dispute", name=op.f("uq_view_rulings_dispute")),
        sa.UniqueConstraint("entry_id", name=op.f("uq_view_rulings_entry_id")),
    )
    op.create_index(op.f("ix_view_rulings_key_id"), "view_rulings", ["key_id"], unique=False)
    op.create_table(
        "content_files",
        sa.Column("content", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["content"], ["contents.sha256"], name=op.f("fk_content_files_content")
        ),
        sa.PrimaryKeyConstraint("content", "name", name=op.f("pk_content_files")),
    )
    op.create_index(op.f("ix_content_files_sha256"), "content_files", ["sha256"], unique=False)
    op.create_table(
        "log_entries",
        sa.Column("position", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("entry_id", sa.String(length=64), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("time", sa.String(length=20), nullable=False),
        sa.Column("entry", sa.LargeBinary(), nullable=False),
        sa.Column("token", sa.LargeBinary(), nullable=False),
        sa.Column("roots", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(["roots"], ["log_roots.sha256"], name=op.f("fk_log_entries_roots")),
        sa.PrimaryKeyConstraint("position", name=op.f("pk_log_entries")),
        sa.UniqueConstraint("entry_id", name=op.f("uq_log_entries_entry_id")),
    )
    op.create_index(op.f("ix_log_entries_kind"), "log_entries", ["kind"], unique=False)


def downgrade() -> None:
    """Drop them, and all that is in them."""
    op.drop_index(op.f("ix_log_entries_kind"), table_name="log_entries")
    op.drop_table("log_entries")
    op.drop_index(op.f("ix_content_files_sha256"), table_name="content_files")
    op.drop_table("content_files")
    op.drop_index(op.f("ix_view_rulings_key_id"), table_name="view_rulings")
    op.drop_table("view_rulings")
    op.drop_index(op.f("ix_view_publications_what_digest"), table_name="view_publications")
    op.drop_table("view_publications")
    op.drop_index(op.f("ix_view_owners_folded_owner"), table_name="view_owners")
    op.drop_table("view_owners")
    op.drop_index(op.f("ix_view_filings_succeeds"), table_name="view_filings")
    op.drop_index(op.f("ix_view_filings_state"), table_name="view_filings")
    op.drop_index(op.f("ix_view_filings_folded_owner"), table_name="view_filings")
    op.drop_index(op.f("ix_view_filings_fingerprint"), table_name="view_filings")
    op.drop_table("view_filings")
    op.drop_index(op.f("ix_view_disputes_state"), table_name="view_disputes")
    op.drop_index(op.f("ix_view_disputes_key_id"), table_name="view_disputes")
    op.drop_index(op.f("ix_view_disputes_fingerprint"), table_name="view_disputes")
    op.drop_table("view_disputes")
    op.drop_index(op.f("ix_view_deposits_model_digest"), table_name="view_deposits")
    op.drop_index(op.f("ix_view_deposits_fingerprint"), table_name="view_deposits")
    op.drop_index(op.f("ix_view_deposits_content_sha256"), table_name="view_deposits")
    op.drop_table("view_deposits")
    op.drop_index(op.f("ix_view_defences_dispute"), table_name="view_defences")
    op.drop_table("view_defences")
    op.drop_index(op.f("ix_tokens_fingerprint"), table_name="tokens")
    op.drop_table("tokens")
    op.drop_index(op.f("ix_nonces_expires"), table_name="nonces")
    op.drop_table("nonces")
    op.drop_table("log_roots")
    op.drop_table("log_nodes")
    op.drop_table("log_checkpoints")
    op.drop_index(op.f("ix_jobs_subject"), table_name="jobs")
    op.drop_index(op.f("ix_jobs_state"), table_name="jobs")
    op.drop_table("jobs")
    op.drop_table("events")
    op.drop_table("contents")
