"""What a trainer's iterators cost it in waiting, measured in the graph: no Python runs per element.

The dataset is zipped behind a source whose element, the time, is made when the trainer asks; one
map behind both sees when the answer is there. Each iterator writes running totals into a row of its
own of one variable, which a thread reads now and then. A new iterator takes the next row when it is
first asked, just before it opens its epoch, so that rows and epochs are counted alike; one that is
made and never asked takes no row and opens no epoch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from cachew_core import stock

ROWS = 256
"""Iterators whose totals are kept; the next one overwrites the oldest. Far more than are open at
one time.
"""

_NUMBER, _ELEMENTS, _WAITED, _OPENED, _FIRST, _LAST, _COLUMNS = range(7)

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
        unused = tf.fill([ROWS, _COLUMNS], tf.constant(_UNUSED, tf.float64))
        self._rows = stock.cpu_variable(unused)
        self._opened = stock.cpu_variable(tf.constant(0, tf.int64))

    def attach(self, dataset: tf.data.Dataset, *, passes: int = 1) -> tf.data.Dataset:
        """The same elements, measured.

        Args:
            dataset: one iterator over it is one pass.
            passes: how many passes one iterator over the result makes; -1 is without end. Each has
                a row.
        """
        starts = tf.data.Dataset.from_tensors(0).repeat(passes)
        measured = starts.flat_map(lambda _: self._measured_pass(dataset))
        options = tf.data.Options()
        # The buffer that tf.data puts behind a pipeline of itself would hide what the trainer does.
        options.experimental_optimization.inject_prefetch = False
        return measured.with_options(options)

    def _measured_pass(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        # Each function in here takes some milliseconds at an iterator's start: two is the least.
        row = self._open_row()
        asks = tf.data.Dataset.from_tensors(0).repeat()
        asked = stock.sequential_map(asks, lambda _: tf.timestamp())
        answered = tf.data.Dataset.zip((asked, dataset))
        return stock.sequential_map(answered, lambda *pair: self._add(row, *pair))

    def _open_row(self) -> tf.Tensor:
        number = self._opened.assign_add(1) - 1
        row = tf.cast(number % ROWS, tf.int32)
        start = tf.stack([tf.cast(number, tf.float64), 0.0, 0.0, tf.timestamp(), 0.0, 0.0])
        tf.raw_ops.ResourceScatterUpdate(resource=self._rows.handle, indices=row, updates=start)
        return row

    def _add(self, row: tf.Tensor, request: tf.Tensor, element: Any) -> Any:
        answer = tf.timestamp()
        number, elements, waited, opened, first, _ = tf.unstack(tf.gather(self._rows, row))
        is_first = tf.equal(elements, 0)
        # The first answer was asked for when the row was opened: between lies the hand-shake.
        request = tf.where(is_first, opened, request)
        first = tf.where(is_first, answer, first)
        totals = tf.stack([number, elements + 1, waited + answer - request, opened, first, answer])
        tf.raw_ops.ResourceScatterUpdate(resource=self._rows.handle, indices=row, updates=totals)
        return element

    def read(self) -> list[IteratorTotals]:
        """The totals of all iterators that have a row, in the order in which they were opened."""
        rows = self._rows.read_value().numpy()
        return [_totals(row) for row in sorted(rows.tolist()) if row[_NUMBER] != _UNUSED]


def _totals(row: list[float]) -> IteratorTotals:
    elements = int(row[_ELEMENTS])
    if not elements:
        return IteratorTotals(iterator=int(row[_NUMBER]), elements=0, wait_s=0, step_s=0, span_s=0)
    # The clock is the system's, which can be set back.
    waited = max(row[_WAITED], 0.0)
    return IteratorTotals(
        iterator=int(row[_NUMBER]),
        elements=elements,
        wait_s=waited,
        step_s=max(row[_LAST] - row[_OPENED] - waited, 0.0),
        span_s=max(row[_LAST] - row[_FIRST], 0.0),
    )
