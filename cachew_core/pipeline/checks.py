"""What is refused before anything is sent, and what must run whole on one worker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from cachew_core import stock
from cachew_core.errors import PipelineError
from cachew_core.pipeline.graph import DatasetGraph, base_op, mark_name
from cachew_core.pipeline.operators import OperatorRule, Verdict, rule_of
from cachew_core.pipeline.state import state_operators

__all__ = [
    "Limits",
    "check_constants",
    "check_element_spec",
    "check_marks",
    "check_operators",
    "check_size",
    "one_worker_reasons",
    "rule_for",
]

_PYTHON_OPS = frozenset({"EagerPyFunc", "PyFunc", "PyFuncStateless"})
_OWN_RESOURCES = frozenset({"CacheDataset", "ShuffleAndRepeatDataset", "ShuffleDataset"})
"""Operators whose resource input is made anew wherever the graph runs."""
_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How big a pipeline's graph may be."""

    max_bytes: int
    """A larger graph is refused."""
    warn_bytes: int
    """A larger graph gets a warning."""


def check_element_spec(element_spec: Any) -> None:
    """Refuse elements that can't be sent.

    Raises:
        PipelineError: elements hold datasets (as `window` makes them) or iterators.
    """
    for spec in _leaves(element_spec):
        if isinstance(spec, tf.data.DatasetSpec | tf.data.IteratorSpec):
            raise PipelineError(
                f"the pipeline's elements hold a dataset or an iterator ({spec}), as `window` "
                "makes them, and those can't be sent: turn each into tensors first, such as by "
                "`.flat_map(lambda window: window.batch(size))`"
            )


def check_constants(dataset: tf.data.Dataset, limits: Limits) -> None:
    """Refuse a pipeline whose constants alone are too large, before it is serialized.

    Serializing over 2 GiB ends the process.

    Raises:
        PipelineError: the constants are larger than `limits.max_bytes`.
    """
    size = sum({id(tensor): _bytes_of(tensor) for tensor in _constants(dataset)}.values())
    _refuse_size(size, limits)


def check_size(graph_bytes: int, limits: Limits) -> list[str]:
    """Refuse a serialized graph that is too large; warnings about one that is large.

    Raises:
        PipelineError: it is larger than `limits.max_bytes`.
    """
    _refuse_size(graph_bytes, limits)
    if graph_bytes <= limits.warn_bytes:
        return []
    return [
        f"the pipeline's graph has {graph_bytes / _MIB:.0f} MiB, and every worker gets all of it: "
        "write the data that stands in it (from_tensor_slices, constants in functions) to files, "
        "such as TFRecords"
    ]


def _refuse_size(size: int, limits: Limits) -> None:
    if size > limits.max_bytes:
        raise PipelineError(
            f"the pipeline's graph has {size / _MIB:.0f} MiB of data, over the limit of "
            f"{limits.max_bytes / _MIB:.0f} MiB (max_graph_bytes): arrays given to "
            "from_tensor_slices or used in functions become part of it. Write them to files, such "
            "as TFRecords, and read those"
        )


def check_operators(graph: DatasetGraph) -> None:
    """Refuse operators that can't run in another process.

    Raises:
        PipelineError: names the operator, and its function where one is known, and says what to do.
    """
    for node in graph.operators():
        _refuse_python(graph, node)
        _refuse_rule(graph, node)
        _refuse_resources(graph, node)


def check_marks(graph: DatasetGraph) -> None:
    """Refuse marks at which nothing could be stored.

    Raises:
        PipelineError: one stands inside of a function, or several have one name.
    """
    functions = graph.reachable_functions(graph.graph_def.node)
    hidden = {mark_name(node) for function in functions for node in function.node_def} - {None}
    if hidden:
        raise PipelineError(
            f"cachew.mark(name={min(map(str, hidden))!r}) stands inside of a function (of "
            "`interleave` or `flat_map`, say), which makes many small datasets and no one stream "
            "of elements to store: put it behind the operator that calls the function"
        )
    names = Counter(mark_name(node) for node in graph.operators())
    for name, count in names.items():
        if name is not None and count > 1:
            raise PipelineError(
                f"{count} marks of the pipeline have the name {name!r}: give each cachew.mark() a "
                "name of its own"
            )


