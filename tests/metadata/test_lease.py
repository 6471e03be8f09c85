"""One service at a time uses a SQLite store, and a dead one keeps nobody out."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import store_process
from sqlalchemy import update

from cachew_core.errors import MetadataError
from cachew_core.metadata import Event, MetadataStore, lease
from cachew_core.metadata.address import parse_address
from cachew_core.metadata.database import Database
from cachew_core.metadata.schema import leases

EVENT = Event(at=datetime.now(UTC), kind="any", job="", text="")


@contextmanager
def service(url: str) -> Iterator[subprocess.Popen[str]]:
    """Another process that has the store open."""
    arguments = [sys.executable, str(Path(store_process.__file__)), "hold", url, "photographs"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


def change_lease(url: str, **values: Any) -> None:
    database = Database(parse_address(url))
    database.write(lambda connection: connection.execute(update(leases).values(**values)))
    database.close()


def test_a_second_service_is_refused_with_the_first_ones_process(sqlite_url: str) -> None:
    with service(sqlite_url) as process:
        with pytest.raises(MetadataError, match=rf"process {process.pid} on .*PostgreSQL"):
            MetadataStore.open(sqlite_url, store="photographs")
        assert process.poll() is None


def test_a_store_that_was_closed_can_be_opened_at_once(sqlite_url: str) -> None:
    MetadataStore.open(sqlite_url, store="photographs").close()
    MetadataStore.open(sqlite_url, store="photographs").close()


def test_the_same_process_is_no_exception(sqlite_url: str) -> None:
    with (
        MetadataStore.open(sqlite_url, store="photographs"),
        pytest.raises(MetadataError, match="in use"),
    ):
        MetadataStore.open(sqlite_url, store="photographs")


def test_another_store_in_the_same_file_is_free(sqlite_url: str) -> None:
    with service(sqlite_url):
        MetadataStore.open(sqlite_url, store="songs").close()


def test_a_command_reads_and_writes_beside_a_service(sqlite_url: str) -> None:
    with (
        MetadataStore.open(sqlite_url, store="photographs") as running,
        MetadataStore.open(sqlite_url, store="photographs", exclusive=False) as command,
    ):
        command.record_event(EVENT)
        assert running.events() == (EVENT,)


def test_a_killed_services_store_is_taken_over_at_once(sqlite_url: str) -> None:
    with service(sqlite_url) as process:
        process.kill()
        process.wait(30)
        with MetadataStore.open(sqlite_url, store="photographs") as store:
            store.record_event(EVENT)


def test_a_services_that_nobody_has_waited_for_yet_is_dead_too(sqlite_url: str) -> None:
    with service(sqlite_url) as process:
        process.kill()
        assert process.stdout is not None
        # Its end closes the pipe; its entry in the process table stays until it is waited for.
        assert process.stdout.read() == ""
        MetadataStore.open(sqlite_url, store="photographs", wait_s=20).close()


def test_another_process_under_the_dead_ones_number_does_not_keep_the_store(
    sqlite_url: str,
) -> None:
    with service(sqlite_url):
        change_lease(sqlite_url, process_started_s=1.0)
        MetadataStore.open(sqlite_url, store="photographs").close()


def test_a_service_elsewhere_keeps_the_store_while_its_heart_beats(sqlite_url: str) -> None:
    with service(sqlite_url):
        change_lease(sqlite_url, process_space="another machine", host="node-7")
        with pytest.raises(MetadataError, match="on node-7"):
            MetadataStore.open(sqlite_url, store="photographs")


def test_a_service_elsewhere_that_fell_silent_is_taken_over_and_told(sqlite_url: str) -> None:
    silent = MetadataStore.open(sqlite_url, store="photographs")
    long_ago = datetime.now(UTC) - timedelta(seconds=lease.LEASE_TIMEOUT_S + 1)
    change_lease(sqlite_url, process_space="another machine", beat_at=long_ago)
    with MetadataStore.open(sqlite_url, store="photographs") as store:
        with pytest.raises(MetadataError, match="taken over by another service"):
            silent.record_event(EVENT)
        store.record_event(EVENT)
        # It gives nothing back that is not its own.
        silent.close()
        store.record_event(EVENT)
        assert len(store.events()) == 2


def test_the_heart_beats_while_the_service_does_nothing(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    beats = threading.Semaphore(0)
    monkeypatch.setattr(lease, "BEAT_INTERVAL_S", 0.01)
    written = lease.Lease._beat

    def counted(self: lease.Lease, connection: Any) -> None:
        written(self, connection)
        beats.release()

    monkeypatch.setattr(lease.Lease, "_beat", counted)
    with MetadataStore.open(sqlite_url, store="photographs"):
        change_lease(sqlite_url, beat_at=datetime(2026, 1, 1, tzinfo=UTC))
        for _ in range(2):
            assert beats.acquire(timeout=30)
        database = Database(parse_address(sqlite_url))
        beat_at = database.read(lambda each: each.execute(leases.select()).one().beat_at)
        database.close()
    assert beat_at > EVENT.at


def test_opening_waits_for_another_service_to_end(sqlite_url: str) -> None:
    with service(sqlite_url) as process:
        threading.Timer(0.3, process.kill).start()
        MetadataStore.open(sqlite_url, store="photographs", wait_s=30).close()


def test_services_share_a_store_in_postgresql(postgresql_url: str) -> None:
    with (
        MetadataStore.open(postgresql_url, store="photographs") as one,
        MetadataStore.open(postgresql_url, store="photographs") as other,
    ):
        one.record_event(EVENT)
        assert other.events() == (EVENT,)
