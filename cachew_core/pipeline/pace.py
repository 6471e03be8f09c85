"""How fast a dataset gives its elements, how many pass somewhere, and what storing them costs."""

from __future__ import annotations

import math
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import tensorflow as tf

from cachew_core import stock

__all__ = [
    "Counter",
    "Pace",
    "Sample",
    "Storage",
    "counted",
    "measure_pace",
    "measure_storage",
    "take_sample",
]

_WARM_UP = 1 / 3
"""Of the time for one measurement: until buffers are full and AUTOTUNE has found its numbers."""

_SHORTEST_S = 0.2
"""What is measured for less time says little."""

_STEP_S = 0.002
_LONGEST_STEP = 64
_STEP_BYTES = 16 * 2**20
"""Python takes elements out in steps: one by one would cost it more than many elements cost."""

_PILOT_BYTES = 2**20
_FEWEST_ROUNDS = 3
_LONG_ENOUGH_S = 0.5
"""What a round takes for the fastest of its parts."""
_MOST_STORED = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """What a run of a dataset showed."""

    elements: int
    """That came in the time that was measured."""
    seconds: float
    probed: tuple[int, ...]
    """By how much each probe rose in that time."""
    passes: int
    """How often the dataset came to its end."""

    @property
    def each_s(self) -> float:
        """Wall time per element."""
        return self.seconds / self.elements if self.elements else 0.0

    @property
    def finished(self) -> bool:
        """Whether whole passes were seen."""
        return self.passes > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mark:
    at_s: float
    elements: int
    probed: tuple[int, ...]


class Counter:
    """Counts in C++, across graphs of this process: it is found by its name."""

    def __init__(self) -> None:
        self.name = f"cachew_counter_{uuid.uuid4().hex}"
        with tf.device("CPU:0"):
            self._handle = self.handle()
            tf.raw_ops.AssignVariableOp(resource=self._handle, value=tf.constant(0, tf.int64))

    def handle(self) -> tf.Tensor:
        """The variable, in the graph that is being built or at once."""
        return tf.raw_ops.VarHandleOp(dtype=tf.int64, shape=[], shared_name=self.name)

    def value(self) -> int:
        """The count so far."""
        return int(tf.raw_ops.ReadVariableOp(resource=self._handle, dtype=tf.int64))

    def close(self) -> int:
        """Forget the counter; its last value. No dataset may count with it any more."""
        value = self.value()
        tf.raw_ops.DestroyResourceOp(resource=self._handle)
        return value


def counted(counter: Counter) -> Callable[[tf.data.Dataset], tf.data.Dataset]:
    """An operator that counts what passes."""

    def count(*values: tf.Tensor) -> tuple[tf.Tensor, ...]:
        tf.raw_ops.AssignAddVariableOp(resource=counter.handle(), value=tf.constant(1, tf.int64))
        return values

    return lambda dataset: stock.sequential_map(dataset, count)


def measure_pace(
    dataset: tf.data.Dataset,
    *,
    limit_s: float,
    enough: int,
    step: int = 1,
    probe: Callable[[], tuple[int, ...]] = tuple,
    settled: Callable[[], bool] = lambda: True,
    whole_passes: bool = True,
    again: bool = True,
) -> Pace:
    """Take elements out of a dataset and time them.

    What counts is what comes after a warm-up. Where the dataset comes to its end in time, whole
    passes are taken instead, from their start: so they are in an epoch.

    Args:
        dataset: its elements are flat tuples.
        limit_s: no element is waited for after so long; a third more after it has settled late,
            and twice as long for it to settle.
        enough: elements after the warm-up.
        step: elements that are taken at a time.
        probe: read at the beginning and at the end of the measured time.
        settled: whether the warm-up may end.
        whole_passes: False: only what comes after the warm-up counts.
        again: it is read over and over until there is enough.
    """
    watch = _Stopwatch(
        limit_s=limit_s,
        enough=enough,
        probe=probe,
        settled=settled,
        whole_passes=whole_passes,
        again=again,
    )
    return watch.time(dataset, step)


