"""Which files a pipeline reads, found in its graph.

Each operator that reads files gets their names as a tensor. Names are followed from there, through
functions, captured values and datasets of names, back to the constants that they are.
Where a name is computed on the way, only the pipeline's author can say which files there are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from cachew_core.pipeline.checks import rule_for
from cachew_core.pipeline.graph import DatasetGraph, base_op, component_specs, is_dataset, value_of
from cachew_core.pipeline.scopes import Component, Reference, Scope, outer_scope

__all__ = ["Sources", "source_patterns"]

_READERS = {
    "CSVDataset": 0,
    "FixedLengthRecordDataset": 0,
    "InitializeTableFromTextFile": 1,
    "LMDBDataset": 0,
    "LoadDataset": 0,
    "MatchingFiles": 0,
    "MatchingFilesDataset": 0,
    "ReadFile": 0,
    "SnapshotChunkDataset": 0,
    "SqlDataset": 1,
    "TFRecordDataset": 0,
    "TextLineDataset": 0,
}
"""Operators that read files, without version, and which input has the names."""
_LISTINGS = frozenset({"MatchingFiles", "MatchingFilesDataset"})
"""Those that give names of files."""
_MEMORY = frozenset(
    {
        "RandomDataset",
        "RangeDataset",
        "SparseTensorSliceDataset",
        "TensorDataset",
        "TensorSliceDataset",
    }
)
"""Sources that read nothing."""
_FOREIGN = ("IO>", "Restore", "ReaderRead", "DebugIdentity")
"""Beginnings of operators that read in ways that are not known here."""
_FIRST_INPUT = frozenset(
    {
        "BroadcastTo",
        "EnsureShape",
        "ExpandDims",
        "Gather",
        "GatherNd",
        "Identity",
        "RandomShuffle",
        "Reshape",
        "Slice",
        "Squeeze",
        "StridedSlice",
        "Tile",
        "Unpack",
    }
)
"""Operators that give names as they are; their first input has them."""
_ALL_INPUTS = frozenset({"Concat", "Pack", "Select"})
_CALLS = frozenset(
    {"Case", "If", "PartitionedCall", "StatefulPartitionedCall", "StatelessCase", "StatelessIf"}
)
_ELEMENTWISE = frozenset({"MapAndBatchDataset", "MapDataset", "ParallelMapDataset"})
_FLATTENING = frozenset(
    {
        "FlatMapDataset",
        "InterleaveDataset",
        "LegacyParallelInterleaveDataset",
        "ParallelInterleaveDataset",
    }
)
_PASSING = frozenset(
    {
        "AssertCardinalityDataset",
        "BatchDataset",
        "CacheDataset",
        "FilterDataset",
        "IgnoreErrorsDataset",
        "OptionsDataset",
        "PaddedBatchDataset",
        "ParallelBatchDataset",
        "ParallelFilterDataset",
        "PrefetchDataset",
        "RebatchDataset",
        "RepeatDataset",
        "ShardDataset",
        "ShuffleAndRepeatDataset",
        "ShuffleDataset",
        "SkipDataset",
        "SleepDataset",
        "TakeDataset",
        "TakeWhileDataset",
        "UnbatchDataset",
        "UniqueDataset",
    }
)
"""Dataset operators whose elements have the same components as those of their first input."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """The files that a pipeline reads."""

    patterns: tuple[str, ...]
    """Paths and globs, sorted, remote ones among them."""
    remote: tuple[str, ...]
    """Those in an object store (`gs://...`), which a file system does not show."""
    unknown: str
    """Why there are, or may be, more files, naming the operator; empty: there are none."""


def source_patterns(graph: bytes) -> Sources:
    """The files that a worker graph (`Prepared.graph`) reads."""
    view = DatasetGraph.parse(graph)
    search = _Search(view)
    outer = outer_scope(view)
    for node in view.graph_def.node:
        search.look_at(outer, node)
    patterns = tuple(sorted(search.names))
    return Sources(
        patterns=patterns,
        remote=tuple(name for name in patterns if "://" in name.removeprefix("file://")),
        unknown=search.unknown,
    )


class _Search:
    """Collects names of files while it goes through a graph."""

    def __init__(self, graph: DatasetGraph) -> None:
        self.names: set[str] = set()
        self.unknown = ""
        self._graph = graph
        self._words = ""

    def look_at(self, scope: Scope, node: Any) -> None:
        """Find what a node and its functions read."""
        if scope.nodes is self._graph.nodes:
            self._words = self._describe(node)
        op = base_op(node.op).removeprefix("Experimental")
        if (index := _READERS.get(op)) is not None:
            self._follow(scope, scope.inputs(node)[index])
        elif node.op.startswith(_FOREIGN):
            self._give_up(f"reads in a way that is not known ({node.op})")
        elif op.endswith("Dataset") and op not in _MEMORY and not self._is_fed(scope, node):
            self._give_up(f"is a source that is not known ({node.op})")
        for inner in scope.called(node):
            for called in inner.nodes.values():
                self.look_at(inner, called)

    def _describe(self, node: Any) -> str:
        if not is_dataset(node):
            return f"a table or variable ({node.op})"
        rule = rule_for(self._graph, node)
        return self._graph.describe(node, rule.words.partition(",")[0] if rule.ops else node.op)

    def _give_up(self, why: str) -> None:
        self.unknown = self.unknown or (
            f"{self._words} {why}, so it can't be seen which files the pipeline depends on: name "
            "them by sources=[...]"
        )

    def _is_fed(self, scope: Scope, node: Any) -> bool:
        inputs = scope.inputs(node)
        # An argument of a function may be a dataset, as elements of `window` are.
        return any((source := scope.node(name)) is None or is_dataset(source) for name in inputs)

    def _follow(self, scope: Scope, name: str) -> None:
        """Find what strings a tensor can hold."""
        node = scope.node(name)
        if node is None:
            self._follow_argument(scope, name)
            return
        op = base_op(node.op)
        if op == "Const":
            self._add(value_of(node))
        elif op in _FIRST_INPUT or op in _LISTINGS:
            self._follow(scope, scope.inputs(node)[0])
        elif op == "IdentityN":
            self._follow(scope, scope.inputs(node)[_port(name)])
        elif op in _ALL_INPUTS:
            self._follow_strings(scope, node)
        elif op in _CALLS or node.op in self._graph.functions:
            for inner in scope.called(node):
                self._follow(inner, inner.results[_port(name)])
        else:
            self._give_up(f"computes the names of files that it reads ({node.op})")

    def _follow_argument(self, scope: Scope, name: str) -> None:
        match scope.arguments.get(name.partition(":")[0]):
            case Reference() as outer:
                self._follow(outer.scope, outer.name)
            case Component() as component:
                self._follow_component(component.scope, component.dataset, component.index)
            case None:
                self._give_up("reads files whose names come from an operator that is not known")

    def _follow_strings(self, scope: Scope, node: Any) -> None:
        for source in scope.inputs(node):
            constant = scope.constant(source)
            # An axis or a condition holds no names.
            if constant is None or (value := value_of(constant)) is None or value.dtype == object:
                self._follow(scope, source)

    def _follow_component(self, scope: Scope, dataset: str, index: int) -> None:
        """Find what strings one part of a dataset's elements can be."""
        node = scope.node(dataset)
        if node is None:
            match scope.arguments.get(dataset.partition(":")[0]):
                case Reference() as outer:
                    self._follow_component(outer.scope, outer.name, index)
                case _:
                    self._give_up("reads files whose names are elements of a nested dataset")
            return
        op, inputs = base_op(node.op), scope.inputs(node)
        if node.op == "Identity" or op in _PASSING:
            self._follow_component(scope, inputs[0], index)
        elif op in ("TensorDataset", "TensorSliceDataset"):
            self._follow(scope, inputs[index])
        elif op == "MatchingFilesDataset":
            self._follow(scope, inputs[0])
        elif op in _ELEMENTWISE:
            for inner in scope.called(node)[:1]:
                self._follow(inner, inner.results[index])
        elif op in _FLATTENING:
            for inner in scope.called(node)[:1]:
                self._follow_component(inner, inner.results[0], index)
        else:
            self._follow_several(scope, node, index)

    def _follow_several(self, scope: Scope, node: Any, index: int) -> None:
        inputs = scope.inputs(node)
        match base_op(node.op):
            case "ConcatenateDataset":
                for source in inputs:
                    self._follow_component(scope, source, index)
            case "DirectedInterleaveDataset":
                for source in inputs[1:]:
                    self._follow_component(scope, source, index)
            case "ZipDataset":
                for source in inputs:
                    zipped = scope.node(source)
                    width = 0 if zipped is None else len(component_specs(zipped))
                    if index < width or zipped is None:
                        self._follow_component(scope, source, index)
                        return
                    index -= width
            case _:
                self._give_up(f"reads files whose names come out of other data ({node.op})")

    def _add(self, values: Any) -> None:
        for value in _flat(values):
            if isinstance(value, bytes) and value:
                self.names.add(value.decode("utf-8", "surrogateescape"))


def _flat(values: Any) -> Iterable[Any]:
    return () if values is None else values.ravel().tolist()


def _port(reference: str) -> int:
    port = reference.rpartition(":")[2]
    return int(port) if port.isdigit() else 0
