"""Seeds, and the states of random generators, for one worker and for several.

One graph goes to all workers of a job. With a fixed seed, each would draw the same stream: so for
several workers seeds are taken out, and generators start from a random state. For one worker they
stay, mixed with the epoch's number.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from cachew_core.pipeline.checks import rule_for
from cachew_core.pipeline.graph import DatasetGraph, base_op
from cachew_core.pipeline.state import random_variables

__all__ = ["fix_seeds", "remove_seeds", "seeded_operators"]

_SEED_INPUTS = {
    "ShuffleDataset": (2, 3),
    "ShuffleAndRepeatDataset": (2, 3),
    "RandomDataset": (0, 1),
}
_DEFAULT_GRAPH_SEED = 87654321
"""What TensorFlow sets beside an operator's own seed when no global one was set."""


def seeded_operators(graph: bytes) -> tuple[str, ...]:
    """The operators whose random stream is fixed by a seed, in the user's words, each once."""
    view = DatasetGraph.parse(graph)
    found: dict[str, None] = {}
    for node in view.operators():
        inner = [
            op for f in view.reachable_functions([node]) for op in _seeded_nodes(view, f.node_def)
        ]
        if inner or _seed_constants(view, node):
            words = view.describe(node, rule_for(view, node).words)
            found[words] = None
    return tuple(found)


def remove_seeds(graph: DatasetGraph) -> None:
    """Give every worker random streams of its own. Changes the graph."""
    _own_generators(graph)
    _set_seeds(graph, lambda _: 0, reshuffling_only=False)
    for handle in random_variables(graph):
        _randomize(graph, handle)


def fix_seeds(graph: DatasetGraph, epoch: int) -> None:
    """Give every epoch its own random streams, the same in each run. Changes the graph.

    The first epoch (0) keeps the user's seeds: it equals a local run. A shuffle that is not to
    reshuffle keeps its order in all.
    """
    _own_generators(graph)
    if epoch:
        _set_seeds(graph, lambda seed: _mixed(seed, epoch), reshuffling_only=True)


def _mixed(seed: int, epoch: int) -> int:
    digest = hashlib.sha256(f"{seed}/{epoch}".encode()).digest()
    # Not 0, which with a second 0 would mean "no seed".
    return int.from_bytes(digest[:4], "big") % (2**31 - 1) + 1


def _own_generators(graph: DatasetGraph) -> None:
    """Let shuffles make seed generators of their own.

    A graph names the generator that a shuffle draws its seeds from. A process that still has one of
    that name, for an earlier epoch, would go on with that one.
    """
    for node in graph.operators():
        if base_op(node.op) not in _SEED_INPUTS:
            continue
        for index, source in enumerate(graph.inputs(node)):
            if source.op == "Const" and source.attr["value"].tensor.resource_handle_val:
                own = graph.add_copy(source, f"{node.name}/resource_{index}")
                own.attr["value"].tensor.resource_handle_val[0].name = uuid.uuid4().hex
                node.input[index] = own.name


def _set_seeds(graph: DatasetGraph, seed: Any, *, reshuffling_only: bool) -> None:
    for node in graph.operators():
        keeps_order = (
            "reshuffle_each_iteration" in node.attr and not node.attr["reshuffle_each_iteration"].b
        )
        if keeps_order and reshuffling_only:
            continue
        for index, value in _seed_constants(graph, node):
            name = f"{node.name}/seed_{index}"
            node.input[index] = graph.add_constant(name, seed(value), tf.int64).name
    for function in graph.functions.values():
        for node in _seeded_nodes(graph, function.node_def):
            for key in ("seed", "seed2"):
                node.attr[key].i = seed(node.attr[key].i)


def _seed_constants(graph: DatasetGraph, node: Any) -> list[tuple[int, int]]:
    inputs = _SEED_INPUTS.get(base_op(node.op), ())
    seeds = [(index, graph.scalar(node, index)) for index in inputs]
    return (
        [(index, int(seed)) for index, seed in seeds if seed is not None]
        if any(s for _, s in seeds)
        else []
    )


def _seeded_nodes(graph: DatasetGraph, nodes: Any) -> Iterator[Any]:
    for node in nodes:
        if (
            "seed" in node.attr
            and "seed2" in node.attr
            and (node.attr["seed"].i or node.attr["seed2"].i)
        ):
            yield node


def _randomize(graph: DatasetGraph, handle: Any) -> None:
    """Let a generator's variable start from random numbers, drawn by each worker on its own."""
    for assignment in list(graph.graph_def.node):
        if assignment.op != "AssignVariableOp" or graph.input(assignment, 0).name != handle.name:
            continue
        drawn = _drawing(f"{assignment.name}/random/", handle)
        for node in drawn:
            added = graph.graph_def.node.add()
            added.CopyFrom(node)
            graph.nodes[added.name] = added
        assignment.input[1] = drawn[-1].name


def _drawing(prefix: str, handle: Any) -> list[Any]:
    """Nodes that draw a variable's value, the last of which has it."""
    with tf.Graph().as_default() as graph:
        shape = tf.TensorShape(handle.attr["shape"].shape)
        drawn = tf.random.uniform(shape, maxval=2**31 - 1, dtype=tf.int64)
        tf.identity(tf.cast(drawn, tf.as_dtype(handle.attr["dtype"].type)), name="drawn")
    nodes = list(graph.as_graph_def().node)
    for node in nodes:
        node.name = prefix + node.name
        for index, name in enumerate(node.input):
            node.input[index] = prefix + name
    return nodes
