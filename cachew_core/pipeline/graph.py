"""A typed view of a dataset's GraphDef: its chain of operators, constants and functions.

A serialized dataset is a flat graph of dataset nodes, constants and resources (tables, variables)
that ends in one `_Retval`; what users pass to `map` and the like stands in the function library.
Everything that checks or rewrites pipelines asks its questions here, so that no other module walks
protobufs by hand.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from google.protobuf.message import DecodeError

from cachew_core import stock
from cachew_core.errors import PipelineError

__all__ = [
    "MARK_PREFIX",
    "RANDOM_MARK_PREFIX",
    "DatasetGraph",
    "base_op",
    "component_specs",
    "function_words",
    "mark_name",
    "set_components",
    "value_of",
]

MARK_PREFIX = "cachew_mark__"
"""What a mark's `take(-1)` node is called, before the mark's own name."""

RANDOM_MARK_PREFIX = "cachew_random_mark__"
"""The same for a mark at which random elements may be stored."""

_DEFAULT_NAME = re.compile(r"^\w+:\d+$")
_CONTENT_NAME = re.compile(r"^cachew_[0-9a-f]{32}$")
"""What grafted functions are called, which nobody wrote."""
_TRACED_NAME = re.compile(r"^__(?:inference|forward)_(?:Dataset_[a-z_]+?_)?(?P<name>.+?)_\d+$")


class DatasetGraph:
    """One pipeline's graph.

    Args:
        graph_def: as `stock.graph_of` gives it; kept, not copied. Rewriting makes a copy first
            (`copy`).
    """

    def __init__(self, graph_def: stock.GraphDef) -> None:
        self.graph_def = graph_def
        self.nodes = {node.name: node for node in graph_def.node}
        self.functions = {f.signature.name: f for f in graph_def.library.function}

    @classmethod
    def parse(cls, graph: bytes) -> DatasetGraph:
        """The view of a serialized graph.

        Raises:
            PipelineError: these bytes are not the graph of a dataset.
        """
        try:
            view = cls(stock.GraphDef.FromString(graph))
        except DecodeError as error:
            raise PipelineError(f"the pipeline's graph can't be read: {error}") from error
        missing = {
            name
            for node in view.nodes.values()
            for name in (read.lstrip("^").partition(":")[0] for read in node.input)
            if name not in view.nodes
        }
        if missing:
            raise PipelineError(
                f"the pipeline's graph reads nodes that it lacks: {sorted(missing)}"
            )
        if not view.result.input:
            raise PipelineError("the pipeline's graph returns nothing")
        return view

    def copy(self) -> DatasetGraph:
        """The same graph again, free to be changed."""
        graph_def = stock.GraphDef()
        graph_def.CopyFrom(self.graph_def)
        return DatasetGraph(graph_def)

    def serialize(self) -> bytes:
        """The graph as bytes, equal for equal graphs."""
        return bytes(self.graph_def.SerializeToString(deterministic=True))

    @cached_property
    def result(self) -> Any:
        """The `_Retval` node.

        Raises:
            PipelineError: there is none.
        """
        for node in self.graph_def.node:
            if node.op == "_Retval":
                return node
        raise PipelineError("the pipeline's graph has no result, as a dataset's graph has")

    @property
    def sink(self) -> Any:
        """The last dataset node: what the graph's iterator reads."""
        return self.input(self.result, 0)

    def input(self, node: Any, index: int) -> Any:
        """The node behind one data input of a node."""
        return self.nodes[node.input[index].partition(":")[0]]

    def inputs(self, node: Any) -> list[Any]:
        """The nodes behind all data inputs of a node, in order."""
        return [
            self.nodes[name.partition(":")[0]] for name in node.input if not name.startswith("^")
        ]

    def dataset_inputs(self, node: Any) -> list[Any]:
        """The dataset nodes that a dataset node reads from."""
        return [source for source in self.inputs(node) if is_dataset(source)]

    def operators(self) -> list[Any]:
        """Every dataset node outside of functions, each once, from the sink to the sources."""
        return [self.sink, *self.operators_below(self.sink)]

    def operators_below(self, node: Any) -> list[Any]:
        """Every dataset node that feeds a dataset node, directly or through others, each once."""
        found: dict[str, Any] = {}
        waiting = list(reversed(self.dataset_inputs(node)))
        while waiting:
            node = waiting.pop()
            if node.name not in found:
                found[node.name] = node
                waiting.extend(reversed(self.dataset_inputs(node)))
        return list(found.values())

    def chain(self) -> list[Any]:
        """The dataset nodes from the sink down, as far as each reads from exactly one other."""
        nodes = [self.sink]
        while len(sources := self.dataset_inputs(nodes[-1])) == 1:
            nodes.append(sources[0])
        return nodes

    def readers(self, node: Any) -> list[tuple[Any, int]]:
        """Who reads a node's output, and at which of its inputs."""
        return [
            (reader, index)
            for reader in self.graph_def.node
            for index, name in enumerate(reader.input)
            if name.partition(":")[0] == node.name
        ]

    def constant(self, node: Any) -> npt.NDArray[Any] | None:
        """The value of a constant (also behind identities); None where it is none."""
        while node.op == "Identity":
            node = self.input(node, 0)
        if node.op != "Const":
            return None
        return value_of(node)

    def scalar(self, node: Any, index: int) -> Any:
        """The Python value of a constant scalar input of a node; None where it is no constant."""
        value = self.constant(self.input(node, index))
        return None if value is None else value.item()

    def add_constant(self, name: str, value: Any, dtype: tf.DType) -> Any:
        """A new constant of that name, or another value for the one that has it."""
        if name not in self.nodes:
            self.nodes[name] = self.graph_def.node.add(name=name, op="Const")
        node = self.nodes[name]
        node.attr["dtype"].type = dtype.as_datatype_enum
        node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value, dtype))
        return node

    def add_copy(self, node: Any, name: str) -> Any:
        """A copy of a node under another name."""
        self.nodes[name] = self.graph_def.node.add()
        self.nodes[name].CopyFrom(node)
        self.nodes[name].name = name
        return self.nodes[name]

    def functions_of(self, node: Any) -> list[Any]:
        """The functions that a node's attributes name, without those that these call in turn."""
        return [self.functions[name] for name in _function_names(node) if name in self.functions]

    def reachable_functions(self, nodes: Iterable[Any]) -> list[Any]:
        """All functions that nodes call, directly or through other functions, each once."""
        found: dict[str, Any] = {}
        waiting = [function for node in nodes for function in self.functions_of(node)]
        while waiting:
            function = waiting.pop()
            if function.signature.name not in found:
                found[function.signature.name] = function
                for node in function.node_def:
                    waiting.extend(self.functions_of(node))
        return list(found.values())

    def describe(self, node: Any, words: str) -> str:
        """A dataset node in the user's words, e.g. "`map` (function `decode`)"."""
        notes = []
        if name := user_name(node):
            notes.append(f"name {name!r}")
        notes.extend(
            f"function `{function_words(f.signature.name)}`"
            for f in self.functions_of(node)[:1]
            if not _CONTENT_NAME.match(f.signature.name)
        )
        return f"`{words}` ({', '.join(notes)})" if notes else f"`{words}`"

    def bypass(self, node: Any) -> None:
        """Take a dataset node with one input out: its readers read from its input instead."""
        for reader, index in self.readers(node):
            reader.input[index] = node.input[0]

    def prune(self) -> DatasetGraph:
        """The graph without nodes and functions that the result does not need."""
        kept: dict[str, Any] = {}
        waiting = [self.result]
        while waiting:
            node = waiting.pop()
            if node.name not in kept:
                kept[node.name] = node
                waiting.extend(self.nodes[_node_name(name)] for name in node.input)
        graph_def = stock.GraphDef()
        graph_def.versions.CopyFrom(self.graph_def.versions)
        graph_def.node.extend(node for node in self.graph_def.node if node.name in kept)
        functions = {f.signature.name for f in self.reachable_functions(kept.values())}
        graph_def.library.function.extend(
            f for f in self.graph_def.library.function if f.signature.name in functions
        )
        return DatasetGraph(graph_def)