class _Stopwatch:
    def __init__(
        self,
        *,
        limit_s: float,
        enough: int,
        probe: Callable[[], tuple[int, ...]],
        settled: Callable[[], bool],
        whole_passes: bool,
        again: bool,
    ) -> None:
        self._limit_s = limit_s
        self._enough = enough
        self._probe = probe
        self._settled = settled
        self._whole_passes = whole_passes
        self._again = again
        self._elements = 0
        self._passes = 0
        self._began = self._mark()
        self._warm: _Mark | None = None
        self._end_s = limit_s
        self._pass_ended: _Mark | None = None

    def time(self, dataset: tf.data.Dataset, step: int) -> Pace:
        while not self._pass_is_enough(dataset, step):
            pass
        now = self._mark()
        if self._whole_passes and self._pass_ended is not None:
            return self._between(self._began, self._pass_ended)
        if self._warm is None or self._warm.elements == now.elements:
            return self._between(self._began, now)
        return self._between(self._warm, now)

    def _pass_is_enough(self, dataset: tf.data.Dataset, step: int) -> bool:
        before = self._elements
        for arrived in _arrivals(dataset, step):
            self._elements += arrived
            if self._is_enough():
                return True
        self._passes += 1
        self._pass_ended = self._mark()
        spent_s = self._pass_ended.at_s - self._began.at_s
        return (
            not self._again
            or self._elements == before
            or spent_s >= self._limit_s
            or (self._whole_passes and self._elements >= self._enough and spent_s >= _SHORTEST_S)
        )

    def _is_enough(self) -> bool:
        now_s = time.monotonic()
        spent_s = now_s - self._began.at_s
        if self._warm is None:
            if spent_s >= _WARM_UP * self._limit_s and self._settled():
                self._warm = self._mark()
                # Where it took long to settle, that must not be all that is timed.
                self._end_s = max(self._limit_s, spent_s + _WARM_UP * self._limit_s)
            return spent_s >= 2 * self._limit_s
        if spent_s >= self._end_s:
            return True
        measured = self._elements - self._warm.elements
        return measured >= self._enough and now_s - self._warm.at_s >= _SHORTEST_S

    def _mark(self) -> _Mark:
        return _Mark(at_s=time.monotonic(), elements=self._elements, probed=self._probe())

    def _between(self, first: _Mark, last: _Mark) -> Pace:
        return Pace(
            elements=last.elements - first.elements,
            seconds=last.at_s - first.at_s,
            probed=tuple(b - a for a, b in zip(first.probed, last.probed, strict=True)),
            passes=self._passes,
        )


