"""The first tables. Types are spelled out: a revision must not change when the schema does."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

ROW_ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def _text(*names: str) -> list[Any]:
    return [sa.Column(name, sa.Text, nullable=False) for name in names]


def _integer(*names: str) -> list[Any]:
    return [sa.Column(name, sa.BigInteger, nullable=False) for name in names]


def _time(*names: str) -> list[Any]:
    return [sa.Column(name, sa.DateTime(timezone=True), nullable=False) for name in names]


def _create(name: str, *rest: Any) -> None:
    store = sa.Column("store_id", ROW_ID, sa.ForeignKey("cachew_stores.id"), nullable=False)
    op.create_table(name, sa.Column("id", ROW_ID, primary_key=True), store, *rest)


def _pipeline() -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(
        ["store_id", "fingerprint"],
        ["cachew_pipelines.store_id", "cachew_pipelines.fingerprint"],
    )


def upgrade() -> None:
    op.create_table(
        "cachew_stores",
        sa.Column("id", ROW_ID, primary_key=True),
        sa.Column("name", sa.Text, nullable=False, unique=True),
        *_time("created_at"),
    )
    _create_what_pipelines_are_known_by()
    _create_what_was_chosen()
    _create_caches()
    _create_what_happened()


def _create_what_pipelines_are_known_by() -> None:
    _create(
        "cachew_pipelines",
        *_text("fingerprint"),
        *_time("first_seen", "last_seen"),
        *_text("description"),
        sa.UniqueConstraint("store_id", "fingerprint"),
    )
    _create(
        "cachew_jobs",
        *_text("name", "fingerprint", "service"),
        *_time("first_seen", "last_seen"),
        sa.UniqueConstraint("store_id", "name"),
        _pipeline(),
    )
    _create(
        "cachew_profiles",
        *_text("fingerprint", "environment"),
        *_time("measured_at"),
        *_text("figures"),
        sa.UniqueConstraint("store_id", "fingerprint", "environment"),
        _pipeline(),
    )


def _create_what_was_chosen() -> None:
    _create(
        "cachew_decisions",
        *_text("fingerprint", "job"),
        *_integer("epoch"),
        *_text("mode", "point", "reason", "figures"),
        *_time("decided_at"),
        *_text("origin"),
        _pipeline(),
    )
    op.create_index("cachew_decisions_of_job", "cachew_decisions", ["store_id", "job"])
    op.create_index("cachew_decisions_of_pipeline", "cachew_decisions", ["store_id", "fingerprint"])
    _create(
        "cachew_verdicts",
        *_text("fingerprint", "mode", "point", "device", "version"),
        *_integer("workers"),
        *_text("reason"),
        *_time("given_at"),
        sa.UniqueConstraint(
            "store_id", "fingerprint", "mode", "point", "device", "version", "workers"
        ),
        _pipeline(),
    )
    _create(
        "cachew_worker_counts",
        *_text("fingerprint", "mode"),
        *_integer("workers"),
        *_time("measured_at"),
        sa.UniqueConstraint("store_id", "fingerprint", "mode"),
        _pipeline(),
    )


def _create_caches() -> None:
    _create(
        "cachew_caches",
        *_text("key", "fingerprint", "point", "path"),
        *_integer("size_bytes", "elements"),
        sa.Column("seconds_saved_per_use", sa.Float(53), nullable=False),
        *_integer("uses"),
        sa.Column("last_used_at", sa.DateTime(timezone=True)),
        *_time("created_at"),
        *_text("state"),
        sa.Column("forgotten_at", sa.DateTime(timezone=True)),
        _pipeline(),
    )
    op.create_index("cachew_caches_of_pipeline", "cachew_caches", ["store_id", "fingerprint"])
    there = sa.text("forgotten_at IS NULL")
    op.create_index(
        "cachew_caches_there",
        "cachew_caches",
        ["store_id", "key"],
        unique=True,
        sqlite_where=there,
        postgresql_where=there,
    )


def _create_what_happened() -> None:
    _create(
        "cachew_epochs",
        *_text("job"),
        *_integer("epoch"),
        *_text("mode"),
        *_integer("elements"),
        sa.Column("duration_s", sa.Float(53), nullable=False),
        *_integer("workers", "repeated", "skipped"),
        *_text("state"),
        *_time("ended_at"),
    )
    op.create_index("cachew_epochs_of_job", "cachew_epochs", ["store_id", "job"])
    _create(
        "cachew_events",
        *_time("at"),
        *_text("kind", "job", "text", "figures"),
    )
    op.create_index("cachew_events_in_time", "cachew_events", ["store_id", "at"])
