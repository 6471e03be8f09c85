"""Pipelines whose work is known: one that waits, one that computes, and one that does both."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import tensorflow as tf

import cachew_core as cachew

_SAMPLE_VALUES = 100_000
_SAMPLE_RUNS = 20


class Work(StrEnum):
    """What a worker does for a batch."""

    SLEEPING = "sleeping"
    """It waits, as for storage or a network: workers don't disturb each other."""
    BURNING = "burning"
    """It keeps one core busy: more workers than cores don't help."""
    MIXED = "mixed"
    """Half of each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """A pipeline and the trainer that reads it.

    Attributes:
        work_ms: of one worker for a batch.
        step_ms: of the trainer for a batch.
        batches: of an epoch.
        buffer: batches that the trainer's own `prefetch` holds, behind what is measured.
    """

    work: Work
    work_ms: float
    step_ms: float
    batches: int
    buffer: int = 0

    @property
    def name(self) -> str:
        """For people."""
        buffered = f", {self.buffer} buffered" if self.buffer else ""
        times = f"({self.work_ms:g}, {self.step_ms:g}) ms"
        return f"{self.work} {times}, {self.batches} batches{buffered}"

    def dataset(self, first: int) -> tf.data.Dataset:
        """Its batches, numbered from `first` on: with another one it is another pipeline, and
        nothing that is known of the one helps the other.
        """
        numbers = tf.data.Dataset.range(first, first + self.batches)
        burnt = {Work.SLEEPING: 0.0, Work.BURNING: 1.0, Work.MIXED: 0.5}[self.work]
        if burnt:
            values = int(_values_per_ms() * self.work_ms * burnt)
            numbers = numbers.map(_burning(values))
        if burnt < 1:
            numbers = numbers.apply(cachew.sleep(round(1000 * self.work_ms * (1 - burnt))))
        return numbers


def _burning(values: int) -> Callable[[tf.Tensor], tf.Tensor]:
    def burn(number: tf.Tensor) -> tf.Tensor:
        seed = tf.stack([number, number])
        drawn = tf.random.stateless_uniform([values], seed)
        # Sorted by one thread; the result must depend on it, or it would be optimised away.
        return number + tf.cast(tf.sort(drawn)[0] > 2, tf.int64)

    return burn


@functools.cache
def _values_per_ms() -> float:
    """How many values this machine draws and sorts in a millisecond, on one idle core.

    Measured once: all ways must have the same work.
    """
    dataset = tf.data.Dataset.range(_SAMPLE_RUNS + 1).map(_burning(_SAMPLE_VALUES))
    iterator = iter(dataset)
    next(iterator)
    began = time.perf_counter()
    for _ in iterator:
        pass
    return _SAMPLE_VALUES * _SAMPLE_RUNS / (1000 * (time.perf_counter() - began))
