"""What a pipeline and its cache points cost on this machine, by running them.

Everything is measured by the wall clock on whole runs, so that waiting counts like computing: the
pipeline, its part up to each cache point, what follows the point fed from memory, and a sample of
the point's elements on the disk that the cache would lie on. Pieces are cut out of the graph; none
of it is rebuilt. One profile has the machine's processors for itself at best as much as a worker
has.
"""

from __future__ import annotations

import math
import shutil
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf

from cachew_core import stock
from cachew_core.errors import PipelineError
from cachew_core.pipeline.caching import FILES_PER_WRITER, reading_graph
from cachew_core.pipeline.graft import graft
from cachew_core.pipeline.graph import DatasetGraph, base_op, component_specs, set_components
from cachew_core.pipeline.pace import (
    Counter,
    Pace,
    Sample,
    counted,
    measure_pace,
    measure_storage,
    take_sample,
)

__all__ = ["PipelineProfile", "PointFigures", "profile"]

SAMPLE_BYTES = 256 * 2**20

_END_SHARE = 0.3
_COUNT_SHARE = 0.1
_SAMPLE_SHARE = 0.2
_PREFIX_SHARE = 0.35
_SUFFIX_SHARE = 0.25
_STORAGE_SHARE = 0.2
"""Of a point's own share of the budget, as the three before it."""

