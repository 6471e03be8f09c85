"""Sources hand out blocks of elements instead of single ones.

Stock tf.data service asks its dispatcher for each split, and a split of a range or of slices is one
element. Blocks make that cost small; they stay so small that workers end at about the same time.
"""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf

from cachew_core.pipeline.graft import implant
from cachew_core.pipeline.graph import DatasetGraph, component_specs

__all__ = ["block_size", "coarsen_sources"]

_MOST_PER_BLOCK = 20
"""Measured: from about 20 on, asking for splits costs nothing beside the smallest elements."""
_FEWEST_BLOCKS = 256
"""A guess: 64 workers still get four blocks each, and 64 files over 4 workers stay single."""


def block_size(elements: int) -> int:
    """How many elements of a source of so many make one split."""
    return min(_MOST_PER_BLOCK, max(1, elements // _FEWEST_BLOCKS))


def coarsen_sources(graph: DatasetGraph) -> None:
    """Let ranges and slices hand out blocks of the same elements in order. Changes the graph."""
    for node in graph.operators():
        if node.op == "RangeDataset":
            _coarsen_range(graph, node)
        elif node.op == "TensorSliceDataset":
            _coarsen_slices(graph, node)


def _coarsen_range(graph: DatasetGraph, node: Any) -> None:
    bounds = [graph.scalar(node, index) for index in range(3)]
    if any(bound is None for bound in bounds):
        return
    start, stop, step = (int(bound) for bound in bounds)
    elements = max(
        0, math.ceil((stop - start) / step) if abs(stop - start) < 2**52 else (stop - start) // step
    )
    size = block_size(elements)
    if size == 1:
        return
    dtype = component_specs(node)[0].dtype

    def block(index: tf.Tensor) -> tf.data.Dataset:
        first = start + index * (size * step)
        # Compared by count, as `first + size * step` could pass the largest whole number.
        last = tf.where(
            index < (elements - 1) // size, first + (size - 1) * step, start + (elements - 1) * step
        )
        return tf.data.Dataset.range(first, last + (1 if step > 0 else -1), step, output_type=dtype)

    blocks = tf.data.Dataset.range(-(-elements // size)).flat_map(block)
    _replace(graph, node, blocks)


def _coarsen_slices(graph: DatasetGraph, node: Any) -> None:
    components = graph.inputs(node)
    elements = _rows(graph, components[0])
    size = block_size(elements)
    if size == 1:
        return
    specs = [tf.TensorSpec([None, *spec.shape], spec.dtype) for spec in component_specs(node)]

    def block(index: tf.Tensor) -> tf.data.Dataset:
        begin = index * size
        return tf.data.Dataset.from_tensor_slices(tuple(v[begin : begin + size] for v in stand_ins))

    stand_ins = tuple(_stand_in(spec) for spec in specs)
    blocks = tf.data.Dataset.range(-(-elements // size)).flat_map(block)
    last = _replace(graph, node, blocks)
    for index, component in enumerate(components):
        last.input[1 + index] = component.name
    _forget_shapes(graph.functions_of(last)[0])


def _replace(graph: DatasetGraph, node: Any, blocks: tf.data.Dataset) -> Any:
    readers = graph.readers(node)
    last = implant(graph, node.name, component_specs(node), lambda _: blocks)
    for reader, index in readers:
        reader.input[index] = last.name
    return last


def _rows(graph: DatasetGraph, node: Any) -> int:
    while node.op == "Identity":
        node = graph.input(node, 0)
    if node.op != "Const":
        return 0
    return int(node.attr["value"].tensor.tensor_shape.dim[0].size)


def _stand_in(spec: tf.TensorSpec) -> tf.Tensor:
    """A small tensor to trace with, in the place of a source's data."""
    shape = [1 if size is None else size for size in spec.shape]
    if spec.dtype == tf.variant:
        some = tf.raw_ops.EmptyTensorList(
            element_shape=tf.constant([], tf.int32), max_num_elements=0, element_dtype=tf.int32
        )
        return tf.broadcast_to(some, shape)
    return tf.zeros(shape, spec.dtype)


def _forget_shapes(function: Any) -> None:
    """Take out that the function was traced with a single row."""
    for attributes in function.arg_attr.values():
        attributes.attr.pop("_output_shapes", None)
