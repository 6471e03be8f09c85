"""What is compared: pipelines, how they are read, and what their ratios should be.

Batches come from sources that are split like files are, as large as files of records usually are,
and epochs take seconds: their cases are about the way of the data, and neither about splits, which
a worker asks for now and then, nor about an epoch's start. The case of single values asks stock for
one split an element: it is about the splits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import tensorflow as tf

from benchmarks.ratios import Bound, Side
from benchmarks.reading import Epoch

MIB = 1024 * 1024
ROW_VALUES = 16 * 1024
ROW_BYTES = 4 * ROW_VALUES
FILES = 16
FEW_ELEMENTS = 10
STEP_S = 0.0009
"""With the loop and the timer's slack around it, about a millisecond an element."""

WORKERS = (1, 2, 4)


class StockApi(Enum):
    """How stock tf.data service is read."""

    PUBLIC = "the public `distribute`"
    HINTED = "its client operator, which asks for tasks as often as ours does"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One comparison.

    Attributes:
        name: for people and for `--case`.
        workers: on each side.
        pipeline: makes the dataset; the same on both sides.
        values: that one epoch has.
        stock_api: how stock's side is read.
        step_s: that the trainer sleeps after each element.
        figure: what is compared, of one epoch.
        unit: of the figure.
        bound: of the ratio ours / stock of the figures.
    """

    name: str
    workers: int
    pipeline: Callable[[], tf.data.Dataset]
    values: int
    stock_api: StockApi
    step_s: float
    figure: Callable[[Epoch], float]
    unit: str
    bound: Bound


def all_cases(*, small: bool) -> list[Case]:
    """All cases, those with the same number of workers side by side.

    Args:
        small: epochs of a few elements, which measure nothing but show that all works.
    """
    cases = []
    for workers in WORKERS:
        cases += [
            _batches(workers, batch_bytes=4 * MIB, epoch_bytes=24 * MIB if small else 2560 * MIB),
            _batches(workers, batch_bytes=MIB // 4, epoch_bytes=16 * MIB if small else 1536 * MIB),
            _single_values(workers, values=256 if small else 2560),
        ]
        if workers == 2:
            cases += [_epoch_start(workers), _client(workers, values=128 if small else 3008)]
    return cases


def _batches(workers: int, *, batch_bytes: int, epoch_bytes: int) -> Case:
    rows_of_file = epoch_bytes // ROW_BYTES // FILES
    size = f"{batch_bytes // MIB} MiB" if batch_bytes >= MIB else f"{batch_bytes // 1024} KiB"

    def pipeline() -> tf.data.Dataset:
        def read_file(_: tf.Tensor) -> tf.data.Dataset:
            return tf.data.Dataset.from_tensors(tf.zeros([ROW_VALUES])).repeat(rows_of_file)

        rows = tf.data.Dataset.range(FILES).flat_map(read_file)
        return rows.batch(batch_bytes // ROW_BYTES)

    return Case(
        name=f"{size} batches, {_counted(workers)}",
        workers=workers,
        pipeline=pipeline,
        values=FILES * rows_of_file * ROW_VALUES,
        stock_api=StockApi.HINTED,
        step_s=0,
        figure=lambda epoch: epoch.values_per_s * 4 / MIB,
        unit="MiB/s",
        bound=Bound(side=Side.AT_LEAST, limit=0.97),
    )


def _single_values(workers: int, *, values: int) -> Case:
    return Case(
        name=f"int64 elements, {_counted(workers)}",
        workers=workers,
        pipeline=lambda: tf.data.Dataset.range(values),
        values=values,
        stock_api=StockApi.HINTED,
        step_s=0,
        figure=lambda epoch: epoch.values_per_s,
        unit="elements/s",
        bound=Bound(side=Side.AT_LEAST, limit=1.0),
    )


def _epoch_start(workers: int) -> Case:
    return Case(
        name=f"fixed cost of an epoch, {_counted(workers)}",
        workers=workers,
        pipeline=lambda: tf.data.Dataset.range(FEW_ELEMENTS),
        values=FEW_ELEMENTS,
        stock_api=StockApi.PUBLIC,
        step_s=0,
        figure=lambda epoch: epoch.seconds,
        unit="s",
        bound=Bound(side=Side.AT_MOST, limit=0.25),
    )


def _client(workers: int, *, values: int) -> Case:
    """Whole epochs, start and end included, of a trainer that could read faster."""

    def pipeline() -> tf.data.Dataset:
        return tf.data.Dataset.range(FILES).flat_map(
            lambda _: tf.data.Dataset.range(values // FILES)
        )

    return Case(
        name=f"client at 1,000 elements/s, {_counted(workers)}",
        workers=workers,
        pipeline=pipeline,
        values=values,
        stock_api=StockApi.HINTED,
        step_s=STEP_S,
        figure=lambda epoch: epoch.elements / epoch.seconds,
        unit="elements/s",
        bound=Bound(side=Side.AT_LEAST, limit=0.95),
    )


def _counted(workers: int) -> str:
    return f"{workers} worker" + "s" * (workers > 1)
