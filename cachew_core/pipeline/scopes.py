"""Where values inside of functions come from, followed out to the graph's constants and elements.

A function of `map` or `flat_map` sees an element's tensors and what it captured as arguments. Who
asks for the origin of a value (is it a constant? which file names can it be?) follows it through
arguments, calls and nested datasets, however deep.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from cachew_core.pipeline.graph import DatasetGraph, base_op, is_dataset

__all__ = ["Component", "Reference", "Scope", "outer_scope", "walk"]

_ELEMENT_FUNCTIONS = frozenset(
    {
        "FilterDataset",
        "FlatMapDataset",
        "InterleaveDataset",
        "LegacyParallelInterleaveDataset",
        "MapAndBatchDataset",
        "MapDataset",
        "ParallelFilterDataset",
        "ParallelInterleaveDataset",
        "ParallelMapDataset",
        "TakeWhileDataset",
    }
)
"""Operators whose function gets an element's tensors, then what it captured."""
_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
_BRANCHES = frozenset({"Case", "If", "StatelessCase", "StatelessIf"})
"""Operators whose functions get all inputs but the first."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scope:
    """The nodes of the outer graph, or of one function as it is called from one place."""

    graph: DatasetGraph
    nodes: Mapping[str, Any]
    arguments: Mapping[str, Reference | Component | None] = field(default_factory=dict)
    """Where a function's arguments come from; None: not known."""
    results: tuple[str, ...] = ()
    """What a function returns, as references to its nodes and arguments."""

    def node(self, reference: str) -> Any | None:
        """The node that a reference names; None for an argument of the function."""
        return self.nodes.get(_node_name(reference))

    def inputs(self, node: Any) -> list[str]:
        """References to a node's data inputs."""
        return [name for name in node.input if not name.startswith("^")]

    def datasets_below(self, node: Any) -> list[Any]:
        """The dataset nodes of this scope that a node reads from, directly or through others."""
        found: dict[str, Any] = {}
        waiting = [node]
        while waiting:
            for reference in self.inputs(waiting.pop()):
                source = self.node(reference)
                if source is not None and source.name not in found:
                    found[source.name] = source
                    waiting.append(source)
        return [source for source in found.values() if is_dataset(source)]

    def constant(self, reference: str) -> Any | None:
        """The `Const` node behind a reference, also outside of the function; None: none is."""
        node = self.node(reference)
        while node is not None and node.op == "Identity":
            reference = node.input[0]
            node = self.node(reference)
        if node is not None:
            return node if node.op == "Const" else None
        origin = self.arguments.get(_node_name(reference))
        return origin.scope.constant(origin.name) if isinstance(origin, Reference) else None

    def called(self, node: Any) -> list[Scope]:
        """The functions that a node calls, each with its arguments."""
        functions = self.graph.functions_of(node)
        if node.op in self.graph.functions:
            functions = [self.graph.functions[node.op], *functions]
        return [self._call(node, function) for function in functions]

    def _call(self, node: Any, function: Any) -> Scope:
        names = [argument.name for argument in function.signature.input_arg]
        origins = self._origins(node, len(names))
        return Scope(
            graph=self.graph,
            nodes={inner.name: inner for inner in function.node_def},
            arguments=dict(zip(names, origins, strict=True)),
            results=tuple(function.ret[result.name] for result in function.signature.output_arg),
        )

    def _origins(self, node: Any, count: int) -> list[Reference | Component | None]:
        inputs = self.inputs(node)
        if node.op in _CALLS or node.op in self.graph.functions:
            origins: list[Any] = [Reference(scope=self, name=name) for name in inputs]
        elif node.op in _BRANCHES:
            origins = [Reference(scope=self, name=name) for name in inputs[1:]]
        elif base_op(node.op) in _ELEMENT_FUNCTIONS:
            captured = inputs[1 : 1 + len(node.attr["Targuments"].list.type)]
            origins = [
                Component(scope=self, dataset=inputs[0], index=index)
                for index in range(count - len(captured))
            ]
            origins += [Reference(scope=self, name=name) for name in captured]
        else:
            origins = []
        return origins if len(origins) == count else [None] * count


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A tensor of a scope."""

    scope: Scope
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """One of the flat tensors that make an element of a dataset."""

    scope: Scope
    dataset: str
    """A reference to its node."""
    index: int


def outer_scope(graph: DatasetGraph) -> Scope:
    """The nodes outside of functions."""
    return Scope(graph=graph, nodes=graph.nodes)


def walk(scope: Scope, node: Any) -> Iterator[tuple[Scope, Any]]:
    """Every node of the functions that a node calls, at any depth, in its scope."""
    waiting = scope.called(node)
    while waiting:
        inner = waiting.pop()
        for called in inner.nodes.values():
            yield inner, called
            waiting.extend(inner.called(called))


def _node_name(reference: str) -> str:
    return reference.lstrip("^").partition(":")[0]
