"""A trainer that only reads: what one epoch takes from it."""

from __future__ import annotations

import time
from dataclasses import dataclass

import tensorflow as tf


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """One epoch, as the trainer's loop saw it.

    Attributes:
        elements: that it got.
        values: numbers in these, whatever the batches' sizes were.
        first_values: those of the first element.
        span_s: from the first element's arrival to the last one's.
        seconds: from asking for an iterator until it has no more.
        cpu_s: of the trainer's process, all threads.
    """

    elements: int
    values: int
    first_values: int
    span_s: float
    seconds: float
    cpu_s: float

    @property
    def values_per_s(self) -> float:
        """While data flowed, without the epoch's start and end."""
        return (self.values - self.first_values) / self.span_s


def read_epoch(dataset: tf.data.Dataset, *, step_s: float = 0.0) -> Epoch:
    """Reads a dataset of single tensors to its end.

    Args:
        dataset: one iteration over it is one epoch.
        step_s: slept after each element, as a trainer whose accelerator is at work.
    """
    elements = values = first_values = 0
    cpu_began = time.process_time()
    began = first = last = time.perf_counter()
    # Kept until the clock has stopped: TensorFlow may take as long as the epoch took to drop it.
    iterator = iter(dataset)
    for element in iterator:
        last = time.perf_counter()
        size = int(element.shape.num_elements())
        if elements == 0:
            first, first_values = last, size
        elements += 1
        values += size
        if step_s:
            time.sleep(step_s)
    return Epoch(
        elements=elements,
        values=values,
        first_values=first_values,
        span_s=last - first,
        seconds=time.perf_counter() - began,
        cpu_s=time.process_time() - cpu_began,
    )
