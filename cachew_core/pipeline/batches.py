"""Batches of many workers as one local run would give them.

A worker that has every n-th element ends its part of an epoch with a partial batch. So a worker
sends full batches as they are and left-over rows beside them; the trainer's half merges left-over
rows into full batches. What follows the batch in the pipeline (the suffix) runs on full batches at
the workers, on merged ones in the trainer, and only ever sees batches that it would see in a local
run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from cachew_core.pipeline.checks import rule_for
from cachew_core.pipeline.graft import call_function, captured_values, graft
from cachew_core.pipeline.graph import (
    DatasetGraph,
    base_op,
    component_specs,
    set_components,
    user_name,
)
from cachew_core.pipeline.merging import Merge
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

__all__ = ["ExactBatches", "plan_batches"]

_MAPS = frozenset({"MapDataset", "ParallelMapDataset"})
_UNCHANGING = frozenset({"OptionsDataset", "PrefetchDataset", "ShuffleDataset", "SleepDataset"})
_BATCHES = frozenset({"BatchDataset", "ParallelBatchDataset"})
_DROP_REMAINDER_INPUT = {"BatchDataset": 2, "ParallelBatchDataset": 3}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactBatches:
    """How one pipeline's batches are taken apart and put together again."""

    graph: DatasetGraph
    """What workers run."""
    element_spec: Any
    """What workers send."""
    restore: Callable[[tf.data.Dataset], tf.data.Dataset]
    """The trainer's half: from what workers send to what the pipeline gives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Batch:
    """The batch operator of a pipeline, and what follows it."""

    node: str
    size: int
    drop_remainder: bool
    rows: Specs
    suffix: tuple[str, ...]
    """Names of the operators behind it, in the order of the data."""


def plan_batches(graph: DatasetGraph, element_spec: Any) -> ExactBatches | str | None:
    """Take the batches of a pipeline apart.

    Args:
        graph: one pass of the pipeline; stays as it is.
        element_spec: of the pipeline.

    Returns:
        The two halves; or the reason, naming the operator, why it can't be done and one worker must
        run all of it; or None if the pipeline has no batches.
    """
    batches = [node for node in graph.operators() if _groups(graph, node)]
    if not batches:
        return None
    batch = _find(graph, batches)
    if isinstance(batch, str):
        return batch
    if any(base_op(graph.nodes[name].op) in _MAPS for name in batch.suffix):
        return _with_suffix(graph, batch, element_spec)
    return _without_suffix(graph, batch, element_spec)


def _groups(graph: DatasetGraph, node: Any) -> bool:
    # A batch of one row is never partial.
    return base_op(node.op) in _BATCHES and graph.scalar(node, 1) != 1


def _find(graph: DatasetGraph, batches: Sequence[Any]) -> _Batch | str:
    if len(batches) > 1:
        words = graph.describe(batches[0], "batch")
        return f"{words} is one of {len(batches)} batches in the pipeline"
    node = batches[0]
    words = graph.describe(node, "batch")
    chain = graph.chain()
    names = [n.name for n in chain]
    if node.name not in names:
        return f"{words} is followed by an operator with several inputs"
    suffix = chain[: names.index(node.name)]
    for follower in reversed(suffix):
        op = base_op(follower.op)
        rule = rule_for(graph, follower)
        if op not in _MAPS | _UNCHANGING and rule.ops != ("TakeDataset(-1)",):
            behind = graph.describe(follower, rule.words if rule.ops else follower.op)
            return f"{words} is followed by {behind}, which does not give one element for one batch"
    if any(
        spec.dtype in (tf.variant, tf.resource)
        for n in (node, *suffix)
        for spec in component_specs(n)
    ):
        return f"{words} has rows or results that are sparse, ragged or nested"
    drop_index = _DROP_REMAINDER_INPUT[base_op(node.op)]
    size, drop_remainder = graph.scalar(node, 1), graph.scalar(node, drop_index)
    if size is None or drop_remainder is None:
        return f"{words} has a size that is known only when the pipeline runs"
    return _Batch(
        node=node.name,
        size=int(size),
        drop_remainder=bool(drop_remainder),
        rows=component_specs(graph.input(node, 0)),
        suffix=tuple(n.name for n in reversed(suffix)),
    )


def _without_suffix(graph: DatasetGraph, batch: _Batch, element_spec: Any) -> ExactBatches:
    worker = graph.copy()
    _keep_partial(worker, worker.nodes[batch.node])
    for name in (batch.node, *batch.suffix):
        set_components(worker.nodes[name], batched(batch.rows, None))
    merge = _merge(batch, None, component_specs(graph.nodes[batch.node]))
    return ExactBatches(
        graph=worker.prune(),
        element_spec=batched(batch.rows, None),
        restore=lambda dataset: merge.apply(dataset, element_spec),
    )


def _with_suffix(graph: DatasetGraph, batch: _Batch, element_spec: Any) -> ExactBatches | str:
    maps = [graph.nodes[n] for n in batch.suffix if base_op(graph.nodes[n].op) in _MAPS]
    try:
        captured = {node.name: captured_values(graph, node, _captures(node)) for node in maps}
    except tf.errors.OpError as error:
        return (
            f"{graph.describe(maps[0], 'map')} behind a `batch` uses something that can't be made "
            f"in the trainer ({error.message})"
        )

    def suffix(values: Tensors) -> Tensors:
        for node in maps:
            values = tuple(call_function(graph, node, [*values, *captured[node.name]]))
        return values

    merge = _merge(batch, suffix, component_specs(maps[-1]))
    worker, specs = _tagged_worker(graph, batch, captured)
    return ExactBatches(
        graph=worker,
        element_spec=specs,
        restore=lambda dataset: merge.apply(dataset, element_spec),
    )


def _tagged_worker(
    graph: DatasetGraph, batch: _Batch, captured: Mapping[str, list[tf.Tensor]]
) -> tuple[DatasetGraph, Specs]:
    worker = graph.copy()
    rows = batched(batch.rows, None)
    node = worker.nodes[batch.node]
    _keep_partial(worker, node)
    set_components(node, rows)
    graft(worker, node, lambda dataset: dataset.map(as_is(_tagging(batch))))
    specs = _tagged_specs(rows, rows)
    for name in batch.suffix:
        node = worker.nodes[name]
        if name in captured:
            specs = _tagged_specs(component_specs(node), rows)
            _replace_map(worker, node, graph, captured[name], rows)
        else:
            set_components(node, specs)
    return worker.prune(), specs


def _merge(batch: _Batch, suffix: Callable[[Tensors], Tensors] | None, results: Specs) -> Merge:
    return Merge(
        size=batch.size,
        drop_remainder=batch.drop_remainder,
        rows=batch.rows,
        suffix=suffix,
        results=results,
    )


def _keep_partial(graph: DatasetGraph, node: Any) -> None:
    """Let a batch operator give its last, partial batch."""
    constant = graph.add_constant(f"{node.name}/keep_partial", False, tf.bool)
    node.input[_DROP_REMAINDER_INPUT[base_op(node.op)]] = constant.name


def _captures(node: Any) -> int:
    return len(node.attr["Targuments"].list.type)


def _tagged_specs(values: Specs, rows: Specs) -> Specs:
    """What a worker sends for a batch: is it full; what came of it, if it is; else its rows."""
    # No size is promised for what came of it, so that nothing has to be sent for a partial batch.
    return (tf.TensorSpec([], tf.bool), *loose(values), *rows)


def _tagging(batch: _Batch) -> Callable[..., Tensors]:
    rows = batched(batch.rows, None)

    def tag(*values: tf.Tensor) -> Tensors:
        full = tf.equal(tf.shape(values[0])[0], batch.size)
        none = nothing(rows)
        sent = tf.cond(full, lambda: (*values, *none), lambda: (*none, *values))
        return shaped((full, *sent), _tagged_specs(rows, rows))

    return tag


def _replace_map(
    worker: DatasetGraph, node: Any, graph: DatasetGraph, captured: list[tf.Tensor], rows: Specs
) -> None:
    """Put a map that leaves partial batches alone in the place of a map of the user's."""
    before = component_specs(graph.input(graph.nodes[node.name], 0))
    results = component_specs(node)

    def run(full: tf.Tensor, *values: tf.Tensor) -> Tensors:
        batch, left_over = values[: len(before)], values[len(before) :]
        result = tf.cond(
            full,
            lambda: tuple(call_function(graph, node, [*ensured(batch, before), *captured])),
            lambda: nothing(loose(results)),
        )
        return shaped((full, *result, *left_over), _tagged_specs(results, rows))

    def mapped(dataset: tf.data.Dataset) -> tf.data.Dataset:
        return dataset.map(as_is(run), name=user_name(node), **_map_arguments(graph, node))

    source = worker.input(node, 0)
    worker.bypass(node)
    graft(worker, source, mapped)


def _map_arguments(graph: DatasetGraph, node: Any) -> dict[str, Any]:
    if base_op(node.op) == "MapDataset":
        return {}
    order = node.attr["deterministic"].s if "deterministic" in node.attr else b"default"
    calls = graph.scalar(node, 1 + _captures(node))
    return {
        "num_parallel_calls": tf.data.AUTOTUNE if calls is None else int(calls),
        "deterministic": {b"true": True, b"false": False}.get(order),
    }
