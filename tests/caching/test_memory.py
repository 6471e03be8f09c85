"""Nothing that is stored or read stays in the memory of any process."""

from __future__ import annotations

import psutil
import tensorflow as tf
from cached_jobs import await_stored, modes
from real_service import RealService

import cachew_core as cachew

BLOCKS = 1000
BLOCK_BYTES = 40_000


def blocks(number: int) -> tf.data.Dataset:
    """40 MB; other ones for another number."""
    values = BLOCK_BYTES // 8
    return tf.data.Dataset.range(BLOCKS).map(lambda i: tf.fill([values], i + number * BLOCKS))


def read(service: RealService, dataset: tf.data.Dataset) -> None:
    assert sum(1 for _ in dataset) == BLOCKS


def resident(*pids: int) -> list[int]:
    return [psutil.Process(pid).memory_info().rss for pid in pids]


def assert_flat(seen: list[list[int]], *, after: int) -> None:
    for process in zip(*seen, strict=True):
        assert max(process[after + 1 :]) <= 1.1 * process[after], process


def test_reading_what_is_stored_takes_no_more_from_epoch_to_epoch(caching: RealService) -> None:
    distribute = cachew.distribute(
        caching.endpoint, job_name="read", cache_policy="full", direct_reads="never"
    )
    dataset = blocks(0).apply(distribute)
    read(caching, dataset)
    await_stored(caching, "read")
    seen = []
    readers = set()
    for _ in range(25):
        read(caching, dataset)
        workers = tuple(w.pid for w in caching.status().workers if w.job == "read")
        readers.add(workers)
        seen.append(resident(*workers, caching.dispatcher.pid, psutil.Process().pid))
    assert set(modes(caching, "read")[1:]) == {"GET"}
    assert len(readers) == 1
    assert_flat(seen, after=3)


def test_reading_directly_takes_no_more_from_epoch_to_epoch(caching: RealService) -> None:
    distribute = cachew.distribute(
        caching.endpoint, job_name="direct", cache_policy="full", direct_reads="always"
    )
    dataset = blocks(1).apply(distribute)
    read(caching, dataset)
    await_stored(caching, "direct")
    seen = []
    for _ in range(25):
        read(caching, dataset)
        seen.append(resident(caching.dispatcher.pid, psutil.Process().pid))
    assert_flat(seen, after=3)


def test_job_after_job_that_stores_takes_no_more(caching: RealService) -> None:
    [agent] = caching.agents
    seen = []
    for number in range(2, 14):
        job = f"stores {number}"
        distribute = cachew.distribute(caching.endpoint, job_name=job, cache_policy="full")
        read(caching, blocks(number).apply(distribute))
        await_stored(caching, job)
        seen.append(resident(agent.process.pid, caching.dispatcher.pid, psutil.Process().pid))
    assert_flat(seen, after=5)
