"""Transactions on a store's database: SQLite set up for threads and crashes, PostgreSQL retried.

Work is given as a function of a connection, so that it can be run again when PostgreSQL was
restarted or chose it as a deadlock's victim. If the answer to a commit was lost, it happens twice:
work that may not is written so that its second run changes nothing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any, TypeVar

import tenacity
from sqlalchemy import create_engine, event
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import (
    ArgumentError,
    InterfaceError,
    OperationalError,
    SQLAlchemyError,
)

from cachew_core.errors import MetadataError
from cachew_core.metadata.address import StoreAddress

Result = TypeVar("Result")

_BUSY_TIMEOUT_S = 5.0
_CONNECT_TIMEOUT_S = 5
_RETRY_S = 10.0
_WRITES = "cachew_writes"


class Database:
    """One database. Usable from several threads at a time."""

    def __init__(self, address: StoreAddress) -> None:
        """Prepares to connect, but does not yet.

        Raises:
            MetadataError: the folder of a SQLite file can't be made, or the driver is missing.
        """
        self.address = address
        self.is_sqlite = address.path is not None
        self._engine = self._make_engine()
        self._writer = self._engine.execution_options(**{_WRITES: True})
        self._retried = tenacity.Retrying(
            retry=tenacity.retry_if_exception(self._may_pass),
            wait=tenacity.wait_exponential(multiplier=0.05, max=1),
            stop=tenacity.stop_after_delay(_RETRY_S),
            reraise=True,
        )

    def read(self, work: Callable[[Connection], Result]) -> Result:
        """Runs the work in a transaction that changes nothing.

        Raises:
            MetadataError: the database does not answer, or not as it should.
        """
        return self._run(self._engine, work)

    def write(self, work: Callable[[Connection], Result]) -> Result:
        """Runs the work in a transaction: all of it is kept, or nothing if it raises.

        Raises:
            MetadataError: as `read`; or SQLite's file was busy for too long.
        """
        return self._run(self._writer, work)

    def close(self) -> None:
        """Closes all connections that no thread is using."""
        self._engine.dispose()

    def _run(self, engine: Engine, work: Callable[[Connection], Result]) -> Result:
        try:
            result: Result = self._retried(_in_transaction, engine, work)
            return result
        except SQLAlchemyError as error:
            cause = getattr(error, "orig", None) or error
            raise MetadataError(
                f"the metadata store {self.address} can't be used: {str(cause).strip()} "
                "(mend that, or set store_url to another one)"
            ) from error

    def _may_pass(self, error: BaseException) -> bool:
        """Whether another try may help: SQLite waited already, by its busy timeout."""
        return not self.is_sqlite and isinstance(error, OperationalError | InterfaceError)

    def _make_engine(self) -> Engine:
        if self.address.path is None:
            return self._postgresql_engine()
        try:
            self.address.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise MetadataError(
                f"the folder of store_url={self.address} can't be made: {error}"
            ) from error
        engine = create_engine(
            self.address.url, future=True, connect_args={"timeout": _BUSY_TIMEOUT_S}
        )
        event.listen(engine, "connect", _set_up_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return engine

    def _postgresql_engine(self) -> Engine:
        try:
            return create_engine(
                self.address.url,
                future=True,
                connect_args={"connect_timeout": _CONNECT_TIMEOUT_S},
            )
        except (ArgumentError, ImportError) as error:
            raise MetadataError(
                f"store_url={self.address} needs psycopg 3 and SQLAlchemy 2 "
                f"(pip install 'cachew-service[postgres]'): {error}"
            ) from error


def _in_transaction(engine: Engine, work: Callable[[Connection], Result]) -> Result:
    with engine.begin() as connection:
        return work(connection)


def _set_up_sqlite(connection: sqlite3.Connection, _record: Any) -> None:
    connection.execute("PRAGMA foreign_keys = ON")
    # In WAL mode this loses the last transactions when the machine loses power, not when a process
    # dies, and never leaves a damaged file.
    connection.execute("PRAGMA synchronous = NORMAL")
    (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
    if mode != "wal":
        _switch_to_wal(connection)


# SQLite does not wait by itself when two processes switch at the same time.
@tenacity.retry(
    retry=tenacity.retry_if_exception_message(match=".*locked"),
    wait=tenacity.wait_random(0.01, 0.05),
    stop=tenacity.stop_after_delay(_BUSY_TIMEOUT_S),
    reraise=True,
)
def _switch_to_wal(connection: sqlite3.Connection) -> None:
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise sqlite3.OperationalError(
            f"its file system can't hold a write-ahead log (journal mode stays {mode!r})"
        )


def _begin_sqlite(connection: Connection) -> None:
    # A transaction that first reads and then writes fails at once, without waiting, if another one
    # wrote in between. So writers take the lock at their beginning.
    writes = connection.get_execution_options().get(_WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
