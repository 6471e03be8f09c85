"""Values into rows, with "insert or update" as SQLite and PostgreSQL have in common."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields
from datetime import datetime
from typing import Any

from sqlalchemy import Table, UniqueConstraint
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection

from cachew_core.metadata import schema


def values_of(record: Any) -> dict[str, Any]:
    """A record's attributes by the names of their columns; figures are not copied."""
    return {field.name: getattr(record, field.name) for field in fields(record)}


def insert_or_update(
    connection: Connection, table: Table, row: dict[str, Any], *, keep: Collection[str] = ()
) -> None:
    """Inserts a row, or updates the one that is there in its place.

    Args:
        connection: in whose transaction it happens.
        table: with one unique constraint or index, which says what "in its place" means.
        row: a value for each column, the id left out.
        keep: columns that an update leaves as they are.
    """
    # SQLAlchemy's two classes have these methods in common, but no base class with them.
    dialect: Any = sqlite if connection.dialect.name == "sqlite" else postgresql
    statement = dialect.insert(table).values(**row)
    key, where = _key(table)
    changed = {name: statement.excluded[name] for name in row if name not in {*key, *keep}}
    arguments = {"index_elements": key, "index_where": where}
    if changed:
        connection.execute(statement.on_conflict_do_update(**arguments, set_=changed))
    else:
        connection.execute(statement.on_conflict_do_nothing(**arguments))


def _key(table: Table) -> tuple[list[str], Any]:
    """The columns that identify a row, and which rows they do that for (None: all)."""
    for index in table.indexes:
        if index.unique:
            return [column.name for column in index.columns], index.dialect_kwargs["sqlite_where"]
    (constraint,) = [each for each in table.constraints if isinstance(each, UniqueConstraint)]
    return [column.name for column in constraint.columns], None


def see_pipeline(
    connection: Connection,
    store_id: int,
    fingerprint: str,
    *,
    at: datetime,
    description: str = "",
) -> None:
    """Makes a pipeline known, as rows that name it need."""
    row = {
        "store_id": store_id,
        "fingerprint": fingerprint,
        "first_seen": at,
        "last_seen": at,
        "description": description,
    }
    keep = {"first_seen"} if description else {"first_seen", "description"}
    insert_or_update(connection, schema.pipelines, row, keep=keep)
