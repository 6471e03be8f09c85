"""Trainings of several epochs, with work before and behind a mark: what each epoch did and cost."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import tensorflow as tf

import cachew_core as cachew
from benchmarks.scaling.training_records import EpochRecord, TrainingRecord
from benchmarks.scaling.trial import Way, WrongDataError, controlled, ended_job, next_first
from cachew_core import cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """A training and its pipeline, whose work is waiting.

    Attributes:
        batches: of an epoch.
        before_ms: of one worker for a batch, before the mark.
        behind_ms: of one worker for a batch, behind the mark: also where the mark is stored.
        steps_ms: of the trainer for a batch, in each epoch.
        augmented: random numbers are drawn behind the mark, so the end can't be stored.
    """

    batches: int
    before_ms: float
    behind_ms: float
    steps_ms: tuple[float, ...]
    augmented: bool = True

    @property
    def name(self) -> str:
        """For people."""
        steps = ", ".join(f"{step:g}" for step in self.steps_ms)
        return (
            f"{self.before_ms:g} ms, mark, {self.behind_ms:g} ms; steps of {steps} ms; "
            f"{self.batches} batches"
        )

    def dataset(self, first: int) -> tf.data.Dataset:
        """Its batches, numbered from `first` on: another one is other data to a store."""
        numbers = tf.data.Dataset.range(first, first + self.batches)
        marked = numbers.apply(cachew.sleep(round(1000 * self.before_ms))).apply(cachew.mark())
        if self.augmented:
            marked = marked.map(_drawing)
        return marked.apply(cachew.sleep(round(1000 * self.behind_ms)))


def _drawing(number: tf.Tensor) -> tf.Tensor:
    return number + tf.random.uniform([], maxval=1, dtype=tf.int64)


def run_training(
    service: str,
    training: Training,
    way: Way,
    job_name: str,
    *,
    cache_policy: str,
    direct_reads: str = "never",
    first: int | None = None,
    on_epoch: Callable[[int], None] = lambda _: None,
) -> TrainingRecord:
    """Trains, as a job of its own.

    Args:
        service: its name.
        training: what to do.
        way: to set the number of workers.
        job_name: of the job.
        cache_policy: of the job.
        direct_reads: likewise.
        first: number of the first batch. Default: one that no other training has.
        on_epoch: is told of each epoch that begins, from 1 on.

    Raises:
        CachewError: the service failed.
        WrongDataError: an epoch did not have the elements that it should have.
    """
    first = next_first() if first is None else first
    dataset = training.dataset(first).apply(
        cachew.distribute(
            service,
            job_name,
            scaling_policy=way.policy,
            max_workers=way.workers,
            cache_policy=cache_policy,
            direct_reads=direct_reads,
        )
    )
    if way.control is not None:
        cluster.scale(service, job_name, 1)
    began_at, times = time.time(), []
    with controlled(way, service, job_name):
        for epoch, step_ms in enumerate(training.steps_ms, start=1):
            on_epoch(epoch)
            times.append(_train(dataset, first, training.batches, step_ms, job_name))
        job = ended_job(service, job_name, epochs=len(training.steps_ms))
    decided = [(each.epoch, each.at_s - began_at, each.workers) for each in job.scaling]
    return TrainingRecord(
        epochs=[
            EpochRecord(
                epoch=each.epoch,
                mode=each.mode,
                began_s=at - began_at,
                seconds=seconds,
                worker_s=each.worker_seconds,
                workers=0
                if each.direct
                else ([n for e, _, n in decided if e <= each.epoch] or [way.workers])[-1],
            )
            for each, (at, seconds) in zip(job.epochs, times, strict=True)
        ],
        workers=[(at_s, workers) for _, at_s, workers in decided],
    )


def _train(
    dataset: tf.data.Dataset, first: int, batches: int, step_ms: float, job_name: str
) -> tuple[float, float]:
    """When an epoch began, and how long it took."""
    at, began = time.time(), time.perf_counter()
    seen = [0] * batches
    for number in dataset:
        seen[int(number) - first] += 1
        time.sleep(step_ms / 1000)
    seconds = time.perf_counter() - began
    if set(seen) != {1}:
        raise WrongDataError(f"{job_name}: an epoch lost or doubled elements")
    return at, seconds