_FASTEST_S = 1e-5
"""For an element to come from memory, about. A suffix is fed no more at a time than that: one
that drops them all must end, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PointFigures:
    """What was measured of one cache point. Times are wall times in seconds."""

    point: str
    """Name of its node in the graph."""
    per_batch: float
    """Elements that pass the point for each element at the pipeline's end, once buffers are full;
    over whole passes, where one ended within the budget."""
    sampled: int
    """Different elements that were looked at; 0: none came, and all other figures are 0."""
    bytes_per_element: float
    """On disk, per element of the point."""
    prefix_s: float
    """Of the pipeline up to the point, running alone, per element of the point."""
    suffix_s: float
    """Of what follows the point, fed from memory, per element at the pipeline's end; 0 for the
    end. No more than `compute_s` where it can't be told."""
    read_cold_s: float
    """Of reading as an epoch from the cache does, per element of the point, from files that the
    kernel was told to forget (network file systems may not listen)."""
    read_warm_s: float
    """The same for files that were just read."""
    write_s: float
    """Of writing until the data is on disk, per element of the point."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineProfile:
    """What was measured of one pipeline."""

    elements: int
    """That came out of its end while it was timed; 0: it is empty, and has no figures."""
    finished: bool
    """Whether its end was reached, so that whole passes were timed."""
    compute_s: float
    """Of the whole pipeline, wall time per element at its end, in seconds."""
    points: tuple[PointFigures, ...]
    """In the order in which they were named; none for an empty pipeline."""


def profile(
    graph: bytes, points: Sequence[str], *, scratch: Path, budget_s: float, batches: int
) -> PipelineProfile:
    """Measure a pipeline and its cache points.

    Args:
        graph: as one worker would run it alone, a GraphDef.
        points: names of nodes, in the order of the data; the last is taken for the pipeline's end.
        scratch: a folder that is made for the time of the call, where the cache would be.
        budget_s: what it may take, about; single slow elements may make it half as much longer.
        batches: so many elements at the end make a figure good enough.

    Raises:
        PipelineError: a point is no node of the graph.
        OSError: the scratch folder is there already or can't be written.
        tf.errors.OpError: the pipeline fails.
    """
    view = DatasetGraph.parse(graph)
    unknown = [name for name in points if name not in view.nodes]
    if unknown or not points:
        raise PipelineError(
            f"the pipeline can't be measured at {unknown or 'no point'}: name nodes of its graph"
        )
    scratch.mkdir(parents=True)
    try:
        return _Profiler(view, points[-1], scratch, batches).run(points[:-1], budget_s)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


class _Profiler:
    def __init__(self, view: DatasetGraph, end: str, scratch: Path, batches: int) -> None:
        self._graph = _cut(view, end)
        self._end = end
        self._scratch = scratch
        self._batches = batches

    def run(self, points: Sequence[str], budget_s: float) -> PipelineProfile:
        end_s = (_END_SHARE if points else 1) * budget_s
        whole = _Point(self._end, self._graph, end_s)
        if whole.sample.elements == 0:
            return PipelineProfile(elements=0, finished=True, compute_s=0.0, points=())
        pace = whole.prefix(self._batches)
        last = self._figures(whole, per_batch=1.0, prefix_s=pace.each_s, suffix_s=0.0)
        rows = self._count(points, _COUNT_SHARE * budget_s) if points else []
        each_s = (1 - _END_SHARE - _COUNT_SHARE) * budget_s / max(1, len(points))
        figures = [
            self._measure(name, passed, each_s, pace.each_s)
            for name, passed in zip(points, rows, strict=True)
        ]
        return PipelineProfile(
            elements=pace.elements,
            finished=pace.finished,
            compute_s=pace.each_s,
            points=(*figures, last),
        )

    def _measure(
        self, name: str, passed: _Passed, budget_s: float, compute_s: float
    ) -> PointFigures:
        point = _Point(name, _cut(self._graph, name), budget_s)
        if point.sample.elements == 0:
            return _nothing(name)
        wanted = max(1, math.ceil(self._batches * passed.per_batch))
        prefix_s = point.prefix(wanted).each_s
        fed = min(point.sample.elements, passed.most_fed)
        # The suffix's run makes the sample anew.
        fed = max(1, min(fed, int(budget_s * _SUFFIX_SHARE / 3 / max(prefix_s, 1e-9))))
        suffix_s = self._suffix(name, fed, budget_s * _SUFFIX_SHARE)
        return self._figures(
            point,
            per_batch=passed.per_batch,
            prefix_s=prefix_s,
            suffix_s=compute_s if suffix_s is None else min(suffix_s, compute_s),
        )

    def _figures(
        self, point: _Point, *, per_batch: float, prefix_s: float, suffix_s: float
    ) -> PointFigures:
        storage = measure_storage(
            point.sample,
            self._scratch,
            read=lambda files: _dataset(
                DatasetGraph.parse(reading_graph(point.graph.serialize(), point.name, files))
            ),
            files=FILES_PER_WRITER,
            limit_bytes=SAMPLE_BYTES,
            limit_s=max(_STORAGE_SHARE * point.budget_s, point.left_s),
        )
        return PointFigures(
            point=point.name,
            per_batch=per_batch,
            sampled=point.sample.elements,
            bytes_per_element=storage.bytes_per_element,
            prefix_s=prefix_s,
            suffix_s=suffix_s,
            read_cold_s=storage.read_cold_s,
            read_warm_s=storage.read_warm_s,
            write_s=storage.write_s,
        )

    def _count(self, points: Sequence[str], limit_s: float) -> list[_Passed]:
        """How many elements pass each point, in a run that is not timed: counting costs time."""
        counters = [Counter() for _ in points]
        view = self._graph.copy()
        for name, counter in zip(points, counters, strict=True):
            graft(view, view.nodes[name], counted(counter))
        pace = measure_pace(
            _dataset(view),
            limit_s=limit_s,
            enough=self._batches,
            again=not _caches(view),
            probe=lambda: tuple(counter.value() for counter in counters),
        )
        return [
            _Passed(
                per_batch=passed / max(1, pace.elements),
                most_fed=counter.close() // pace.passes - 1 if pace.passes else 2**62,
            )
            for passed, counter in zip(pace.probed, counters, strict=True)
        ]

    def _suffix(self, name: str, fed: int, limit_s: float) -> float | None:
        """Seconds per element at the end of what follows a point; None if nothing came out."""
        view = self._graph.copy()
        counter = Counter()
        repeats = math.ceil(limit_s / _FASTEST_S / fed)

        def feed(dataset: tf.data.Dataset) -> tf.data.Dataset:
            return counted(counter)(dataset.take(fed)).cache().repeat(repeats)

        graft(view, view.nodes[name], feed)
        pace = measure_pace(
            _dataset(view.prune()),
            limit_s=limit_s,
            enough=self._batches,
            settled=lambda: counter.value() >= fed,
            whole_passes=False,
            again=not _caches(self._graph),
        )
        counter.close()
        return pace.each_s if pace.elements else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Passed:
    """What came by at a point."""

    per_batch: float
    most_fed: int
    """Elements that a pass of the rest of the pipeline surely takes; without bound where no pass
    came to its end."""


class _Point:
    """A point, the pipeline up to it, and a sample of its elements."""

    def __init__(self, name: str, graph: DatasetGraph, budget_s: float) -> None:
        self.name = name
        self.graph = graph
        self.budget_s = budget_s
        self._began_s = time.monotonic()
        self.sample: Sample = take_sample(
            _dataset(graph), limit_bytes=SAMPLE_BYTES, limit_s=_SAMPLE_SHARE * budget_s
        )

    @property
    def left_s(self) -> float:
        """Of its share of the budget."""
        return self.budget_s - (time.monotonic() - self._began_s)

    def prefix(self, enough: int) -> Pace:
        return measure_pace(
            _dataset(self.graph),
            limit_s=_PREFIX_SHARE * self.budget_s,
            enough=enough,
            step=self.sample.step,
            again=not _caches(self.graph),
        )


def _cut(view: DatasetGraph, name: str) -> DatasetGraph:
    """The pipeline up to a node, with the options that it is given behind it."""
    cut = view.copy()
    last = cut.nodes[name]
    specs = component_specs(last)
    for node in reversed(view.operators()):
        below = (other.name for other in view.operators_below(node))
        if base_op(node.op) == "OptionsDataset" and name in below:
            options = cut.add_copy(node, f"{node.name}/cut")
            options.input[0] = last.name
            set_components(options, specs)
            last = options
    cut.result.input[0] = last.name
    return cut.prune()


def _dataset(view: DatasetGraph) -> tf.data.Dataset:
    """The pipeline of a graph, which shares nothing with others of this process."""
    view = view.copy()
    for node in _caches(view):
        # By its name, what a `cache` holds would be found by every piece of the same pipeline.
        for handle in view.input(node, 2).attr["value"].tensor.resource_handle_val:
            handle.name = f"cachew_{uuid.uuid4().hex}"
    return stock.dataset_of(view.graph_def, component_specs(view.sink))


def _caches(view: DatasetGraph) -> list[Any]:
    return [node for node in view.operators() if node.op == "CacheDatasetV2"]


def _nothing(name: str) -> PointFigures:
    return PointFigures(
        point=name,
        per_batch=0.0,
        sampled=0,
        bytes_per_element=0.0,
        prefix_s=0.0,
        suffix_s=0.0,
        read_cold_s=0.0,
        read_warm_s=0.0,
        write_s=0.0,
    )