def _refuse_python(graph: DatasetGraph, node: Any) -> None:
    ops = {inner.op for f in graph.reachable_functions([node]) for inner in f.node_def}
    if "GeneratorDataset" in ops:
        rule = rule_of("GeneratorDataset")
        raise PipelineError(
            f"`{rule.words}` {rule.why}, so workers can't run it: write its data to files, "
            "such as TFRecords, and read those, or use it behind `distribute`"
        )
    if python := sorted(ops & _PYTHON_OPS):
        words = graph.describe(node, _words(rule_for(graph, node), node))
        raise PipelineError(
            f"{words} calls a Python function (py_function or numpy_function: {python[0]}), "
            "which exists in the trainer's process only, so workers can't run it: write it with "
            "TensorFlow operators, or move it behind `distribute`"
        )


def _refuse_rule(graph: DatasetGraph, node: Any) -> None:
    rule = rule_for(graph, node)
    if rule.verdict is Verdict.REFUSED:
        words = graph.describe(node, _words(rule, node))
        raise PipelineError(
            f"{words} can't be used before `distribute`, because it {rule.why}: take it out, "
            "or move it behind `distribute`"
        )


def _refuse_resources(graph: DatasetGraph, node: Any) -> None:
    if base_op(node.op) in _OWN_RESOURCES:
        return
    for source in graph.inputs(node):
        if source.op == "Const" and source.attr["dtype"].type == tf.resource.as_datatype_enum:
            words = graph.describe(node, _words(rule_for(graph, node), node))
            raise PipelineError(
                f"{words} uses an object of the trainer's process (an iterator, queue or reader), "
                "which workers can't reach: read the data by an operator of the pipeline instead"
            )


def one_worker_reasons(graph: DatasetGraph) -> list[str]:
    """Why a pipeline would give other elements if its input were split; empty: it would not.

    Batches are judged by `batches`, which can often make them whole again.
    """
    reasons = []
    for node in graph.operators():
        rule = rule_for(graph, node)
        words = graph.describe(node, _words(rule, node))
        if rule.verdict is Verdict.ONE_WORKER:
            reasons.append(f"{words} {rule.why}")
        elif kept := state_operators(graph, node):
            reasons.append(f"{words} keeps a state from element to element ({kept[0]})")
    return reasons + _repeated_caches(graph)


def _repeated_caches(graph: DatasetGraph) -> list[str]:
    """A cache that a `repeat` behind it reads again without asking for input."""
    reasons = []
    for node in graph.operators():
        if base_op(node.op) != "RepeatDataset":
            continue
        if any(base_op(below.op) == "CacheDataset" for below in graph.operators_below(node)):
            reasons.append(
                "`cache` before a `repeat` inside the pipeline is read again without new input"
            )
    return reasons


def rule_for(graph: DatasetGraph, node: Any) -> OperatorRule:
    """The rule for a node, by its operator and the arguments that matter."""
    op = base_op(node.op)
    if op == "TakeDataset" and (count := graph.scalar(node, 1)) is not None and count < 0:
        return rule_of("TakeDataset(-1)")
    if op == "SkipDataset" and graph.scalar(node, 1) == 0:
        return rule_of("SkipDataset(0)")
    if op == "CacheDataset" and graph.scalar(node, 1) != b"":
        return rule_of("CacheDataset(file)")
    return rule_of(node.op)


def _words(rule: OperatorRule, node: Any) -> str:
    return rule.words if rule.ops else str(node.op)


def _leaves(spec: Any) -> Iterator[Any]:
    for leaf in tf.nest.flatten(spec):
        if isinstance(leaf, tf.OptionalSpec):
            yield from _leaves(stock.optional_value_spec(leaf))
        else:
            yield leaf


def _constants(dataset: tf.data.Dataset) -> Iterator[Any]:
    waiting, seen = [dataset], set()
    while waiting:
        node = waiting.pop()
        if id(node) not in seen:
            seen.add(id(node))
            yield from stock.constants_of(node)
            waiting.extend(stock.inputs_of(node))


def _bytes_of(tensor: Any) -> int:
    if tensor.dtype in (tf.resource, tf.variant):
        return 0
    if tensor.dtype == tf.string:
        return int(np.sum(tf.strings.length(tensor).numpy(), dtype=np.int64))
    return int(tensor.dtype.size) * int(np.prod(tensor.shape.as_list(), dtype=np.int64))
