"""What storing and reading stored batches costs, each as a ratio of two epochs of one service."""

from __future__ import annotations

import itertools
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import tensorflow as tf

import cachew_core as cachew
from benchmarks.ratios import Bound, Side
from benchmarks.reading import Epoch, read_epoch
from benchmarks.scaling.pipelines import Pipeline, Work
from cachew_core.cluster import down, status, up

MIB = 1024 * 1024
BATCH_VALUES = MIB
"""Of four bytes each."""
SPLITS = 16
WORK_S = 0.040

_ROOT = Path(__file__).resolve().parent.parent
_READER_S = 300.0


class WrongModeError(Exception):
    """An epoch did not do what its case is about, so its time means nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """Where a case runs.

    Attributes:
        folder: for what a case stores without it.
    """

    name: str
    endpoint: str
    folder: Path

    def mode(self, job: str) -> str:
        """Of a job's last epoch."""
        found = next(each for each in status(self.name).jobs if each.job_name == job)
        return found.epochs[-1].mode

    def check(self, job: str, mode: str) -> None:
        """Whether a job's last epoch had the mode that is measured.

        Raises:
            WrongModeError: it had not.
        """
        if (found := self.mode(job)) != mode:
            raise WrongModeError(f"job {job}: an epoch was {found} where {mode} is measured")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCase:
    """One ratio.

    Attributes:
        name: for people and for `--case`.
        workers: of the service.
        sides: what is divided by what.
        unit: of both.
        bound: of the ratio.
        pair: measures both, once.
    """

    name: str
    workers: int
    sides: tuple[str, str]
    unit: str
    bound: Bound
    pair: Callable[[Service], tuple[float, float]]


def all_cases(*, small: bool) -> list[StoredCase]:
    """All cases.

    Args:
        small: epochs of a few batches, which measure nothing but show that all works.
    """
    worked, streamed = (SPLITS, SPLITS) if small else (24 * SPLITS, 24 * SPLITS)
    # 1.5 GiB are read in a second or two, in which what a process does once weighs too much.
    many = streamed if small else 4 * streamed
    # Two minutes of two workers: many times what a profile may take.
    burnt = SPLITS if small else 375 * SPLITS

    return [
        StoredCase(
            name="writing beside 40 ms of work, 2 workers",
            workers=2,
            sides=("PUT", "COMPUTE"),
            unit="s",
            bound=Bound(side=Side.AT_MOST, limit=1.3),
            pair=lambda service: _written(service, worked),
        ),
        StoredCase(
            name="reading through a worker",
            workers=1,
            sides=("GET", "from memory"),
            unit="MiB/s",
            bound=Bound(side=Side.AT_LEAST, limit=0.7),
            pair=lambda service: _streamed(service, streamed),
        ),
        StoredCase(
            name="reading directly",
            workers=1,
            sides=("GET", "Dataset.load"),
            unit="MiB/s",
            bound=Bound(side=Side.AT_LEAST, limit=0.95),
            pair=lambda service: _loaded(service, streamed),
        ),
        StoredCase(
            name="an epoch beside its profile, both workers busy",
            workers=2,
            sides=("PROFILE", "COMPUTE"),
            unit="s",
            bound=Bound(side=Side.AT_MOST, limit=1.05),
            pair=lambda service: _profiled(service, burnt),
        ),
        _first_read(
            "another process' first epoch through a worker",
            lambda service: _read_elsewhere(service, many, "never"),
        ),
        _first_read(
            "another process' first epoch, directly",
            lambda service: _read_elsewhere(service, many, "always"),
        ),
        _first_read(
            "a later service's first epoch through a worker",
            lambda service: _read_later(service, many, "never"),
        ),
        _first_read(
            "a later service's first epoch, directly",
            lambda service: _read_later(service, many, "always"),
        ),
    ]


def _first_read(name: str, pair: Callable[[Service], tuple[float, float]]) -> StoredCase:
    return StoredCase(
        name=name,
        workers=1,
        sides=("first GET", "later GET"),
        unit="s",
        bound=Bound(side=Side.AT_MOST, limit=1.1),
        pair=pair,
    )


_STORED = 0
"""The number of the data that is read, again and again."""

_fresh = itertools.count(_STORED + 1)
"""A number for pipelines whose data no other one has stored."""