def value_of(constant: Any) -> npt.NDArray[Any] | None:
    """The value of a `Const` node; None for variants and resources."""
    dtype = tf.as_dtype(constant.attr["dtype"].type)
    if dtype in (tf.variant, tf.resource):
        return None
    # `make_ndarray` can't read the packed strings that serialized graphs hold.
    tensor = constant.attr["value"].tensor.SerializeToString()
    return np.asarray(tf.io.parse_tensor(tensor, dtype).numpy())


def is_dataset(node: Any) -> bool:
    """Whether a node of the outer graph is a dataset operator."""
    return "Dataset" in node.op


def base_op(op: str) -> str:
    """An operator's name without its version, e.g. "BatchDataset" for "BatchDatasetV2"."""
    return re.sub(r"V\d+$", "", op)


def user_name(node: Any) -> str | None:
    """The `name=` that the user gave an operator; None for one that TensorFlow gave it."""
    metadata = node.attr["metadata"].s if "metadata" in node.attr else b""
    # A serialized message with the name as its field 1: tag, length (a varint), text.
    if not metadata.startswith(b"\n"):
        return None
    start = 2
    while metadata[start - 1] & 0x80:
        start += 1
    name = str(metadata[start:].decode("utf-8", "replace"))
    return None if _DEFAULT_NAME.match(name) or not name else name


