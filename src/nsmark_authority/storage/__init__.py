"""The authority's database: SQLite beside its keys, or PostgreSQL."""
