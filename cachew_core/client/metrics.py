"""What a trainer's iterators cost it in waiting, measured in C++: no function runs per element.

An operator of TensorFlow books how often and how long the trainer waited. Another one, in Python,
would cost more than the rest of the way from a buffer to the trainer. Only an iterator's beginning
and end run functions, which write the time into a line of a variable. A new iterator takes the next
line when it is first asked, just before it opens its epoch, so that lines and epochs are counted
alike; one that is made and never asked takes none and opens no epoch.

When the last element arrived is not booked. It follows from what changed between two looks at the
books, all the better the more often somebody looks.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field

import tensorflow as tf

from cachew_core import stock

ITERATORS = 32
"""Iterators whose totals are kept; the next one overwrites the oldest. Far more than are open at
one time; each one costs every look some microseconds.
"""

# A line: the iterator's number, and the system's time at its beginning and at its end.
_LINE = 3
_ENDED = 2

_UNUSED = -1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class IteratorTotals:
    """What one iterator saw so far.

    Attributes:
        iterator: how many this client had opened before.
        elements: that the trainer got; exact, but for an error, which counts as the element in
            whose place it came.
        wait_s: the trainer waited for them, from asking to having; exact.
        step_s: the trainer did something else, from having one to asking for the next. Wrong by no
            more than the time between the last two looks, however long the iterator lives, and
            mostly by no more than one element's time.
        span_s: from the first element's arrival to the last one's; as exact as `step_s`.
    """

    iterator: int
    elements: int
    wait_s: float
    step_s: float
    span_s: float


class IteratorMeter:
    """Measures all iterators over one dataset. One thread reads it, several times a second.

    It holds no reference to the dataset, so that whoever reads it does not keep the dataset alive.
    """

    def __init__(self) -> None:
        unused = tf.fill([ITERATORS * _LINE], tf.constant(_UNUSED, tf.float64))
        self._lines = stock.cpu_variable(unused)
        self._opened = stock.cpu_variable(tf.constant(0, tf.int64))
        self._passages = stock.Passages()
        self._watched: dict[int, _Watched] = {}  # by line

    def attach(self, one_pass: tf.data.Dataset, *, passes: int = 1) -> tf.data.Dataset:
        """The same elements, measured.

        Args:
            one_pass: one iterator over it is one pass.
            passes: how many passes one iterator over the result makes; -1 is without end. Each has
                totals of its own.
        """
        starts = tf.data.Dataset.from_tensors(0).repeat(passes)
        measured = starts.flat_map(lambda _: self._measured_pass(one_pass))
        options = tf.data.Options()
        # The buffer that tf.data puts behind a pipeline of itself would hide what the trainer does.
        options.experimental_optimization.inject_prefetch = False
        return stock.TimedPassages(measured, self._passages).with_options(options)

    def _measured_pass(self, one_pass: tf.data.Dataset) -> tf.data.Dataset:
        # Each function in here takes some milliseconds at an iterator's start: one is the least.
        opened = tf.timestamp()
        number = self._opened.assign_add(1) - 1
        line = tf.cast(number % ITERATORS, tf.int32)
        self._write(line * _LINE + tf.range(_LINE), [tf.cast(number, tf.float64), opened, math.inf])
        timed = stock.timed(one_pass, tf.strings.as_string(line))
        return stock.ending_with(
            timed, lambda: self._write([line * _LINE + _ENDED], [tf.timestamp()])
        )

    def _write(self, places: object, values: object) -> None:
        tf.raw_ops.ResourceScatterUpdate(
            resource=self._lines.handle,
            indices=tf.convert_to_tensor(places, tf.int32),
            updates=tf.convert_to_tensor(values, tf.float64),
        )

    def read(self) -> list[IteratorTotals]:
        """The totals of all iterators that have lines, in the order in which they were opened."""
        before = time.time()
        lines = self._lines.read_value().numpy().reshape([ITERATORS, _LINE]).tolist()
        passed = self._passages.read()
        after = time.time()
        for line, (number, opened, ended) in enumerate(lines):
            if number != _UNUSED:
                seen = passed.get(str(line), stock.Passed())
                watched = self._watch(line, int(number), opened, seen)
                watched.look(seen, before, after, ended)
        return [
            watched.totals()
            for watched in sorted(self._watched.values(), key=lambda watched: watched.iterator)
        ]

    def _watch(self, line: int, number: int, opened: float, seen: stock.Passed) -> _Watched:
        """What is known of the iterator that has the line now."""
        former = self._watched.get(line)
        if former is not None and former.iterator == number:
            return former
        # A line's books go on where its former iterator left them. One that came and went unseen
        # left nobody knows what.
        unseen = number >= ITERATORS
        if former is not None and former.iterator == number - ITERATORS:
            seen, unseen = former.seen, True
        base = seen if unseen else stock.Passed()
        self._watched[line] = _Watched(iterator=number, opened=opened, base=base)
        return self._watched[line]


@dataclass(slots=True, kw_only=True)
class _Watched:
    """One iterator as the looks at it saw it; all times are the system's, in seconds.

    Attributes:
        base: what the line's books said when it began.
        seen: what they said at the last look.
        first, last: when the first and the last element arrived.
        looked: the last look.
    """

    iterator: int
    opened: float
    base: stock.Passed
    seen: stock.Passed = field(init=False)
    elements: int = 0
    wait_s: float = 0.0
    first: float = field(init=False)
    last: float = field(init=False)
    looked: float = field(init=False)

    def __post_init__(self) -> None:
        self.seen = self.base
        self.first = self.last = self.looked = self.opened

    def look(self, seen: stock.Passed, before: float, after: float, ended: float) -> None:
        """Takes in what the books said between two times."""
        elements = seen.elements - self.base.elements
        if elements > self.elements:
            # The system's clock can be set back, which the books take for a wait of ages.
            most_s = max(min(after, ended) - self.opened, self.wait_s)
            wait_s = min(seen.wait_s - self.base.wait_s, most_s)
            self._take(elements, wait_s, min(seen.longest_s, wait_s), min(after, ended), ended)
        self.seen, self.looked = seen, before

    def _take(
        self, elements: int, wait_s: float, longest_s: float, until: float, ended: float
    ) -> None:
        waited_s, cycles = wait_s - self.wait_s, elements - self.elements
        if self.elements == 0:
            # The first element is waited for longest: workers begin with the first question.
            self.first = self.last = self.opened + longest_s
            waited_s, cycles = waited_s - longest_s, cycles - 1
        if cycles:
            since = max(self.looked, self.last)
            if ended == until and self.elements > 1:
                # Behind the last element the trainer waited to hear that it was the last.
                each_s = (self.last - self.first) / (self.elements - 1)
                arrived = max(self.last + cycles * each_s, since)
            else:
                arrived = until - (until - since) / (2 * cycles)
            self.last = max(min(arrived, until), self.last + waited_s)
        self.elements, self.wait_s = elements, wait_s

    def totals(self) -> IteratorTotals:
        """What it saw so far."""
        return IteratorTotals(
            iterator=self.iterator,
            elements=self.elements,
            wait_s=self.wait_s,
            step_s=max(self.last - self.opened - self.wait_s, 0.0),
            span_s=self.last - self.first,
        )
