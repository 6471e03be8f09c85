"""A `repeat` at the end of a pipeline moves behind the service: one service epoch is one pass."""

from __future__ import annotations

from cachew_core.pipeline.graph import DatasetGraph, base_op

__all__ = ["take_final_repeat"]

_COMMUTING = frozenset(
    {
        "FilterDataset",
        "MapDataset",
        "OptionsDataset",
        "ParallelFilterDataset",
        "ParallelMapDataset",
        "PrefetchDataset",
        "SleepDataset",
    }
)
"""Operators that give the same before a repeat as behind it: each element stands for itself."""


def take_final_repeat(graph: DatasetGraph) -> tuple[DatasetGraph, int]:
    """Take the last repeats out of the pipeline.

    Returns:
        One pass of the pipeline (the graph itself where nothing was taken out), and how often it is
        to be read: 1 without a repeat, -1 for ever.
    """
    repeats = 1
    result = graph
    while (name := _final_repeat(result)) is not None:
        if result is graph:
            result = graph.copy()
        node = result.nodes[name]
        count = int(result.scalar(node, 1))
        repeats = -1 if count < 0 or repeats < 0 else repeats * count
        result.bypass(node)
    return (result.prune() if result is not graph else graph), repeats


def _final_repeat(graph: DatasetGraph) -> str | None:
    for node in graph.chain():
        op = base_op(node.op)
        if op == "RepeatDataset":
            count = graph.scalar(node, 1)
            # Nothing at all, or a number known only when the pipeline runs, stays in the graph.
            return None if count is None or count == 0 else str(node.name)
        endless_take = op == "TakeDataset" and (graph.scalar(node, 1) or 0) < 0
        if op not in _COMMUTING and not endless_take:
            return None
    return None
