"""A program that works on a metadata store in a process of its own, told what by its arguments.

`hold URL STORE`: opens it, says so, and waits to be killed.
`half URL STORE`: writes many events in one transaction, says so before its end, and waits.
`write URL STORE NAME COUNT`: records so many events of that kind, and counts a cache's uses.
"""

import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime

from sqlalchemy import insert
from sqlalchemy.engine import Connection

from cachew_core.metadata import Event, MetadataStore
from cachew_core.metadata.address import parse_address
from cachew_core.metadata.database import Database
from cachew_core.metadata.schema import events


def say_and_wait() -> None:
    """Tells the parent that it has come so far."""
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    time.sleep(600)


def hold(url: str, store: str) -> None:
    """A service that dies without closing."""
    MetadataStore.open(url, store=store)
    say_and_wait()


def half(url: str, _store: str) -> None:
    """A process that dies in a transaction too large for memory: part of it is in the files."""

    def work(connection: Connection) -> None:
        now = datetime.now(UTC)
        row = {"store_id": 1, "at": now, "kind": "half", "job": "", "text": "x" * 2000}
        connection.execute(insert(events), [{**row, "figures": {}} for _ in range(5000)])
        say_and_wait()

    Database(parse_address(url)).write(work)


def write(url: str, store: str, name: str, count: str) -> None:
    """One of several writers."""
    with MetadataStore.open(url, store=store, exclusive=False) as opened:
        for number in range(int(count)):
            at = datetime.now(UTC)
            opened.record_event(Event(at=at, kind=name, job="", text=str(number)))
            opened.cache_used("k1")


if __name__ == "__main__":
    programs: dict[str, Callable[..., None]] = {"hold": hold, "half": half, "write": write}
    programs[sys.argv[1]](*sys.argv[2:])
