"""What makes room in a cache of limited size, seen from trainers of a real service."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import tensorflow as tf
from cached_jobs import Trainer, await_stored, modes, multiset
from real_service import RealService, eventually

import cachew_core as cachew
from cachew_core.cache import stored_entries

ROWS, ROW_BYTES = 40, 20_000
CAPACITY_BYTES = 2 * ROWS * ROW_BYTES
"""One entry and most of a second one."""


@pytest.fixture
def small(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RealService]:
    """A service whose cache holds one entry and not two; with a metadata store where asked for."""
    (tmp_path / "cache").mkdir()
    flags = [f"--cache-dir={tmp_path / 'cache'}", f"--cache-capacity={CAPACITY_BYTES}"]
    if getattr(request, "param", ""):
        flags.append(f"--store-url=sqlite:///{tmp_path / 'store.db'}")
    with RealService(tmp_path, *flags) as running:
        running.add_agent(slots=2)
        yield running


def rows(number: int) -> tf.data.Dataset:
    """A pipeline that runs on one worker: of the two, no job waits for one of another's, which a
    trainer that stands still does not let go.
    """
    made = tf.data.Dataset.range(ROWS).map(
        lambda row: tf.fill([ROW_BYTES // 8], row + 1_000 * number)
    )
    return made.take(ROWS)


def served(service: RealService, number: int) -> tf.data.Dataset:
    job = f"job {number}"
    return rows(number).apply(
        cachew.distribute(service.endpoint, job_name=job, cache_policy="full", prefetch=0)
    )


def jobs_stored(service: RealService) -> set[str]:
    return {str(entry.facts["job"]) for entry in stored_entries(service.folder / "cache")}


def test_the_entry_that_was_not_read_for_longest_makes_room_and_one_in_use_never(
    small: RealService,
) -> None:
    first, second = served(small, 1), served(small, 2)
    assert multiset(first) == multiset(rows(1))
    await_stored(small, "job 1")
    assert multiset(second) == multiset(rows(2))
    eventually(lambda: jobs_stored(small) == {"job 2"})

    reading = Trainer(second, hold_at=1)
    eventually(lambda: reading.has(1))
    assert multiset(first) == multiset(rows(1))
    eventually(lambda: "job job 1: epoch 2 stored" in small.log_text())
    eventually(lambda: jobs_stored(small) == {"job 2"})
    reading.go_on()
    assert reading.done() == multiset(rows(2))
    assert multiset(second) == multiset(rows(2))
    assert modes(small, "job 1") == ["PUT", "PUT"]
    assert modes(small, "job 2") == ["PUT", "GET", "GET"]


@pytest.mark.parametrize("small", ["with history"], indirect=True)
def test_the_metadata_store_is_told_what_made_room(small: RealService) -> None:
    for number in (1, 2):
        assert multiset(served(small, number)) == multiset(rows(number))
        await_stored(small, f"job {number}")
    eventually(lambda: "makes room" in small.log_text())
    eventually(lambda: len(jobs_stored(small)) == 1)
    eventually(lambda: known_to_metadata(small) == keys_stored(small))


def keys_stored(service: RealService) -> set[str]:
    return {entry.key for entry in stored_entries(service.folder / "cache")}


def known_to_metadata(service: RealService) -> set[str]:
    """The entries that the metadata store takes to be there."""
    with closing(sqlite3.connect(service.folder / "store.db")) as database:
        rows = database.execute("SELECT key FROM cachew_caches WHERE forgotten_at IS NULL")
        found = rows.fetchall()
    return {str(key) for (key,) in found}
