"""Alembic runs this to run revisions; `cachew_core.metadata.migrating` hands it the connection."""

from __future__ import annotations

from alembic import context

from cachew_core.metadata.schema import metadata

# The connection's transaction is the caller's: all revisions happen, or none.
context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=context.config.attributes["version_table"],
)
with context.begin_transaction():
    context.run_migrations()
