"""The tables of a metadata store, as they are now (`migrations` holds how they came to be so).

SQLAlchemy's Core in the style that versions 1.4 and 2 have in common: Airflow 2.11 pins 1.4, and a
service that is started from an Airflow worker runs in Airflow's environment. Names have a prefix,
so that a PostgreSQL database can be shared with something else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    BigInteger,
    Column,
    DateTime,
    Float,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
)
from sqlalchemy.types import TypeDecorator

if TYPE_CHECKING:
    _DateTimeDecorator = TypeDecorator[datetime]
    _TextDecorator = TypeDecorator[str]
    _FiguresDecorator = TypeDecorator[dict[str, Any]]
else:
    # Not generic in SQLAlchemy 1.4.
    _DateTimeDecorator = _TextDecorator = _FiguresDecorator = TypeDecorator


class UtcDateTime(_DateTimeDecorator):
    """An aware time; SQLite stores none, PostgreSQL gives it in the session's zone."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Any) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"{value} has no time zone: give an aware time")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Any) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class AnyText(_TextDecorator):
    """Text from users: what a database can't hold (NUL, lone surrogates) is replaced."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Any) -> str | None:
        if value is None:
            return None
        return value.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")


class FiguresText(_FiguresDecorator):
    """A JSON object as text: PostgreSQL's own type refuses infinity, NaN and NUL."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Mapping[str, Any] | None, dialect: Any) -> str | None:
        return None if value is None else json.dumps(dict(value))

    def process_result_value(self, value: str | None, dialect: Any) -> dict[str, Any] | None:
        if value is None:
            return None
        figures: dict[str, Any] = json.loads(value)
        return figures


# SQLite numbers rows by itself only if the column's type is INTEGER.
_RowId = BigInteger().with_variant(Integer, "sqlite")

metadata = MetaData()


def _id() -> Column[Any]:
    return Column("id", _RowId, primary_key=True)


def _store() -> Column[Any]:
    return Column("store_id", _RowId, ForeignKey("cachew_stores.id"), nullable=False)


def _text(name: str) -> Column[Any]:
    return Column(name, AnyText, nullable=False)


def _integer(name: str) -> Column[Any]:
    return Column(name, BigInteger, nullable=False)


def _number(name: str) -> Column[Any]:
    return Column(name, Float(53), nullable=False)


def _time(name: str, *, nullable: bool = False) -> Column[Any]:
    return Column(name, UtcDateTime, nullable=nullable)


def _figures() -> Column[Any]:
    return Column("figures", FiguresText, nullable=False)


def _pipeline() -> ForeignKeyConstraint:
    return ForeignKeyConstraint(
        ["store_id", "fingerprint"],
        ["cachew_pipelines.store_id", "cachew_pipelines.fingerprint"],
    )


stores = Table(
    "cachew_stores",
    metadata,
    _id(),
    Column("name", AnyText, nullable=False, unique=True),
    _time("created_at"),
)

leases = Table(
    "cachew_leases",
    metadata,
    Column("store_id", _RowId, ForeignKey("cachew_stores.id"), primary_key=True),
    _text("owner"),
    _text("host"),
    _text("process_space"),
    _integer("pid"),
    _number("process_started_s"),
    _time("acquired_at"),
    _time("beat_at"),
)

pipelines = Table(
    "cachew_pipelines",
    metadata,
    _id(),
    _store(),
    _text("fingerprint"),
    _time("first_seen"),
    _time("last_seen"),
    _text("description"),
    UniqueConstraint("store_id", "fingerprint"),
)

jobs = Table(
    "cachew_jobs",
    metadata,
    _id(),
    _store(),
    _text("name"),
    _text("fingerprint"),
    _text("service"),
    _time("first_seen"),
    _time("last_seen"),
    UniqueConstraint("store_id", "name"),
    _pipeline(),
)

profiles = Table(
    "cachew_profiles",
    metadata,
    _id(),
    _store(),
    _text("fingerprint"),
    _text("environment"),
    _time("measured_at"),
    _figures(),
    UniqueConstraint("store_id", "fingerprint", "environment"),
    _pipeline(),
)

decisions = Table(
    "cachew_decisions",
    metadata,
    _id(),
    _store(),
    _text("fingerprint"),
    _text("job"),
    _integer("epoch"),
    _text("mode"),
    _text("point"),
    _text("reason"),
    _figures(),
    _time("decided_at"),
    _text("origin"),
    _pipeline(),
    Index("cachew_decisions_of_job", "store_id", "job"),
    Index("cachew_decisions_of_pipeline", "store_id", "fingerprint"),
)

verdicts = Table(
    "cachew_verdicts",
    metadata,
    _id(),
    _store(),
    _text("fingerprint"),
    _text("mode"),
    _text("point"),
    _text("device"),
    _text("version"),
    _integer("workers"),
    _text("reason"),
    _time("given_at"),
    UniqueConstraint("store_id", "fingerprint", "mode", "point", "device", "version", "workers"),
    _pipeline(),
)

caches = Table(
    "cachew_caches",
    metadata,
    _id(),
    _store(),
    _text("key"),
    _text("fingerprint"),
    _text("point"),
    _text("path"),
    _integer("size_bytes"),
    _integer("elements"),
    _number("seconds_saved_per_use"),
    _integer("uses"),
    _time("last_used_at", nullable=True),
    _time("created_at"),
    _text("state"),
    _time("forgotten_at", nullable=True),
    _pipeline(),
    Index("cachew_caches_of_pipeline", "store_id", "fingerprint"),
)
# Entries that are gone stay as history, so only one with a key may be there.
Index(
    "cachew_caches_there",
    caches.c.store_id,
    caches.c.key,
    unique=True,
    sqlite_where=caches.c.forgotten_at.is_(None),
    postgresql_where=caches.c.forgotten_at.is_(None),
)

worker_counts = Table(
    "cachew_worker_counts",
    metadata,
    _id(),
    _store(),
    _text("fingerprint"),
    _text("mode"),
    _integer("workers"),
    _time("measured_at"),
    UniqueConstraint("store_id", "fingerprint", "mode"),
    _pipeline(),
)

epochs = Table(
    "cachew_epochs",
    metadata,
    _id(),
    _store(),
    _text("job"),
    _integer("epoch"),
    _text("mode"),
    _integer("elements"),
    _number("duration_s"),
    _integer("workers"),
    _integer("repeated"),
    _integer("skipped"),
    _text("state"),
    _time("ended_at"),
    Index("cachew_epochs_of_job", "store_id", "job"),
)

events = Table(
    "cachew_events",
    metadata,
    _id(),
    _store(),
    _time("at"),
    _text("kind"),
    _text("job"),
    _text("text"),
    _figures(),
    Index("cachew_events_in_time", "store_id", "at"),
)
