"""Marks: the places of a pipeline at which the service may store elements.

A mark is a `take(-1)` whose name says so, as a name is what a serialized graph keeps word for word.
tf.data takes only identifiers as names, so what else a mark says stands in its prefix.
"""

from __future__ import annotations

import tensorflow as tf

from cachew_core.pipeline.graft import append
from cachew_core.pipeline.graph import (
    MARK_PREFIX,
    RANDOM_MARK_PREFIX,
    DatasetGraph,
    component_specs,
    mark_name,
    set_components,
    user_name,
)

__all__ = ["END", "append_end_mark", "marked", "without_marks"]

END = "end"
"""The name of the mark that `prepare` puts behind the whole pipeline."""

_OPTIONS_NAME = "cachew_mark_options"


def marked(dataset: tf.data.Dataset, name: str, *, allow_random: bool = False) -> tf.data.Dataset:
    """The same elements, with a mark behind them.

    Args:
        dataset: what may be stored.
        name: of the mark; an identifier.
        allow_random: the elements may be stored although random numbers went into them.
    """
    prefix = RANDOM_MARK_PREFIX if allow_random else MARK_PREFIX
    options = tf.data.Options()
    # A take of everything is a no-op, which the optimizer would remove together with its name.
    options.experimental_optimization.noop_elimination = False
    return dataset.take(-1, name=f"{prefix}{name}").with_options(options, name=_OPTIONS_NAME)


def append_end_mark(graph: DatasetGraph) -> None:
    """Put the mark `END` behind a worker graph. Changes the graph."""
    specs = component_specs(graph.sink)
    last = append(graph, lambda dataset: marked(dataset, END))
    # Serialized, both have the spec of the source that they were traced over.
    for node in (last, graph.input(last, 0)):
        set_components(node, specs)


def without_marks(graph: DatasetGraph) -> DatasetGraph:
    """The same graph as if its pipeline had been written without marks.

    Those inside of functions stay. No node gets another name.
    """
    plain = graph.copy()
    for node in list(plain.nodes.values()):
        if mark_name(node) is not None or user_name(node) == _OPTIONS_NAME:
            plain.bypass(node)
    return plain
