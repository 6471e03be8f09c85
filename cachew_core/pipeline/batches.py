"""Batches of many workers as one local run would give them.

A worker that has every n-th element ends its part of an epoch with a partial batch. So a worker sends full batches as
they are and left-over rows beside them; the trainer's half merges left-over rows into full batches. What follows the
batch in the pipeline (the suffix) runs on full batches at the workers, on merged ones in the trainer, and only ever
sees batches that it would see in a local run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from cachew_core import stock
from cachew_core.pipeline.checks import rule_for
from cachew_core.pipeline.graft import call_function, captured_values, graft
from cachew_core.pipeline.graph import (
    DatasetGraph,
    base_op,
    component_specs,
    set_components,
    user_name,
)

__all__ = ["ExactBatches", "plan_batches"]

_MAPS = frozenset({"MapDataset", "ParallelMapDataset"})
_UNCHANGING = frozenset({"OptionsDataset", "PrefetchDataset", "ShuffleDataset", "SleepDataset"})
_BATCHES = frozenset({"BatchDataset", "ParallelBatchDataset"})
_DROP_REMAINDER_INPUT = {"BatchDataset": 2, "ParallelBatchDataset": 3}

Tensors = tuple[tf.Tensor, ...]
Specs = tuple[tf.TensorSpec, ...]
Suffix = Callable[[Tensors], Tensors]

_as_is = tf.autograph.experimental.do_not_convert
"""These functions are graph code already, and call modules that autograph can't read."""


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
        The two halves; or the reason, naming the operator, why it can't be done and one worker must run all of it;
        or None if the pipeline has no batches.
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
        return f"{graph.describe(batches[0], 'batch')} is one of {len(batches)} batches in the pipeline"
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
    rows = _unsized(batch)
    for name in (batch.node, *batch.suffix):
        set_components(worker.nodes[name], rows)
    _keep_partial(worker, worker.nodes[batch.node])

    def restore(dataset: tf.data.Dataset) -> tf.data.Dataset:
        marked = _ended(dataset, rows)
        return _finish(_merged(marked, batch, rows, None, rows), element_spec)

    return ExactBatches(graph=worker.prune(), element_spec=rows, restore=restore)


def _with_suffix(graph: DatasetGraph, batch: _Batch, element_spec: Any) -> ExactBatches | str:
    maps = [graph.nodes[n] for n in batch.suffix if base_op(graph.nodes[n].op) in _MAPS]
    try:
        captured = {node.name: captured_values(graph, node, _captures(node)) for node in maps}
    except tf.errors.OpError as error:
        return (
            f"{graph.describe(maps[0], 'map')} behind a `batch` uses something that can't be made in the trainer "
            f"({error.message})"
        )
    rows = _unsized(batch)
    worker = graph.copy()
    _keep_partial(worker, worker.nodes[batch.node])
    set_components(worker.nodes[batch.node], rows)
    graft(worker, worker.nodes[batch.node], lambda dataset: dataset.map(_as_is(_tagging(batch))))
    specs = _tagged_specs(_sized(batch), rows)
    for name in batch.suffix:
        node = worker.nodes[name]
        if name in captured:
            specs = _tagged_specs(component_specs(node), rows)
            _replace_map(worker, node, graph, captured[name], rows)
        else:
            set_components(node, specs)
    results = component_specs(maps[-1])

    def suffix(values: Tensors) -> Tensors:
        for node in maps:
            values = tuple(call_function(graph, node, [*values, *captured[node.name]]))
        return values

    def restore(dataset: tf.data.Dataset) -> tf.data.Dataset:
        marked = _ended(dataset, specs)
        return _finish(_merged(marked, batch, rows, suffix, results), element_spec)

    return ExactBatches(graph=worker.prune(), element_spec=specs, restore=restore)


def _unsized(batch: _Batch) -> Specs:
    return tuple(tf.TensorSpec([None, *spec.shape], spec.dtype) for spec in _ranked(batch.rows))


def _sized(batch: _Batch) -> Specs:
    size = batch.size if batch.drop_remainder else None
    return tuple(tf.TensorSpec([size, *spec.shape], spec.dtype) for spec in _ranked(batch.rows))


def _ranked(specs: Specs) -> Specs:
    return specs


def _keep_partial(graph: DatasetGraph, node: Any) -> None:
    """Let a batch operator give its last, partial batch."""
    constant = graph.add_constant(f"{node.name}/keep_partial", False, tf.bool)
    node.input[_DROP_REMAINDER_INPUT[base_op(node.op)]] = constant.name


def _captures(node: Any) -> int:
    return len(node.attr["Targuments"].list.type)


def _tagged_specs(values: Specs, rows: Specs) -> Specs:
    """What a worker sends for a batch: whether it is full; what came of it, if it is; its rows, if it is not."""
    full = tf.TensorSpec([], tf.bool)
    # Nothing is known of the shape of what came of a partial batch, so that nothing is sent for it.
    loose = [tf.TensorSpec([None] * spec.shape.rank, spec.dtype) for spec in values]
    return (full, *loose, *rows)


