"""`interleave` over a shuffled or repeated input, made fit for an input that is split.

Stock's sequential `InterleaveDataset` does not pass the source of splits on to inputs that open
theirs late, as `shuffle` and `repeat` do: every worker then reads everything, and an epoch has each
element once for each worker, without an error (seen on TensorFlow 2.21 with two workers). The
parallel form with one call at a time and in order gives the same elements in the same order, and
splits reach its input.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from cachew_core.pipeline.graph import DatasetGraph, base_op

__all__ = ["pass_splits_through_interleaves"]

_LATE = frozenset({"RepeatDataset", "ShuffleAndRepeatDataset", "ShuffleDataset"})
"""Operators that open their input at the first element."""


def pass_splits_through_interleaves(graph: DatasetGraph) -> None:
    """Replace sequential interleaves whose input could not be split. Changes the graph."""
    for node in graph.operators():
        if node.op == "InterleaveDataset" and any(
            base_op(below.op) in _LATE for below in graph.operators_below(node)
        ):
            _make_parallel(graph, node)


def _make_parallel(graph: DatasetGraph, node: Any) -> None:
    node.op = "ParallelInterleaveDatasetV4"
    # One element buffered for each of the cycle, nothing read ahead, one call at a time.
    for what, number in (("buffer", 1), ("ahead", 0), ("calls", 1)):
        node.input.append(graph.add_constant(f"{node.name}/{what}", number, tf.int64).name)
    node.attr["deterministic"].s = b"true"
