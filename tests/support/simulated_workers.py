"""Workers in this process: each runs the workers' graph on its share of the input, and the
results arrive mixed.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Hashable
from typing import Any

import numpy as np
import tensorflow as tf

from cachew_core import stock
from cachew_core.pipeline.graft import graft
from cachew_core.pipeline.graph import DatasetGraph
from cachew_core.pipeline.preparation import Limits, Prepared, prepare
from cachew_core.pipeline.variants import worker_variant

LIMITS = Limits(max_bytes=1 << 30, warn_bytes=64 << 20)
SOURCES = ("RangeDataset", "TensorDataset", "TensorSliceDataset")


def prepared(
    dataset: tf.data.Dataset,
    *,
    processing_mode: str = "distributed_epoch",
    compression: str | None = None,
    num_consumers: int | None = None,
    limits: Limits = LIMITS,
) -> Prepared:
    """The pipeline, prepared with defaults."""
    return prepare(
        dataset,
        processing_mode=processing_mode,
        compression=compression,
        num_consumers=num_consumers,
        limits=limits,
    )


def one_pass(dataset: tf.data.Dataset, *, workers: int, seed: int = 0) -> tf.data.Dataset:
    """What a trainer reads in one pass of a pipeline that several workers run."""
    ready = prepared(dataset)
    assert not ready.single_worker
    graph = worker_variant(ready.graph, sharded=True, single=False, epoch=0)
    sent = [
        element
        for index in range(workers)
        for element in stock.dataset_of(_share(graph, index, workers), ready.element_spec)
    ]
    random.Random(seed).shuffle(sent)
    nothing = run_graph(graph, ready.element_spec).take(0)
    return ready.restore(
        nothing.concatenate(_arriving(sent, ready.element_spec)) if sent else nothing
    )


def run_graph(graph: bytes, element_spec: Any) -> tf.data.Dataset:
    """What one worker makes of a whole graph."""
    return stock.dataset_of(stock.GraphDef.FromString(graph), element_spec)


def multiset(dataset: tf.data.Dataset) -> Counter[Hashable]:
    """The elements, each by type, shape and bytes, without their order."""
    return Counter(comparable(element) for element in dataset)


def comparable(element: Any) -> Hashable:
    """One element as a value that can be compared and counted."""
    parts = []
    for tensor in tf.nest.flatten(element, expand_composites=True):
        array = np.asarray(tensor)
        content = tuple(array.ravel()) if array.dtype == object else array.tobytes()
        parts.append((str(array.dtype), array.shape, content))
    return tuple(parts)


def _arriving(elements: list[Any], element_spec: Any) -> tf.data.Dataset:
    if len(elements) == 1:
        return stock.Respecified(tf.data.Dataset.from_tensors(elements[0]), element_spec)
    # Halved each time, as a long chain of operators would be slow.
    half = len(elements) // 2
    return _arriving(elements[:half], element_spec).concatenate(
        _arriving(elements[half:], element_spec)
    )


def _share(graph: bytes, index: int, workers: int) -> Any:
    view = DatasetGraph.parse(graph)
    for node in view.operators():
        if node.op in SOURCES:
            graft(view, node, lambda dataset: dataset.shard(workers, index))
    return view.graph_def
