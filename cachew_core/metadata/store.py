"""The metadata store: what outlives a run, in SQLite on one machine or in PostgreSQL for several.

Everything is synchronous and takes milliseconds, or seconds when the database does; call it from a
thread where that matters. Usable from several threads at a time. Each method is one transaction.
Whatever is recorded of a pipeline makes the pipeline known, so the order of calls does not matter.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

import tenacity
from sqlalchemy import Table, func, insert, select, text, update
from sqlalchemy.engine import Connection
from sqlalchemy.sql import Select

from cachew_core.metadata import lease, schema
from cachew_core.metadata.address import parse_address
from cachew_core.metadata.database import Database
from cachew_core.metadata.history import expected_uses
from cachew_core.metadata.lease import Holder, Lease, LeaseHeldError
from cachew_core.metadata.migrating import is_current, migrate
from cachew_core.metadata.records import (
    CacheRecord,
    Decision,
    EpochRecord,
    Event,
    Job,
    Pipeline,
    Profile,
    Verdict,
    WorkerCount,
)
from cachew_core.metadata.rows import insert_or_update, see_pipeline, values_of

Record = TypeVar("Record")

_LEASE_POLL_S = 0.2
# Any number that no other program uses for PostgreSQL's advisory locks.
_SETUP_LOCK = 0x6361636865770001


class MetadataStore:
    """One store, by its name in one database."""

    def __init__(self, database: Database, *, store_id: int, held: Lease | None) -> None:
        """Not for use from outside: see `open`."""
        self._database = database
        self._store_id = store_id
        self._lease = held

    @classmethod
    def open(
        cls, url: str, *, store: str, exclusive: bool = True, wait_s: float = 0
    ) -> MetadataStore:
        """Opens a store, makes it if it is new, and brings its tables up to date.

        Args:
            url: `sqlite:////path/to/file.db` (made if it is not there) or
                `postgresql+psycopg://user@host/database`.
            store: name of the store in that database.
            exclusive: takes the lease of a SQLite store, which a service must. Commands that look
                at a store, or change a little, beside a service do without.
            wait_s: how long another service may keep the lease. One that died on another machine,
                or in another container, keeps it for 30 s.

        Raises:
            MetadataError: the URL can't be used, the database does not answer, the tables are a
                newer Cachew's, or another service uses the store.
        """
        database = Database(parse_address(url))
        holder = Holder() if exclusive and database.is_sqlite else None
        try:
            store_id = _set_up(database, store, holder, deadline=time.monotonic() + wait_s)
        except BaseException:
            database.close()
            raise
        held = None if holder is None else Lease(database, holder, store_id=store_id)
        return cls(database, store_id=store_id, held=held)

    def close(self) -> None:
        """Gives the lease back and closes the connections.

        Raises:
            MetadataError: the lease could not be given back; the next service takes it all the
                same.
        """
        try:
            if self._lease is not None:
                self._lease.close()
        finally:
            self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def see_pipeline(
        self, fingerprint: str, *, description: str = "", job: str = "", service: str = ""
    ) -> None:
        """A pipeline is here now, with the job that has it if one is named.

        Args:
            fingerprint: of the whole pipeline.
            description: empty leaves the one that is known.
            job: its name.
            service: name of the service that runs the job.
        """
        now = datetime.now(UTC)
        with_job = {"name": job, "fingerprint": fingerprint, "service": service, "last_seen": now}

        def work(connection: Connection) -> None:
            see_pipeline(connection, self._store_id, fingerprint, description=description, at=now)
            if job:
                row = {"store_id": self._store_id, "first_seen": now, **with_job}
                insert_or_update(connection, schema.jobs, row, keep={"first_seen"})

        self._write(work)

    def pipelines(self) -> tuple[Pipeline, ...]:
        """All that were seen, the last seen first."""
        return self._read(Pipeline, self._of(schema.pipelines), newest="last_seen")

    def jobs(self) -> tuple[Job, ...]:
        """All that were seen, the last seen first."""
        return self._read(Job, self._of(schema.jobs), newest="last_seen")

    def record_profile(self, profile: Profile) -> None:
        """Takes the place of an older one of the same pipeline and environment."""
        self._record(schema.profiles, profile, replace=True)

    def profile(self, fingerprint: str, *, environment: str | None = None) -> Profile | None:
        """The newest of a pipeline, in that environment if one is named."""
        query = self._of(schema.profiles, fingerprint=fingerprint, environment=environment)
        return next(iter(self._read(Profile, query, newest="measured_at", limit=1)), None)

    def record_decision(self, decision: Decision) -> None:
        """Keeps a decision for ever."""
        self._record(schema.decisions, decision)

    def decisions(
        self, *, job: str | None = None, fingerprint: str | None = None, limit: int = 1000
    ) -> tuple[Decision, ...]:
        """The newest ones of a job, of a pipeline, or all; the newest first."""
        query = self._of(schema.decisions, job=job, fingerprint=fingerprint)
        return self._read(Decision, query, newest="decided_at", limit=limit)

    def record_verdict(self, verdict: Verdict) -> None:
        """Takes the place of an older one about the same choice."""
        self._record(schema.verdicts, verdict, replace=True)

    def verdicts(self, fingerprint: str) -> tuple[Verdict, ...]:
        """Choices of a pipeline that were taken back, the newest first."""
        query = self._of(schema.verdicts, fingerprint=fingerprint)
        return self._read(Verdict, query, newest="given_at")

    def record_cache(self, cache: CacheRecord) -> None:
        """An entry is there; what is known of one with its key is replaced, but for its uses."""
        row = {"store_id": self._store_id, "forgotten_at": None, **values_of(cache)}

        def work(connection: Connection) -> None:
            now = datetime.now(UTC)
            see_pipeline(connection, self._store_id, cache.fingerprint, at=now)
            kept = {"uses", "last_used_at", "created_at"}
            insert_or_update(connection, schema.caches, row, keep=kept)

        self._write(work)

    def cache_used(self, key: str) -> bool:
        """An epoch reads the entry. False if there is none with that key."""
        caches = schema.caches
        used = {"uses": caches.c.uses + 1, "last_used_at": datetime.now(UTC)}
        return self._update_cache(key, used)

    def forget_cache(self, key: str) -> bool:
        """The entry is gone; its uses stay as history. False if there was none with that key."""
        return self._update_cache(key, {"forgotten_at": datetime.now(UTC)})

    def caches(self, *, fingerprint: str | None = None) -> tuple[CacheRecord, ...]:
        """The entries that are there, of one pipeline or all, the newest first."""
        query = self._of(schema.caches, fingerprint=fingerprint)
        there = query.where(schema.caches.c.forgotten_at.is_(None))
        return self._read(CacheRecord, there, newest="created_at")

    def expected_reads(self, fingerprint: str) -> float:
        """How many epochs will read an entry of that pipeline, by how many read earlier ones."""
        caches = schema.caches
        query = self._of(caches, fingerprint=fingerprint).order_by(caches.c.id)

        def work(connection: Connection) -> float:
            rows = connection.execute(query).all()
            gone = [row.uses for row in rows if row.forgotten_at is not None]
            return expected_uses(gone, [row.uses for row in rows if row.forgotten_at is None])

        return self._database.read(work)

    def record_worker_count(self, count: WorkerCount) -> None:
        """Takes the place of an older one of the same pipeline and mode."""
        self._record(schema.worker_counts, count, replace=True)

    def worker_counts(self, fingerprint: str) -> tuple[WorkerCount, ...]:
        """Those of a pipeline, one for each mode; the newest first."""
        query = self._of(schema.worker_counts, fingerprint=fingerprint)
        return self._read(WorkerCount, query, newest="measured_at")

    def record_epoch(self, epoch: EpochRecord) -> None:
        """Keeps an epoch's report for ever."""
        self._record(schema.epochs, epoch)

    def epochs(self, *, job: str | None = None, limit: int = 1000) -> tuple[EpochRecord, ...]:
        """The newest ones of a job or of all, the newest first."""
        query = self._of(schema.epochs, job=job)
        return self._read(EpochRecord, query, newest="ended_at", limit=limit)

    def record_event(self, event: Event) -> None:
        """Keeps an event for ever."""
        self._record(schema.events, event)

    def events(
        self, *, job: str | None = None, kind: str | None = None, limit: int = 1000
    ) -> tuple[Event, ...]:
        """The newest ones, of a job or of a kind if named; the newest first."""
        query = self._of(schema.events, job=job, kind=kind)
        return self._read(Event, query, newest="at", limit=limit)

    def _of(self, table: Table, **wanted: str | None) -> Select[Any]:
        """Rows of this store, with those values in the columns where one is given."""
        query = select(table).where(table.c.store_id == self._store_id)
        for column, value in wanted.items():
            if value is not None:
                query = query.where(table.c[column] == value)
        return query

    def _read(
        self, kind: type[Record], query: Select[Any], *, newest: str, limit: int | None = None
    ) -> tuple[Record, ...]:
        columns = query.selected_columns
        ordered = query.order_by(columns[newest].desc(), columns["id"].desc()).limit(limit)
        names: Mapping[str, Any] = kind.__dataclass_fields__  # type: ignore[attr-defined]

        def work(connection: Connection) -> tuple[Record, ...]:
            rows = connection.execute(ordered).mappings().all()
            return tuple(kind(**{name: row[name] for name in names}) for row in rows)

        return self._database.read(work)

    def _write(self, work: Any) -> Any:
        def as_holder(connection: Connection) -> Any:
            if self._lease is not None:
                self._lease.require(connection)
            return work(connection)

        return self._database.write(as_holder)

    def _record(self, table: Table, record: Any, *, replace: bool = False) -> None:
        row = {"store_id": self._store_id, **values_of(record)}

        def work(connection: Connection) -> None:
            if "fingerprint" in row:
                now = datetime.now(UTC)
                see_pipeline(connection, self._store_id, row["fingerprint"], at=now)
            if replace:
                insert_or_update(connection, table, row)
            else:
                connection.execute(insert(table).values(**row))

        self._write(work)

    def _update_cache(self, key: str, values: dict[str, Any]) -> bool:
        caches = schema.caches
        there = (
            (caches.c.store_id == self._store_id)
            & (caches.c.key == key)
            & caches.c.forgotten_at.is_(None)
        )

        def work(connection: Connection) -> bool:
            return bool(connection.execute(update(caches).where(there).values(**values)).rowcount)

        found: bool = self._write(work)
        return found


