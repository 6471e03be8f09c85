"""Operators whose results differ from epoch to epoch: what is random, has state or reads the clock.

Elements that come from them are not to be stored unasked: each epoch would get the first one's.
Shuffles are not among them, as they change only the order.
"""

from __future__ import annotations

import re
from typing import Any

from cachew_core.pipeline.graph import DatasetGraph, base_op
from cachew_core.pipeline.scopes import Scope, outer_scope, walk
from cachew_core.pipeline.state import state_operators

__all__ = ["random_operator", "varying_operator"]

_RANDOM = re.compile(
    r"^(Random(Crop|Gamma|Poisson|Shuffle|StandardNormal|Uniform|UniformInt)(V\d+)?|Rng\w+"
    r"|Stateful(Random|StandardNormal|TruncatedNormal|Uniform)\w*|(Parameterized)?TruncatedNormal"
    r"|Multinomial|NonDeterministicInts|SampleDistortedBoundingBox(V\d+)?|\w*CandidateSampler"
    r"|Fractional(Avg|Max)Pool)$"
)
_STATELESS = re.compile(
    r"^Stateless(Random\w*|(Parameterized)?TruncatedNormal\w*|Multinomial|Shuffle"
    r"|SampleDistortedBoundingBox)$"
)
_SEED_INPUT = {
    "StatelessMultinomial": 2,
    "StatelessRandomGetKeyCounter": 0,
    "StatelessSampleDistortedBoundingBox": 3,
}
"""Where the seed, or the key that is made of it, stands; at 1 for all others."""
_SEEDLESS = frozenset({"StatelessRandomGetAlg"})
_CLOCK = frozenset({"Timestamp"})


def random_operator(graph: DatasetGraph, node: Any) -> str | None:
    """The operator by which a dataset node's elements are random; None: there is none.

    A stateless random operator with a constant seed gives the same each time and is not random.
    """
    if base_op(node.op) == "RandomDataset":
        return str(node.op)
    if base_op(node.op) == "DirectedInterleaveDataset":
        choice = graph.input(node, 0)
        if random_below(graph, choice):
            return str(node.op)
    return _random_in_functions(outer_scope(graph), node)


def random_below(graph: DatasetGraph, node: Any) -> bool:
    """Whether a dataset node, or one that feeds it, is random."""
    below = [node, *graph.operators_below(node)]
    return any(random_operator(graph, source) is not None for source in below)


def varying_operator(graph: DatasetGraph, node: Any) -> tuple[str, str] | None:
    """What else changes a dataset node's elements from time to time: why, and by what.

    A file that a function writes, say to be seen by a test, changes no element.

    The reason reads on after "because it ...".
    """
    if kept := state_operators(graph, node):
        return "keeps a state from element to element", kept[0]
    for _, inner in walk(outer_scope(graph), node):
        if inner.op in _CLOCK:
            return "reads the clock", str(inner.op)
    return None


def _random_in_functions(scope: Scope, node: Any) -> str | None:
    for inner_scope, inner in walk(scope, node):
        if base_op(inner.op) == "RandomDataset" or _is_random(inner_scope, inner):
            return str(inner.op)
    return None


def _is_random(scope: Scope, node: Any) -> bool:
    if _RANDOM.match(node.op):
        return True
    if not _STATELESS.match(node.op) or node.op in _SEEDLESS:
        return False
    seed = scope.inputs(node)[_SEED_INPUT.get(base_op(node.op), 1)]
    return not _is_fixed(scope, seed)


def _is_fixed(scope: Scope, reference: str) -> bool:
    """Whether a value is made of constants alone."""
    if scope.constant(reference) is not None:
        return True
    node = scope.node(reference)
    if node is None or _RANDOM.match(node.op) or "Dataset" in node.op:
        return False
    inputs = scope.inputs(node)
    called = any(attribute.HasField("func") for attribute in node.attr.values())
    return bool(inputs) and not called and all(_is_fixed(scope, name) for name in inputs)
