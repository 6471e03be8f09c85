"""What workers hold: no more from epoch to epoch, and not more than their node allows."""

from __future__ import annotations

from collections import Counter

import psutil
import tensorflow as tf
from real_service import RealService

import cachew_core as cachew

KIB = 1024
BUFFER = 10_000


def test_memory_stays_flat_over_many_epochs_of_a_large_shuffle(service: RealService) -> None:
    service.add_agent(1)
    blocks = tf.data.Dataset.range(BUFFER).map(lambda i: tf.fill([KIB // 8], i)).shuffle(BUFFER)
    dataset = blocks.batch(100).apply(cachew.distribute(service.endpoint, job_name="shuffled"))
    resident, workers = [], set()
    for _ in range(30):
        assert sum(len(batch) for batch in dataset) == BUFFER
        [worker] = [w for w in service.status().workers if w.job == "shuffled"]
        workers.add(worker.pid)
        resident.append(psutil.Process(worker.pid).memory_info().rss)
    assert len(workers) == 1
    assert max(resident[3:]) <= 1.1 * resident[2]


def test_a_worker_over_its_limit_is_replaced_in_mid_epoch_without_a_loss(
    service: RealService,
) -> None:
    # Every worker is over such a limit, so they are replaced again and again.
    service.add_agent(2, "--worker-memory=1", "--worker-memory-after=1")
    numbers = tf.data.Dataset.range(3000).apply(cachew.sleep(2_000))
    dataset = numbers.apply(cachew.distribute(service.endpoint, job_name="large"))
    assert Counter(dataset.as_numpy_iterator()) == Counter(range(3000))
    assert service.log_text().count("over worker_memory_bytes=1") >= 2
    notices = [n for n in service.job("large").notices if "a fresh one takes its place" in n]
    assert notices


def test_a_worker_over_its_limit_with_nobody_to_take_its_place_goes_on_to_the_epochs_end(
    service: RealService,
) -> None:
    service.add_agent(1, "--worker-memory=1", "--worker-memory-after=0")
    numbers = tf.data.Dataset.range(1000).apply(cachew.sleep(1_000))
    dataset = numbers.apply(cachew.distribute(service.endpoint, job_name="alone"))
    served_by = []
    for _ in range(2):
        elements = dataset.as_numpy_iterator()
        first = next(elements)
        [worker] = [w for w in service.status().workers if w.job == "alone"]
        served_by.append(psutil.Process(worker.pid))
        assert Counter([first, *elements]) == Counter(range(1000))
    assert len({process.pid for process in served_by}) == 2
    assert not served_by[0].is_running()
