"""The trainer's half of exact batches: left-over rows of the workers become full batches.

Where nothing follows the batch, tf.data's own `rebatch` does it, which passes full batches on for
some microseconds each. Else a `scan` carries the rows that don't fill a batch yet, and full batches
pass by it as they are: some 100 microseconds of the trainer's CPU time each.
Functions of the user's that follow the batch run here on merged batches only; each sits in a
branch, as a call, so that a full batch costs the same however many operators they have.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from cachew_core import stock
from cachew_core.pipeline.shapes import (
    Specs,
    Tensors,
    as_is,
    batched,
    ensured,
    loose,
    nothing,
    shaped,
)

__all__ = ["Merge"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """How one pipeline's batches are put together.

    An element that a worker sends is a batch, full or not; or, if the pipeline goes on behind its
    batch: whether the batch was full, then what came of it, then its rows, one of them empty.
    """

    size: int
    """Rows in a full batch."""
    drop_remainder: bool
    """Whether rows that never fill a batch are dropped at the end."""
    rows: Specs
    """Of one row."""
    suffix: Callable[[Tensors], Tensors] | None
    """What the user's functions behind the batch make of one; None: there are none."""
    results: Specs
    """Of the pipeline's elements."""

    def apply(self, dataset: tf.data.Dataset, element_spec: Any) -> tf.data.Dataset:
        """The pipeline's own elements.

        Args:
            dataset: what workers sent.
            element_spec: of the result; its flat tensors are `results`.
        """
        flat = stock.flat_specs(dataset.element_spec)
        received = stock.Respecified(dataset, flat)
        # `rebatch` may join rows of any two batches, so all rows must have one shape.
        if self.suffix is None and all(row.shape.is_fully_defined() for row in self.rows):
            batches = received.rebatch(self.size, drop_remainder=self.drop_remainder)
            return stock.Respecified(batches, element_spec)
        end = stock.Respecified(tf.data.Dataset.from_tensors(nothing(flat)), flat)
        ended = received.concatenate(end)
        scanned = ended.scan(nothing(batched(self.rows, None)), as_is(self._step))
        ready = scanned.filter(as_is(lambda whole, *_: whole))
        results = stock.sequential_map(ready, lambda _, *values: ensured(values, self.results))
        return stock.Respecified(results, element_spec)

    def _step(self, carry: Tensors, item: Tensors) -> tuple[Tensors, Tensors]:
        whole, values, left_over = self._parts(item)

        def partial() -> Tensors:
            # Workers send no empty batch, so one without rows is the end.
            end = tf.equal(tf.shape(left_over[0])[0], 0)
            return _either(
                end, lambda: self._flushed(carry), lambda: self._merged(carry, left_over)
            )

        given = _either(whole, lambda: (*carry, tf.constant(True), *values), partial)
        count = len(self.rows)
        result = (tf.TensorSpec([], tf.bool), *loose(self.results))
        return shaped(given[:count], batched(self.rows, None)), shaped(given[count:], result)

    def _parts(self, item: Tensors) -> tuple[tf.Tensor, Tensors, Tensors]:
        if self.suffix is None:
            return tf.equal(tf.shape(item[0])[0], self.size), item, item
        end = 1 + len(self.results)
        return item[0], item[1:end], item[end:]

    def _flushed(self, carry: Tensors) -> Tensors:
        if self.drop_remainder:
            return (*carry, *self._no_result())
        some = tf.shape(carry[0])[0] > 0
        result = _either(some, lambda: self._result(carry), self._no_result)
        return (*nothing(batched(self.rows, None)), *result)

    def _merged(self, carry: Tensors, left_over: Tensors) -> Tensors:
        rows = batched(self.rows, None)
        # Rows of sizes not known beforehand can't be joined to an empty carry's, which are 0.
        joined = _either(
            tf.equal(tf.shape(carry[0])[0], 0),
            lambda: left_over,
            lambda: tuple(tf.concat(pair, 0) for pair in zip(carry, left_over, strict=True)),
        )
        both = shaped(joined, rows)

        def filled() -> Tensors:
            first = tuple(value[: self.size] for value in both)
            return (*(value[self.size :] for value in both), *self._result(first))

        enough = tf.shape(both[0])[0] >= self.size
        return _either(enough, filled, lambda: (*both, *self._no_result()))

    def _result(self, batch: Tensors) -> Tensors:
        size = self.size if self.drop_remainder else None
        given = ensured(batch, batched(self.rows, size))
        return (tf.constant(True), *(self.suffix(given) if self.suffix else given))

    def _no_result(self) -> Tensors:
        return (tf.constant(False), *nothing(loose(self.results)))


def _either(condition: tf.Tensor, yes: Callable[[], Tensors], no: Callable[[], Tensors]) -> Tensors:
    return tuple(tf.cond(condition, yes, no))
