"""Jobs of real services whose number of workers changes while they are read."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import tensorflow as tf
from real_service import DEADLINE_S, RealService, eventually

import cachew_core as cachew
from cachew_core import cluster
from cachew_core.errors import ServiceError

WORKERS = 6


@pytest.fixture(scope="module")
def scaling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealService]:
    folder = tmp_path_factory.mktemp("service")
    with RealService(folder, "--scaling-policy", "auto") as service:
        service.add_agent(WORKERS)
        yield service


def slept(elements: int, work_ms: int) -> tf.data.Dataset:
    return tf.data.Dataset.range(elements).apply(cachew.sleep(1000 * work_ms))


def test_a_job_whose_trainer_waits_gets_more_workers_and_not_all(scaling: RealService) -> None:
    distribute = cachew.distribute(scaling.endpoint, job_name="waits")
    dataset = slept(250, 100).apply(distribute)
    seen = []
    for number in dataset:
        seen.append(int(number))
        time.sleep(0.05)
    assert sorted(seen) == list(range(250))
    job = scaling.job("waits")
    assert 1 < job.epochs[0].workers < WORKERS
    reasons = [decision.reason for decision in job.scaling]
    assert any(decision.settled for decision in job.scaling), reasons
    assert job.epochs[0].worker_seconds > 0
    assert job.scaling_policy == "rate_match"


def test_a_job_whose_trainer_never_waits_keeps_one_worker(scaling: RealService) -> None:
    dataset = slept(40, 20).apply(cachew.distribute(scaling.endpoint, job_name="busy"))
    for _ in dataset:
        time.sleep(0.2)
    job = scaling.job("busy")
    assert job.epochs[0].workers == 1
    assert job.wanted_workers == 1
    assert job.bottleneck == "trainer"


def test_a_job_that_may_not_have_what_it_could_use_is_limited_by_workers(
    scaling: RealService,
) -> None:
    distribute = cachew.distribute(scaling.endpoint, job_name="capped", max_workers=2)
    end = time.monotonic() + DEADLINE_S
    for number in slept(100_000, 50).apply(distribute):
        if int(number) == 20 or int(number) % 100 == 99:
            job = scaling.job("capped")
            if job.epochs[0].workers == 2 and job.bottleneck == "workers":
                break
            assert time.monotonic() < end, job


@pytest.mark.parametrize("seed", range(3))
def test_every_element_comes_once_however_the_number_changes(
    scaling: RealService, seed: int
) -> None:
    draw = random.Random(seed)
    name = f"random-{seed}"
    dataset = slept(300, 5).apply(cachew.distribute(scaling.endpoint, job_name=name))
    counts: list[int] = []
    for _ in range(3):
        seen = []
        for number in dataset:
            seen.append(int(number))
            if draw.random() < 0.05:
                counts.append(draw.randint(1, WORKERS))
                cluster.scale(scaling.endpoint, name, counts[-1])
        assert sorted(seen) == list(range(300))
    assert len(set(counts)) > 2
    assert max(epoch.workers for epoch in scaling.epochs(name)) > 1


def test_the_number_can_be_set_by_hand_and_given_back(scaling: RealService) -> None:
    dataset = slept(10_000, 10).apply(cachew.distribute(scaling.endpoint, job_name="by-hand"))
    iterator = iter(dataset)
    next(iterator)
    cluster.scale(scaling.endpoint, "by-hand", 5)
    eventually(lambda: scaling.workers_of("by-hand") == 5)
    assert scaling.job("by-hand").wanted_workers == 5
    cluster.scale(scaling.endpoint, "by-hand", 2)
    eventually(lambda: scaling.workers_of("by-hand") == 2)
    cluster.scale(scaling.endpoint, "by-hand", None)
    assert scaling.job("by-hand").scaling[-1].reason == "the policy decides again"
    with pytest.raises(ServiceError, match="no job 'nobody'"):
        cluster.scale(scaling.endpoint, "nobody", 2)


def test_where_workers_are_scarce_shares_follow_the_weights(scaling: RealService) -> None:
    over = threading.Event()

    def read(name: str, weight: float) -> None:
        distribute = cachew.distribute(
            scaling.endpoint, job_name=name, scaling_policy="all", weight=weight
        )
        # Each by itself: a worker that drains is free once its trainer has read what it holds.
        for _ in slept(10_000, 20).apply(distribute):
            if over.is_set():
                return

    def shares() -> tuple[int, int]:
        jobs = {job.job_name: job.workers for job in scaling.status().jobs}
        return jobs.get("light", 0), jobs.get("heavy", 0)

    with ThreadPoolExecutor(2) as pool:
        readers = [pool.submit(read, *each) for each in (("light", 1.0), ("heavy", 2.0))]
        try:
            eventually(lambda: shares() == (2, 4) or any(reader.done() for reader in readers))
            assert not any(reader.done() for reader in readers)
        finally:
            over.set()
        for reader in readers:
            reader.result()


def test_max_workers_is_a_limit(scaling: RealService) -> None:
    distribute = cachew.distribute(
        scaling.endpoint, job_name="limited", scaling_policy="all", max_workers=2
    )
    assert len(list(slept(60, 10).apply(distribute))) == 60
    assert scaling.epochs("limited")[0].workers == 2
