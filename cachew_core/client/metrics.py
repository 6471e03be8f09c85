"""What a trainer's iterators cost it in waiting, measured in the graph: no Python runs per element.

The dataset is zipped behind a source whose element, the time, is made when the trainer asks; one
map behind both sees when the answer is there. Each iterator keeps running totals in lines of its
own of one variable, which a thread reads now and then. A new iterator takes the next ones when it
is first asked, just before it opens its epoch, so that they and epochs are counted alike; one that
is made and never asked takes none and opens no epoch.

Every operator in that map costs the trainer some microseconds an element, so totals are only added
to and never read in it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from cachew_core import stock

ITERATORS = 256
"""Iterators whose totals are kept; the next one overwrites the oldest. Far more than are open at
one time.
"""

# The lines of one iterator, two numbers each.
_START, _SUMS, _ENDS, _LINES = range(4)
"""(its number, when it was opened); (elements, seconds waited); (last answer's time, first's with a
minus, so that one maximum serves both).
"""

_UNUSED = -1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class IteratorTotals:
    """What one iterator saw so far.

    Attributes:
        iterator: how many this client had opened before.
        elements: that the trainer got.
        wait_s: the trainer waited for them, from asking to having.
        step_s: the trainer did something else, from having one to asking for the next.
        span_s: from the first element's arrival to the last one's.
    """

    iterator: int
    elements: int
    wait_s: float
    step_s: float
    span_s: float


class IteratorMeter:
    """Measures all iterators over one dataset.

    It holds no reference to the dataset, so that whoever reads it does not keep the dataset alive.
    """

    def __init__(self) -> None:
        unused = tf.fill([ITERATORS * _LINES, 2], tf.constant(_UNUSED, tf.float64))
        self._lines = stock.cpu_variable(unused)
        self._opened = stock.cpu_variable(tf.constant(0, tf.int64))

    def attach(self, dataset: tf.data.Dataset, *, passes: int = 1) -> tf.data.Dataset:
        """The same elements, measured.

        Args:
            dataset: one iterator over it is one pass.
            passes: how many passes one iterator over the result makes; -1 is without end. Each has
                totals of its own.
        """
        starts = tf.data.Dataset.from_tensors(0).repeat(passes)
        measured = starts.flat_map(lambda _: self._measured_pass(dataset))
        options = tf.data.Options()
        # The buffer that tf.data puts behind a pipeline of itself would hide what the trainer does.
        options.experimental_optimization.inject_prefetch = False
        return measured.with_options(options)

    def _measured_pass(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        # Each function in here takes some milliseconds at an iterator's start: two is the least.
        opened = tf.timestamp()
        sums, ends = self._open_lines(opened)
        asks = tf.data.Dataset.from_tensors(0).repeat()
        asked = stock.sequential_map(asks, lambda _: tf.timestamp())
        # The first answer was asked for when the lines were taken: between lies the hand-shake.
        requests = tf.data.Dataset.from_tensors(opened).concatenate(asked)
        answered = tf.data.Dataset.zip((requests, dataset))
        return stock.sequential_map(answered, lambda *pair: self._add(sums, ends, *pair))

    def _open_lines(self, opened: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Takes the next iterator's lines; returns the places of those that elements change."""
        number = self._opened.assign_add(1) - 1
        line = tf.cast(number % ITERATORS, tf.int32) * _LINES
        never = tf.constant(-math.inf, tf.float64)
        start = tf.stack([tf.cast(number, tf.float64), opened, 0.0, 0.0, never, never])
        tf.raw_ops.ResourceScatterUpdate(
            resource=self._lines.handle,
            indices=line + tf.range(_LINES),
            updates=tf.reshape(start, [_LINES, 2]),
        )
        return line + _SUMS, line + _ENDS

    def _add(self, sums: tf.Tensor, ends: tf.Tensor, request: tf.Tensor, element: Any) -> Any:
        answer = tf.timestamp()
        lines = self._lines.handle
        tf.raw_ops.ResourceScatterAdd(
            resource=lines, indices=sums, updates=tf.stack([1.0, answer - request])
        )
        tf.raw_ops.ResourceScatterMax(
            resource=lines, indices=ends, updates=tf.stack([answer, -answer])
        )
        return element

    def read(self) -> list[IteratorTotals]:
        """The totals of all iterators that have lines, in the order in which they were opened."""
        lines = self._lines.read_value().numpy().reshape([ITERATORS, _LINES, 2]).tolist()
        used = (own for own in lines if own[_START][0] != _UNUSED)
        return [_totals(own) for own in sorted(used)]


def _totals(lines: list[list[float]]) -> IteratorTotals:
    number, opened = lines[_START]
    elements, waited = lines[_SUMS]
    last, minus_first = lines[_ENDS]
    if math.isinf(last):
        return IteratorTotals(iterator=int(number), elements=0, wait_s=0, step_s=0, span_s=0)
    # The clock is the system's, which can be set back.
    waited = max(waited, 0.0)
    return IteratorTotals(
        iterator=int(number),
        elements=int(elements),
        wait_s=waited,
        step_s=max(last - opened - waited, 0.0),
        span_s=last + minus_first,
    )
