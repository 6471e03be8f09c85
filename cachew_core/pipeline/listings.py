"""Lists of names that a pipeline reads in any order.

Who lists a folder gets its files in an order that differs between machines, and gives the list to
`from_tensor_slices`. Where nothing behind it depends on that order, the data is the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from cachew_core.pipeline.graph import DatasetGraph, base_op, component_specs

__all__ = ["with_sorted_lists"]

_SOURCES = frozenset({"TensorDataset", "TensorSliceDataset"})


def with_sorted_lists(graph: DatasetGraph, node: Any, grouping: Iterable[Any]) -> DatasetGraph:
    """The graph in which lists of strings are sorted, if only their order could tell two apart.

    Args:
        graph: stays as it is.
        node: the dataset node whose elements count.
        grouping: the dataset nodes below it whose elements depend on the order of their input.
    """
    reached = (node, *graph.operators_below(node))
    ordered = {below.name for group in grouping for below in graph.operators_below(group)}
    for held in (held for each in reached for held in _held_in_functions(graph, each)):
        ordered |= {below.name for below in (held, *graph.operators_below(held))}
    listed = {
        source.name: names
        for source in reached
        if source.name not in ordered and (names := _names(graph, source))
    }
    if not listed:
        return graph
    view = graph.copy()
    for source, names in listed.items():
        constant = view.add_constant(f"{source}/sorted", sorted(names), tf.string)
        view.nodes[source].input[0] = constant.name
    return view


def _held_in_functions(graph: DatasetGraph, node: Any) -> list[Any]:
    """Datasets that a node's functions capture, or that are elements: what they do with them may
    depend on the order.
    """
    inputs = graph.dataset_inputs(node)
    if base_op(node.op) == "ConcatenateDataset":
        return []
    return inputs if base_op(node.op) in _SOURCES else inputs[1:]


def _names(graph: DatasetGraph, node: Any) -> list[bytes]:
    if base_op(node.op) != "TensorSliceDataset" or len(node.input) != 1:
        return []
    if [spec.dtype for spec in component_specs(node)] != [tf.string]:
        return []
    names = graph.constant(graph.input(node, 0))
    return names.tolist() if names is not None and names.ndim == 1 else []
