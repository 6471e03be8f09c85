"""Keeps a second service off a SQLite store: a row that says who uses it, and a heartbeat.

On the same machine a holder counts for as long as its process lives. From elsewhere (a restarted
pod has the same volume, but another process space) nobody can look, so the heartbeat's age decides.
A holder that was taken for dead, and was not, finds out at its next write, which is refused.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import uuid
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
from sqlalchemy import delete, insert, select, update
from sqlalchemy.engine import Connection

from cachew_core.errors import MetadataError
from cachew_core.metadata.database import Database
from cachew_core.metadata.schema import leases

BEAT_INTERVAL_S = 5.0
LEASE_TIMEOUT_S = 30.0
# The system derives a process's start from a clock that may be set.
_SAME_START_S = 2.0

_log = logging.getLogger(__name__)


class LeaseHeldError(MetadataError):
    """Another service uses the store."""


def _process_space() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Who holds a lease, by names that mean something on other machines, too.

    Attributes:
        process_space: within which process ids are unique; empty if unknown.
        process_started_s: Unix time.
    """

    owner: str = field(default_factory=lambda: uuid.uuid4().hex)
    host: str = field(default_factory=socket.gethostname)
    process_space: str = field(default_factory=_process_space)
    pid: int = field(default_factory=os.getpid)
    process_started_s: float = field(default_factory=lambda: psutil.Process().create_time())


def refuse_if_held(connection: Connection, holder: Holder, *, store_id: int | None = None) -> None:
    """Returns if nobody else who lives holds the store's lease, or, without a store, any lease.

    Raises:
        LeaseHeldError: somebody does.
    """
    query = select(leases).where(leases.c.owner != holder.owner)
    if store_id is not None:
        query = query.where(leases.c.store_id == store_id)
    for row in connection.execute(query):
        if _lives(row, holder):
            raise LeaseHeldError(
                f"the metadata store is in use by another service (process {row.pid} on "
                f"{row.host}, last heard of at {row.beat_at:%Y-%m-%d %H:%M:%S} UTC): end that "
                "service, or give this one another store; services that run at the same time "
                "can share a store if store_url names a PostgreSQL database"
            )


def _lives(row: Any, onlooker: Holder) -> bool:
    if row.process_space and row.process_space == onlooker.process_space:
        return _runs(row.pid, row.process_started_s)
    silent: timedelta = datetime.now(UTC) - row.beat_at
    return silent.total_seconds() < LEASE_TIMEOUT_S


def _runs(pid: int, started_s: float) -> bool:
    try:
        process = psutil.Process(pid)
        age_off_s: float = abs(process.create_time() - started_s)
        return age_off_s < _SAME_START_S and bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def take(connection: Connection, holder: Holder, *, store_id: int) -> None:
    """Makes the holder the store's, in place of a dead one if there is one.

    Raises:
        LeaseHeldError: somebody who lives holds it.
    """
    refuse_if_held(connection, holder, store_id=store_id)
    now = datetime.now(UTC)
    connection.execute(delete(leases).where(leases.c.store_id == store_id))
    connection.execute(
        insert(leases).values(store_id=store_id, acquired_at=now, beat_at=now, **asdict(holder))
    )


class Lease:
    """A lease that was taken: a thread keeps it until `close`."""

    def __init__(self, database: Database, holder: Holder, *, store_id: int) -> None:
        self._database = database
        self._mine = (leases.c.store_id == store_id) & (leases.c.owner == holder.owner)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="cachew-lease", daemon=True)
        self._thread.start()

    def require(self, connection: Connection) -> None:
        """Returns if the lease is still held.

        Raises:
            MetadataError: another service took it over.
        """
        if connection.execute(select(leases.c.pid).where(self._mine)).first() is None:
            raise MetadataError(
                f"the metadata store {self._database.address} was taken over by another service "
                f"while this one was not heard of for {LEASE_TIMEOUT_S:g} s: end one of them, or "
                "set store_url to another one"
            )

    def close(self) -> None:
        """Gives the lease back."""
        self._closed.set()
        self._thread.join()
        self._database.write(
            lambda connection: connection.execute(delete(leases).where(self._mine))
        )

    def _keep(self) -> None:
        while not self._closed.wait(BEAT_INTERVAL_S):
            try:
                self._database.write(self._beat)
            except MetadataError as error:
                _log.warning("no heartbeat: %s", error)

    def _beat(self, connection: Connection) -> None:
        connection.execute(update(leases).where(self._mine).values(beat_at=datetime.now(UTC)))
