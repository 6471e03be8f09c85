"""Elements that are one single variant, such as one ragged tensor: stock can't tell them from
compressed ones.

A stock worker takes a lone variant for an element that `compress` made, and fails on any other.
With a constant beside it, it is an element of two parts like any other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from cachew_core import stock
from cachew_core.pipeline.graft import append
from cachew_core.pipeline.graph import DatasetGraph

Restore = Callable[[tf.data.Dataset], tf.data.Dataset]

_COMPANION = tf.TensorSpec([], tf.int8)


def is_lone_variant(element_spec: Any) -> bool:
    """Whether elements of this spec are one variant on their way to the trainer."""
    return [spec.dtype for spec in stock.flat_specs(element_spec)] == [tf.variant]


def paired(graph: DatasetGraph, spec: Any, restore: Restore) -> tuple[DatasetGraph, Any, Restore]:
    """The workers' graph, what it sends and how to read it, with a constant beside each element."""
    worker = graph.copy()
    append(worker, lambda dataset: dataset.map(lambda element: (element, tf.constant(0, tf.int8))))

    def restore_pairs(dataset: tf.data.Dataset) -> tf.data.Dataset:
        # As flat tensors: a function would make a plain tensor of a ragged one of rank 0.
        flat = stock.Respecified(dataset, stock.flat_specs(dataset.element_spec))
        lone = stock.sequential_map(flat, lambda element, companion: element)
        return restore(stock.Respecified(lone, spec))

    return worker, (spec, _COMPANION), restore_pairs
