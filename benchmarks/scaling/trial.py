"""One epoch of a job under one way to set its number of workers: how long, and what it cost."""

from __future__ import annotations

import itertools
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import cachew_core as cachew
from benchmarks.scaling.pipelines import Pipeline
from cachew_core import cluster
from cachew_core.proto import cachew_pb2

_firsts = itertools.count(1)

_IDLE_TIMEOUT_S = 3600.0

_SETTLED_S = 30.0
"""An epoch's last figures are there well before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What came of one epoch.

    Attributes:
        seconds: from asking for the first batch to the end.
        worker_s: for all workers, the time for which they were held.
        workers: what was set or decided, by the seconds since the start at which it was.
        settled: the last number.
    """

    seconds: float
    worker_s: float
    workers: list[tuple[float, int]]

    @property
    def settled(self) -> int:
        return self.workers[-1][1] if self.workers else 0


Control = Callable[[str, str, threading.Event], None]
"""Sets a job's number of workers until the event comes; gets the service's and the job's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A way to set a job's number of workers.

    Attributes:
        name: for people.
        policy: of the service.
        workers: the most, and with the policy `all` the number.
        control: beside it, from one worker on; None: nothing is.
    """

    name: str
    policy: str
    workers: int
    control: Control | None = None


@contextmanager
def a_service(workers: int) -> Iterator[str]:
    """A service of its own while the block runs; its name."""
    name = f"bench-{uuid.uuid4().hex[:8]}"
    try:
        cluster.up(
            name,
            workers=workers,
            idle_timeout_s=_IDLE_TIMEOUT_S,
            first_client_timeout_s=_IDLE_TIMEOUT_S,
        )
        yield name
    finally:
        cluster.down(name)


def run_trial(service: str, pipeline: Pipeline, way: Way, job_name: str) -> Trial:
    """Reads one epoch as a job of its own.

    Raises:
        CachewError: the service failed.
        WrongDataError: the epoch did not have the elements that it should have.
    """
    distribute = cachew.distribute(
        service,
        job_name,
        scaling_policy=way.policy,
        max_workers=way.workers,
        cache_policy="compute",
        direct_reads="never",
    )
    first = next_first()
    dataset = pipeline.dataset(first).apply(distribute)
    if pipeline.buffer:
        dataset = dataset.prefetch(pipeline.buffer)
    if way.control is not None:
        cluster.scale(service, job_name, 1)
    began_at = time.time()
    with controlled(way, service, job_name):
        began = time.perf_counter()
        seen = [0] * pipeline.batches
        for number in dataset:
            seen[int(number) - first] += 1
            time.sleep(pipeline.step_ms / 1000)
        seconds = time.perf_counter() - began
        job = ended_job(service, job_name)
    if set(seen) != {1}:
        raise WrongDataError(f"{job_name}: an epoch of {pipeline.name} lost or doubled elements")
    numbers = [(each.at_s - began_at, each.workers or way.workers) for each in job.scaling]
    return Trial(seconds=seconds, worker_s=job.epochs[0].worker_seconds, workers=numbers)


class WrongDataError(Exception):
    """An epoch did not have the elements that it should have."""


def next_first() -> int:
    """A number for a pipeline's first element that none has had before."""
    return next(_firsts)


@contextmanager
def controlled(way: Way, service: str, job_name: str) -> Iterator[None]:
    """Has the way's control at work while the block runs."""
    if way.control is None:
        yield
        return
    over = threading.Event()
    thread = threading.Thread(target=way.control, args=(service, job_name, over))
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def job_of(service: str, job_name: str) -> cachew_pb2.JobStatus:
    """A job's status."""
    jobs = cluster.status(service).jobs
    return next(job for job in reversed(jobs) if job.job_name == job_name)


def ended_job(service: str, job_name: str, epochs: int = 1) -> cachew_pb2.JobStatus:
    """The job's status, once so many epochs have finished.

    Raises:
        WrongDataError: they did not.
    """
    deadline = time.monotonic() + _SETTLED_S
    while True:
        job = job_of(service, job_name)
        states = [epoch.state for epoch in job.epochs]
        if states == ["finished"] * epochs:
            return job
        if time.monotonic() > deadline:
            raise WrongDataError(f"{job_name}: its epochs are {', '.join(states)}")
        time.sleep(0.05)