def batches(count: int, number: int) -> tf.data.Dataset:
    """Batches of 4 MiB out of memory.

    Args:
        count: a multiple of `SPLITS`.
        number: in all of them, so that data of other numbers is other data.
    """

    def of_split(_: tf.Tensor) -> tf.data.Dataset:
        return tf.data.Dataset.from_tensors(tf.fill([BATCH_VALUES], number)).repeat(count // SPLITS)

    return tf.data.Dataset.range(SPLITS).flat_map(of_split)


def _written(service: Service, count: int) -> tuple[float, float]:
    # Both are the first epochs of their jobs: there is only one that writes.
    work = cachew.sleep(int(1e6 * WORK_S))
    both = []
    for policy, mode in (("full", "PUT"), ("compute", "COMPUTE")):
        pipeline = batches(count, next(_fresh)).apply(work)
        job = _job(service, pipeline, policy)
        both.append(job.epoch(mode).seconds)
    return both[0], both[1]


def _profiled(service: Service, count: int) -> tuple[float, float]:
    busy = Pipeline(work=Work.BURNING, work_ms=1000 * WORK_S, step_ms=0, batches=count)
    both = []
    for policy, mode in (("auto", "PROFILE"), ("compute", "COMPUTE")):
        job = _job(service, busy.dataset(next(_fresh) * count), policy)
        both.append(job.epoch(mode).seconds)
    return both[0], both[1]


def _streamed(service: Service, count: int) -> tuple[float, float]:
    stored = batches(count, _STORED)
    reading = _later_read(service, count, "never")
    computing = _job(service, stored, "compute")
    computing.epoch("COMPUTE")
    return _mib_per_s(reading), _mib_per_s(computing.epoch("COMPUTE"))


def _loaded(service: Service, count: int) -> tuple[float, float]:
    folder = service.folder / "saved"
    if not folder.exists():
        batches(count, _STORED).save(str(folder), shard_func=_any_shard)
    loaded = tf.data.Dataset.load(str(folder)).prefetch(tf.data.AUTOTUNE)
    read_epoch(loaded)
    reading = _later_read(service, count, "always")
    return _mib_per_s(reading), _mib_per_s(read_epoch(loaded))


def _any_shard(_: tf.Tensor) -> tf.Tensor:
    return tf.random.uniform([], maxval=SPLITS, dtype=tf.int64)


def _mib_per_s(epoch: Epoch) -> float:
    return epoch.values_per_s * 4 / MIB


def _later_read(service: Service, count: int, direct_reads: str) -> Epoch:
    """An epoch that is not its job's first one to read."""
    job = _job(service, batches(count, _STORED), "full", direct_reads)
    job.store()
    return job.epoch("GET")


def _job(
    service: Service, pipeline: tf.data.Dataset, policy: str, direct_reads: str = "never"
) -> _Job:
    name = f"{policy}-{next(_fresh)}"
    distribute = cachew.distribute(
        service.endpoint,
        job_name=name,
        cache_policy=policy,
        scaling_policy="all",
        direct_reads=direct_reads,
    )
    return _Job(service, name, pipeline.apply(distribute))


class _Job:
    def __init__(self, service: Service, name: str, dataset: tf.data.Dataset) -> None:
        self._service = service
        self._name = name
        self._dataset = dataset

    def store(self) -> None:
        """Reads epochs until one has read what is stored."""
        read_epoch(self._dataset)
        if self._service.mode(self._name) == "PUT":
            self.epoch("GET")

    def epoch(self, mode: str) -> Epoch:
        """One that has this mode."""
        epoch = read_epoch(self._dataset)
        self._service.check(self._name, mode)
        return epoch


def _read_elsewhere(service: Service, count: int, direct_reads: str) -> tuple[float, float]:
    _later_read(service, count, direct_reads)
    return _first_and_later(service, count, direct_reads)


_kept: set[str] = set()
"""Stores in which the data is."""


def _read_later(service: Service, count: int, direct_reads: str) -> tuple[float, float]:
    """What is stored outlives the service that stored it: one of another name reads it."""
    store = f"{service.name}-kept"
    if store not in _kept:
        with _another_service(store, service.folder) as first:
            _later_read(first, count, direct_reads)
        _kept.add(store)
    with _another_service(store, service.folder) as second:
        return _first_and_later(second, count, direct_reads)


@contextmanager
def _another_service(store: str, folder: Path) -> Iterator[Service]:
    name = f"bench-{uuid.uuid4().hex[:8]}"
    try:
        record = up(name, workers=1, store=store)
        yield Service(name=name, endpoint=record.endpoint, folder=folder)
    finally:
        down(name)


def _first_and_later(service: Service, count: int, direct_reads: str) -> tuple[float, float]:
    """The seconds of the first epoch that another process reads, and of those after it."""
    job = f"elsewhere-{next(_fresh)}"
    command = [sys.executable, "-m", "benchmarks.stored_reader"]
    process = subprocess.run(
        [*command, service.endpoint, job, str(count), str(_STORED), direct_reads],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        timeout=_READER_S,
        check=False,
    )
    if process.returncode:
        raise RuntimeError(f"the other process failed:\n{process.stderr[-2000:]}")
    service.check(job, "GET")
    first_s, *later_s = map(float, process.stdout.split())
    return first_s, sum(later_s) / len(later_s)
