"""Killed writers, writers at the same time, and a PostgreSQL that goes away for a moment."""

import subprocess
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import store_process
from postgresql_server import PostgresqlServer
from sqlalchemy import insert, update

from cachew_core.metadata import CacheRecord, Event, MetadataStore
from cachew_core.metadata.address import parse_address
from cachew_core.metadata.database import Database
from cachew_core.metadata.schema import stores

NOW = datetime(2026, 5, 4, tzinfo=UTC)
EVENT = Event(at=NOW, kind="before", job="", text="")
CACHE = CacheRecord(
    key="k1",
    fingerprint="f1",
    point="end",
    path="entries/k1",
    size_bytes=1,
    elements=1,
    seconds_saved_per_use=1,
    created_at=NOW,
    state="ready",
)


def start(*arguments: str) -> subprocess.Popen[str]:
    program = str(Path(store_process.__file__))
    return subprocess.Popen(
        [sys.executable, program, *arguments], stdout=subprocess.PIPE, text=True
    )


def test_a_process_killed_in_a_transaction_leaves_a_store_without_a_trace_of_it(url: str) -> None:
    with MetadataStore.open(url, store="photographs") as store:
        store.record_event(EVENT)
    with start("half", url, "photographs") as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            if url.startswith("sqlite:///"):
                log = Path(url.removeprefix("sqlite:///") + "-wal")
                assert log.stat().st_size > 2**20
        finally:
            process.kill()
    with MetadataStore.open(url, store="photographs") as store:
        assert store.events() == (EVENT,)
        store.record_event(EVENT)
        assert len(store.events()) == 2


def test_of_two_processes_that_write_at_the_same_time_nothing_is_lost(url: str) -> None:
    with MetadataStore.open(url, store="photographs") as store:
        store.record_cache(CACHE)
        with (
            start("write", url, "photographs", "a", "100") as one,
            start("write", url, "photographs", "b", "100") as other,
        ):
            assert (one.wait(120), other.wait(120)) == (0, 0)
        for kind in ("a", "b"):
            numbers = [int(event.text) for event in store.events(kind=kind)]
            assert sorted(numbers) == list(range(100))
        (cache,) = store.caches()
        assert cache.uses == 200


def test_threads_share_one_open_store(store: MetadataStore) -> None:
    store.record_cache(CACHE)

    def use() -> None:
        for _ in range(25):
            store.cache_used("k1")
            store.caches()

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.caches()[0].uses == 100


def test_work_that_raises_leaves_nothing(url: str) -> None:
    MetadataStore.open(url, store="photographs").close()
    database = Database(parse_address(url))

    def work(connection: Any) -> None:
        connection.execute(update(stores).values(name="changed"))
        raise KeyError("any")

    with pytest.raises(KeyError):
        database.write(work)
    name = database.read(lambda connection: connection.execute(stores.select()).one().name)
    database.close()
    assert name == "photographs"


@pytest.fixture
def own_server(server: PostgresqlServer) -> Any:
    """The session's, which is running again when the test has ended."""
    yield server
    server.stop()
    server.start()


def test_a_restart_of_postgresql_is_not_noticed(
    own_server: PostgresqlServer, postgresql_url: str
) -> None:
    with MetadataStore.open(postgresql_url, store="photographs") as store:
        store.record_event(EVENT)
        own_server.stop()
        own_server.start()
        store.record_event(EVENT)
        assert len(store.events()) == 2


def test_what_is_recorded_while_postgresql_starts_again_is_kept(
    own_server: PostgresqlServer, postgresql_url: str
) -> None:
    with MetadataStore.open(postgresql_url, store="photographs") as store:
        own_server.stop()
        starting = threading.Thread(target=own_server.start)
        starting.start()
        try:
            store.record_event(EVENT)
        finally:
            starting.join()
        assert store.events() == (EVENT,)


def test_the_victim_of_a_deadlock_tries_again(postgresql_url: str) -> None:
    for name in ("one", "two"):
        MetadataStore.open(postgresql_url, store=name).close()
    database = Database(parse_address(postgresql_url))
    both_have_one = threading.Barrier(2, timeout=30)
    tries: list[str] = []

    def crosswise(first: str, second: str) -> None:
        def work(connection: Any) -> None:
            tries.append(first)
            connection.execute(update(stores).where(stores.c.name == first).values(created_at=NOW))
            if len(tries) <= 2:
                both_have_one.wait()
            connection.execute(update(stores).where(stores.c.name == second).values(created_at=NOW))
            connection.execute(insert(stores).values(name=f"after {first}", created_at=NOW))

        database.write(work)

    threads = [
        threading.Thread(target=crosswise, args=names) for names in (("one", "two"), ("two", "one"))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    names = database.read(lambda connection: connection.execute(stores.select()).all())
    database.close()
    assert len(tries) == 3
    assert {row.name for row in names} == {"one", "two", "after one", "after two"}