def mark_name(node: Any) -> str | None:
    """The name of a mark; None for a node that is none."""
    if base_op(node.op) != "TakeDataset":
        return None
    name = user_name(node) or ""
    for prefix in (MARK_PREFIX, RANDOM_MARK_PREFIX):
        if name.startswith(prefix):
            return name.removeprefix(prefix)
    return None


def function_words(name: str) -> str:
    """A function's name as written: "decode" for "__inference_Dataset_map_decode_29"."""
    match = _TRACED_NAME.match(name)
    word = match["name"] if match else name
    return "<lambda>" if word in ("lambda", "<lambda>") else word


def component_specs(node: Any) -> tuple[tf.TensorSpec, ...]:
    """The flat tensors that make an element of a dataset node's output."""
    types, shapes = _component_attrs(node)
    return tuple(
        tf.TensorSpec(tf.TensorShape(shape), tf.as_dtype(dtype))
        for dtype, shape in zip(
            node.attr[types].list.type, node.attr[shapes].list.shape, strict=True
        )
    )


def set_components(node: Any, specs: Iterable[tf.TensorSpec]) -> None:
    """Declare other flat tensors as a dataset node's output."""
    specs = tuple(specs)
    types, shapes = _component_attrs(node)
    del node.attr[types].list.type[:]
    node.attr[types].list.type.extend(spec.dtype.as_datatype_enum for spec in specs)
    del node.attr[shapes].list.shape[:]
    node.attr[shapes].list.shape.extend(spec.shape.as_proto() for spec in specs)


def _component_attrs(node: Any) -> tuple[str, str]:
    # Sources from tensors, and batches that pad, derive their types from their inputs.
    return ("output_types" if "output_types" in node.attr else "Toutput_types"), "output_shapes"


def _node_name(name: str) -> str:
    return name.lstrip("^").partition(":")[0]


def _function_names(node: Any) -> Iterator[str]:
    for _, attr in sorted(node.attr.items()):
        if attr.HasField("func"):
            yield attr.func.name
        for function in attr.list.func:
            yield function.name
