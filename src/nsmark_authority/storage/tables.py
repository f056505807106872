"""The tables. ``log_*`` are the truth, ``view_*`` follow from them, the rest are house-keeping."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
)

# Constraints must have names, or they cannot be changed by a later migration.
METADATA = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

_DIGEST = String(64)
_TIME = String(20)
_WORD = String(32)


def _entry_columns() -> list[Column[object]]:
    """Return what every view row says of the entry it comes from."""
    return [
        Column("position", BigInteger, primary_key=True, autoincrement=False),
        Column("entry_id", _DIGEST, nullable=False, unique=True),
        Column("time", _TIME, nullable=False),
    ]


LOG_ROOTS = Table(
    "log_roots",
    METADATA,
    Column("sha256", _DIGEST, primary_key=True),
    Column("pem", Text, nullable=False),
    Column("is_local", Boolean, nullable=False),
)

LOG_ENTRIES = Table(
    "log_entries",
    METADATA,
    Column("position", BigInteger, primary_key=True, autoincrement=False),
    Column("entry_id", _DIGEST, nullable=False, unique=True),
    Column("kind", _WORD, nullable=False, index=True),
    Column("time", _TIME, nullable=False),
    Column("entry", LargeBinary, nullable=False),
    Column("token", LargeBinary, nullable=False),
    Column("roots", _DIGEST, ForeignKey(LOG_ROOTS.c.sha256), nullable=False),
)

LOG_NODES = Table(
    "log_nodes",
    METADATA,
    Column("start", BigInteger, primary_key=True, autoincrement=False),
    Column("level", Integer, primary_key=True, autoincrement=False),
    Column("hash", LargeBinary, nullable=False),
)

LOG_CHECKPOINTS = Table(
    "log_checkpoints",
    METADATA,
    Column("size", BigInteger, primary_key=True, autoincrement=False),
    Column("note", LargeBinary, nullable=False),
)

VIEW_OWNERS = Table(
    "view_owners",
    METADATA,
    *_entry_columns(),
    Column("fingerprint", _DIGEST, nullable=False, unique=True),
    Column("owner", String(256), nullable=False),
    Column("folded_owner", Text, nullable=False, index=True),
    Column("public_key", Text, nullable=False),
)

VIEW_FILINGS = Table(
    "view_filings",
    METADATA,
    *_entry_columns(),
    Column("key_id", _DIGEST, nullable=False, unique=True),
    Column("fingerprint", _DIGEST, nullable=False, index=True),
    Column("owner", String(256), nullable=False),
    Column("folded_owner", Text, nullable=False, index=True),
    Column("message", Text, nullable=False),
    Column("folded_text", Text, nullable=False),
    Column("created", _TIME, nullable=False),
    Column("signature_sha256", _DIGEST, nullable=False),
    Column("content_sha256", _DIGEST, nullable=False),
    Column("content_bytes", BigInteger, nullable=False),
    Column("model_digest", _DIGEST),
    Column("succeeds", _DIGEST, index=True),
    Column("state", _WORD, nullable=False, index=True),
    Column("admitted", Boolean),
    Column("admission", _DIGEST),
    Column("revealed_by", _DIGEST),
    Column("withdrawn_by", _DIGEST),
)

VIEW_DEPOSITS = Table(
    "view_deposits",
    METADATA,
    *_entry_columns(),
    Column("fingerprint", _DIGEST, nullable=False, index=True),
    Column("what", _WORD, nullable=False),
    Column("content_sha256", _DIGEST, nullable=False, index=True),
    Column("content_bytes", BigInteger, nullable=False),
    Column("model_digest", _DIGEST, index=True),
    Column("note", Text, nullable=False),
    Column("proven", _TIME),
)

VIEW_PUBLICATIONS = Table(
    "view_publications",
    METADATA,
    *_entry_columns(),
    Column("what", _WORD, nullable=False),
    Column("name", String(256), nullable=False),
    Column("digest", _DIGEST, nullable=False),
    Column("content_sha256", _DIGEST, nullable=False),
    Column("content_bytes", BigInteger, nullable=False),
    Column("note", Text, nullable=False),
    Index(None, "what", "digest", unique=True),
)

VIEW_DISPUTES = Table(
    "view_disputes",
    METADATA,
    *_entry_columns(),
    Column("key_id", _DIGEST, nullable=False, index=True),
    Column("fingerprint", _DIGEST, nullable=False, index=True),
    Column("suspect", Text, nullable=False),
    Column("content_sha256", _DIGEST),
    Column("released", _TIME, nullable=False),
    Column("statement", Text, nullable=False),
    Column("state", _WORD, nullable=False, index=True),
    Column("outcome", _WORD),
    Column("ruling", _DIGEST),
)

VIEW_DEFENCES = Table(
    "view_defences",
    METADATA,
    *_entry_columns(),
    Column("dispute", _DIGEST, nullable=False, index=True),
    Column("fingerprint", _DIGEST, nullable=False),
    Column("evidence", _DIGEST),
    Column("statement", Text, nullable=False),
    Column("released", _TIME),
)

VIEW_RULINGS = Table(
    "view_rulings",
    METADATA,
    *_entry_columns(),
    Column("dispute", _DIGEST, nullable=False, unique=True),
    Column("key_id", _DIGEST, nullable=False, index=True),
    Column("outcome", _WORD, nullable=False),
    Column("verdict", _WORD),
    Column("report_sha256", _DIGEST),
)

VIEWS = (
    VIEW_OWNERS,
    VIEW_FILINGS,
    VIEW_DEPOSITS,
    VIEW_PUBLICATIONS,
    VIEW_DISPUTES,
    VIEW_DEFENCES,
    VIEW_RULINGS,
)

CONTENTS = Table(
    "contents",
    METADATA,
    Column("sha256", _DIGEST, primary_key=True),
    Column("bytes", BigInteger, nullable=False),
    Column("is_folder", Boolean, nullable=False),
)

CONTENT_FILES = Table(
    "content_files",
    METADATA,
    Column("content", _DIGEST, ForeignKey(CONTENTS.c.sha256), primary_key=True),
    Column("name", String(200), primary_key=True),
    Column("sha256", _DIGEST, nullable=False, index=True),
    Column("bytes", BigInteger, nullable=False),
)

HANDED_OVER = Table(
    "handed_over",
    METADATA,
    Column("entry_id", _DIGEST, primary_key=True),
    Column("content", _DIGEST, ForeignKey(CONTENTS.c.sha256), nullable=False),
    Column("fingerprint", _DIGEST, nullable=False, index=True),
    Column("bytes", BigInteger, nullable=False),
    Column("time", _TIME, nullable=False),
)
"""Who gave which content: knowing a digest is not having the bytes."""

JOBS = Table(
    "jobs",
    METADATA,
    Column("job_id", _WORD, primary_key=True),
    Column("number", BigInteger, nullable=False, unique=True),
    Column("kind", _WORD, nullable=False),
    Column("subject", _DIGEST, nullable=False, index=True),
    Column("state", _WORD, nullable=False, index=True),
    Column("progress", Float, nullable=False),
    Column("message", Text, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("worker", String(128)),
    Column("ready", _TIME, nullable=False),
    Column("created", _TIME, nullable=False),
    Column("started", _TIME),
    Column("heartbeat", _TIME),
    Column("finished", _TIME),
    Column("owner", _DIGEST),
    Column("not_before", _TIME),
    Column("troubles", Integer, nullable=False, server_default="0"),
    Index(None, "owner", "started"),
)

TOKENS = Table(
    "tokens",
    METADATA,
    Column("sha256", _DIGEST, primary_key=True),
    Column("token_id", _WORD, nullable=False, unique=True),
    Column("fingerprint", _DIGEST, index=True),
    Column("scopes", String(64), nullable=False),
    Column("label", String(128), nullable=False),
    Column("created", _TIME, nullable=False),
    Column("expires", _TIME, nullable=False),
    Column("revoked", _TIME),
)

NONCES = Table(
    "nonces",
    METADATA,
    Column("nonce", _DIGEST, primary_key=True),
    Column("expires", _TIME, nullable=False, index=True),
)

EVENTS = Table(
    "events",
    METADATA,
    Column(
        "number", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True
    ),
    Column("time", _TIME, nullable=False),
    Column("who", String(128), nullable=False),
    Column("what", String(64), nullable=False),
    Column("subject", String(128), nullable=False),
    Column("outcome", String(512), nullable=False),
)