def _arrivals(dataset: tf.data.Dataset, step: int) -> Iterator[int]:
    """Numbers of elements, as they arrive. The iterator is made at once, not at the first of them:
    that takes as long as some elements do.
    """
    if step == 1:
        return (1 for _ in iter(dataset))
    # A window holds on to its elements, it copies nothing.
    return (int(components[0].cardinality()) for components in iter(dataset.window(step)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Some elements of a dataset, in memory."""

    dataset: tf.data.Dataset
    elements: int
    bytes_per_element: float
    """About, in memory."""
    step: int
    """Elements that Python should take out of the dataset at a time."""


def take_sample(dataset: tf.data.Dataset, *, limit_bytes: int, limit_s: float) -> Sample:
    """The first elements of a dataset: one at least, where it has one."""
    over = stock.cpu_variable(tf.constant(False))
    # The cache is whole only once its input has ended.
    kept = dataset.take_while(lambda *_: tf.logical_not(over)).cache()
    elements = size = 0
    began_s = time.monotonic()
    for element in kept:
        elements += 1
        size += sum(_bytes(tensor) for tensor in element)
        if size >= limit_bytes or time.monotonic() - began_s >= limit_s:
            over.assign(True)
    each_s = (time.monotonic() - began_s) / max(1, elements)
    bytes_per_element = size / max(1, elements)
    step = min(_LONGEST_STEP, _STEP_S / each_s, _STEP_BYTES / max(1.0, bytes_per_element))
    return Sample(
        dataset=kept,
        elements=elements,
        bytes_per_element=bytes_per_element,
        step=max(1, int(step)),
    )


def _bytes(tensor: tf.Tensor) -> int:
    if tensor.dtype == tf.variant:
        return len(tf.io.serialize_tensor(tensor).numpy())
    count = int(tensor.shape.num_elements())
    if tensor.dtype == tf.string:
        return 8 * count + int(tf.reduce_sum(tf.strings.length(tensor)))
    return count * int(tensor.dtype.size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """What storing costs, per element; times in seconds."""

    bytes_per_element: float
    write_s: float
    read_cold_s: float
    read_warm_s: float

    @property
    def each_s(self) -> float:
        """All of it."""
        return self.write_s + self.read_cold_s + self.read_warm_s

    @property
    def least_s(self) -> float:
        """What takes the least time."""
        return min(self.write_s, self.read_cold_s, self.read_warm_s)


def measure_storage(
    sample: Sample,
    folder: Path,
    *,
    read: Callable[[Sequence[str]], tf.data.Dataset],
    files: int,
    limit_bytes: int,
    limit_s: float,
) -> Storage:
    """Write a sample, over and over, and read it again.

    What disturbs a round makes it slower, so of the last two the better figures count.

    Args:
        sample: has an element.
        folder: where; nothing stays there.
        read: gives the dataset that reads some files.
        files: to write side by side.
        limit_bytes: about how much to write at a time.
        limit_s: about how long to take, as small tries tell.
    """
    began_s = time.monotonic()
    count = max(1, min(sample.elements, int(_PILOT_BYTES / max(1.0, sample.bytes_per_element))))
    rounds: list[Storage] = []
    while True:
        rounds.append(_round_trip(sample, count, folder, read, files))
        left_s = limit_s - (time.monotonic() - began_s)
        most = min(
            _MOST_STORED,
            int(left_s / rounds[-1].each_s),
            int(limit_bytes / rounds[-1].bytes_per_element),
        )
        wanted = min(most, int(_LONG_ENOUGH_S / rounds[-1].least_s))
        enough = most < count or (len(rounds) >= _FEWEST_ROUNDS and wanted < 2 * count)
        # The first round pays for all that is made once, so it is never the only one.
        if enough and len(rounds) > 1:
            return _better_of(rounds)
        count = max(count, wanted)


def _better_of(rounds: Sequence[Storage]) -> Storage:
    last = rounds[1:][-2:]
    return Storage(
        bytes_per_element=last[-1].bytes_per_element,
        write_s=min(storage.write_s for storage in last),
        read_cold_s=min(storage.read_cold_s for storage in last),
        read_warm_s=min(storage.read_warm_s for storage in last),
    )


def _round_trip(
    sample: Sample,
    count: int,
    folder: Path,
    read: Callable[[Sequence[str]], tf.data.Dataset],
    files: int,
) -> Storage:
    run = folder / uuid.uuid4().hex
    repeated = sample.dataset.repeat(math.ceil(count / sample.elements)).take(count)
    shards = tf.constant(min(files, count), tf.int64)
    saved = stock.save_dataset(
        repeated, str(run), lambda *_: tf.random.uniform([], maxval=shards, dtype=tf.int64)
    )
    began_s = time.monotonic()
    _exhaust(saved, sample.step)
    written = sorted(run.glob("**/*.snapshot"))
    for path in written:
        _to_disk(path)
    written_s = time.monotonic()
    reading = read([str(path) for path in written])
    cold_s = _exhaust(reading, sample.step)
    warm_s = _exhaust(reading, sample.step)
    size = sum(path.stat().st_size for path in written)
    shutil.rmtree(run)
    return Storage(
        bytes_per_element=size / count,
        write_s=(written_s - began_s) / count,
        read_cold_s=cold_s / count,
        read_warm_s=warm_s / count,
    )


def _exhaust(dataset: tf.data.Dataset, step: int) -> float:
    """Read all elements; how long that took."""
    arrivals = _arrivals(dataset, step)
    began_s = time.monotonic()
    for _ in arrivals:
        pass
    return time.monotonic() - began_s


def _to_disk(path: Path) -> None:
    """Put a file on disk, and let the kernel forget that it has it in memory, too."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)