def _set_up(database: Database, store: str, holder: Holder | None, *, deadline: float) -> int:
    """Returns the store's id, once nobody else holds the lease."""
    work = partial(_prepare, store=store, holder=holder)
    attempts = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(LeaseHeldError),
        wait=tenacity.wait_fixed(_LEASE_POLL_S),
        stop=lambda _state: time.monotonic() >= deadline,
        reraise=True,
    )
    store_id: int = attempts(database.write, work)
    return store_id


def _prepare(connection: Connection, *, store: str, holder: Holder | None) -> int:
    sqlite = connection.dialect.name == "sqlite"
    if not sqlite:
        # Two services that open a new database at the same time would both make the tables.
        connection.execute(select(func.pg_advisory_xact_lock(text(str(_SETUP_LOCK)))))
    if not is_current(connection):
        if sqlite and connection.dialect.has_table(connection, schema.leases.name):
            lease.refuse_if_held(connection, holder or Holder())
        migrate(connection)
    row = {"name": store, "created_at": datetime.now(UTC)}
    insert_or_update(connection, schema.stores, row, keep={"created_at"})
    named = select(schema.stores.c.id).where(schema.stores.c.name == store)
    store_id: int = connection.execute(named).scalar_one()
    if holder is not None:
        lease.take(connection, holder, store_id=store_id)
    return store_id