def _tagging(batch: _Batch) -> Callable[..., Tensors]:
    rows = _unsized(batch)
    loose = _tagged_specs(_sized(batch), rows)[1 : 1 + len(rows)]

    def tag(*values: tf.Tensor) -> Tensors:
        full = tf.equal(tf.shape(values[0])[0], batch.size)
        sent = tf.cond(
            full, lambda: (*values, *_nothing(rows)), lambda: (*_nothing(loose), *values)
        )
        return _shaped((full, *sent), _tagged_specs(_sized(batch), rows))

    return tag


def _replace_map(
    worker: DatasetGraph, node: Any, graph: DatasetGraph, captured: list[tf.Tensor], rows: Specs
) -> None:
    """Put a map that leaves partial batches alone in the place of a map of the user's."""
    before = component_specs(graph.input(graph.nodes[node.name], 0))
    results = component_specs(node)
    specs = _tagged_specs(results, rows)

    def run(full: tf.Tensor, *values: tf.Tensor) -> Tensors:
        batch, left_over = values[: len(before)], values[len(before) :]

        def whole() -> Tensors:
            given = _ensured(batch, before)
            return tuple(call_function(graph, node, [*given, *captured]))

        return _shaped(
            (
                full,
                *tf.cond(full, whole, lambda: _nothing(specs[1 : 1 + len(results)])),
                *left_over,
            ),
            specs,
        )

    def mapped(dataset: tf.data.Dataset) -> tf.data.Dataset:
        return dataset.map(_as_is(run), name=user_name(node), **_map_arguments(graph, node))

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


def _ended(dataset: tf.data.Dataset, specs: Specs) -> tf.data.Dataset:
    """The dataset with an element behind its last one that says so: a batch, not full, without rows."""
    flat = stock.Respecified(dataset, specs)
    return flat.concatenate(stock.Respecified(tf.data.Dataset.from_tensors(_nothing(specs)), specs))


def _merged(
    dataset: tf.data.Dataset, batch: _Batch, rows: Specs, suffix: Suffix | None, results: Specs
) -> tf.data.Dataset:
    run: Suffix = suffix or (lambda values: values)
    sized = _sized(batch)

    def split(item: Tensors) -> tuple[tf.Tensor, Tensors, Tensors]:
        if suffix is None:
            return tf.equal(tf.shape(item[0])[0], batch.size), item, item
        return item[0], item[1 : 1 + len(results)], item[1 + len(results) :]

    def step(carry: Tensors, item: Tensors) -> tuple[Tensors, Tensors]:
        full, values, left_over = split(item)

        def nothing() -> Tensors:
            return (tf.constant(False), *_nothing(_loose(results)))

        def result(given: Tensors) -> Tensors:
            return (tf.constant(True), *run(_ensured(given, sized)))

        def flush() -> Tensors:
            if batch.drop_remainder:
                return (*carry, *nothing())
            some = tf.shape(carry[0])[0] > 0
            return (*_nothing(rows), *tf.cond(some, lambda: result(carry), nothing))

        def merge() -> Tensors:
            both = _joined(carry, left_over, rows)
            enough = tf.shape(both[0])[0] >= batch.size

            def ready() -> Tensors:
                return (
                    *(value[batch.size :] for value in both),
                    *result(tuple(value[: batch.size] for value in both)),
                )

            return tf.cond(enough, ready, lambda: (*both, *nothing()))

        def partial() -> Tensors:
            return tf.cond(tf.equal(tf.shape(left_over[0])[0], 0), flush, merge)

        given = tf.cond(full, lambda: (*carry, tf.constant(True), *values), partial)
        count = len(rows)
        out_specs = (tf.TensorSpec([], tf.bool), *_loose(results))
        return _shaped(given[:count], rows), _shaped(given[count:], out_specs)

    ready = dataset.scan(_nothing(rows), _as_is(lambda carry, *item: step(carry, _tuple(item))))
    kept = ready.filter(_as_is(lambda full, *_: full))
    return kept.map(_as_is(lambda _, *values: _ensured(values, results)))


def _tuple(item: tuple[Any, ...]) -> Tensors:
    return item[0] if len(item) == 1 and isinstance(item[0], tuple) else item


def _finish(dataset: tf.data.Dataset, element_spec: Any) -> tf.data.Dataset:
    return stock.Respecified(dataset, element_spec)


def _joined(carry: Tensors, left_over: Tensors, rows: Specs) -> Tensors:
    # Rows of a size that is unknown beforehand can't be joined to an empty carry, whose sizes are all 0.
    joined = tf.cond(
        tf.equal(tf.shape(carry[0])[0], 0),
        lambda: left_over,
        lambda: tuple(tf.concat(pair, 0) for pair in zip(carry, left_over, strict=True)),
    )
    return _shaped(joined, rows)


def _loose(specs: Specs) -> Specs:
    return tuple(tf.TensorSpec([None] * spec.shape.rank, spec.dtype) for spec in specs)


def _nothing(specs: Specs) -> Tensors:
    return tuple(tf.zeros([size or 0 for size in spec.shape], spec.dtype) for spec in specs)


def _shaped(values: Sequence[tf.Tensor], specs: Specs) -> Tensors:
    """Tensors with the shapes that are known to hold."""
    for value, spec in zip(values, specs, strict=True):
        value.set_shape(spec.shape)
    return tuple(values)


def _ensured(values: Sequence[tf.Tensor], specs: Specs) -> Tensors:
    return tuple(tf.ensure_shape(v, spec.shape) for v, spec in zip(values, specs, strict=True))
