"""Python-built dataset operators put into the middle of a serialized graph.

Operators are written with the public tf.data API, traced over a stand-in source, serialized, and
their nodes are copied into the graph. So nothing of the graph itself is rebuilt: big constants are
never parsed into tensors, tables are not made in this process, and node attributes stay byte for
byte.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from cachew_core import stock
from cachew_core.pipeline.fingerprint import rename_functions
from cachew_core.pipeline.graph import DatasetGraph, component_specs, user_name

__all__ = ["append", "call_function", "captured_values", "graft"]

_STAND_IN = "cachew_stand_in"


def graft(
    graph: DatasetGraph,
    node: Any,
    transform: Callable[[tf.data.Dataset], tf.data.Dataset],
) -> Any:
    """Put operators behind a dataset node. The node's readers read from the last of them.

    Args:
        graph: is changed.
        node: whose output the operators read, as a tuple of its flat tensors.
        transform: builds the operators; its argument is only good for being built upon.

    Returns:
        The last of the new nodes.
    """
    readers = graph.readers(node)
    last = implant(graph, node.name, component_specs(node), transform)
    for reader, index in readers:
        reader.input[index] = last.name
    return last


def append(graph: DatasetGraph, transform: Callable[[tf.data.Dataset], tf.data.Dataset]) -> Any:
    """Put operators at the end of the graph, which is changed; the last of the new nodes."""
    return graft(graph, graph.sink, transform)


def implant(
    graph: DatasetGraph,
    source: str,
    specs: Sequence[tf.TensorSpec],
    transform: Callable[[tf.data.Dataset], tf.data.Dataset],
) -> Any:
    """Copy what `transform` builds into the graph, reading from `source`; it has no reader yet."""
    anything = tf.data.Dataset.range(0, name=_STAND_IN)
    stand_in = stock.variant_dataset(stock.variant_of(anything), tuple(specs))
    piece = DatasetGraph(rename_functions(stock.graph_of(transform(stand_in))))
    unique = f"cachew_{uuid.uuid4().hex[:8]}/"
    names = {name: unique + name for name in piece.nodes}
    names.update({node.name: source for node in piece.operators() if user_name(node) == _STAND_IN})
    sink = piece.sink.name
    for node in piece.graph_def.node:
        if node.op != "_Retval" and names[node.name] != source:
            _add(graph, node, names)
    for name, function in piece.functions.items():
        if name not in graph.functions:
            graph.functions[name] = graph.graph_def.library.function.add()
            graph.functions[name].CopyFrom(function)
    return graph.nodes[names[sink]]


def _add(graph: DatasetGraph, node: Any, names: dict[str, str]) -> None:
    added = graph.add_copy(node, names[node.name])
    for index, name in enumerate(node.input):
        source, colon, port = name.removeprefix("^").partition(":")
        added.input[index] = "^" * name.startswith("^") + names[source] + colon + port


def captured_values(graph: DatasetGraph, node: Any, count: int) -> list[tf.Tensor]:
    """What a `map` node's function captured, as live tensors.

    These are the first `count` inputs behind the dataset.

    Tables and variables are made anew in this process, with the values that they had when the graph
    was made.

    Raises:
        tf.errors.OpError: one can't be made here, such as a table from a file that is not there.
    """
    inputs = graph.inputs(node)[1 : 1 + count]
    if not inputs:
        return []
    part = stock.GraphDef()
    part.versions.CopyFrom(graph.graph_def.versions)
    result = part.node.add(name="captured", op="_Retval", input=[n.name for n in inputs])
    part.node.extend(graph.nodes.values())
    part.library.CopyFrom(graph.graph_def.library)
    part.node.remove(graph.result)
    pruned = DatasetGraph(part).prune().graph_def
    pruned.node.remove(next(n for n in pruned.node if n.name == result.name))
    unique = uuid.uuid4().hex
    for made in pruned.node:
        # Under the original's name, the copy would be shared with every other copy in this process.
        if "shared_name" in made.attr:
            made.attr["shared_name"].s = f"cachew_{unique}_{made.name}".encode()

    @tf.function(autograph=False)
    def load() -> list[tf.Tensor]:
        return _imported(pruned, {}, [f"{n.name}:0" for n in inputs])

    return list(load())


def call_function(
    graph: DatasetGraph, node: Any, arguments: Sequence[tf.Tensor]
) -> list[tf.Tensor]:
    """Call the function of a `map` node, while a function is traced.

    Args:
        graph: holds the function, with what it calls.
        node: a map; its component specs give the results their static shapes.
        arguments: the flat tensors of one element, then what the function captured.
    """
    function = graph.functions_of(node)[0]
    single = stock.GraphDef()
    single.versions.CopyFrom(graph.graph_def.versions)
    single.library.function.extend([function, *graph.reachable_functions(function.node_def)])
    inputs = {}
    for index, argument in enumerate(arguments):
        placeholder = single.node.add(name=f"argument_{index}", op="Placeholder")
        placeholder.attr["dtype"].type = argument.dtype.base_dtype.as_datatype_enum
        # The identity makes a live tensor one of the graph that is being traced.
        inputs[f"{placeholder.name}:0"] = tf.identity(argument)
    call = single.node.add(
        name="call",
        op="StatefulPartitionedCall" if function.signature.is_stateful else "PartitionedCall",
        input=[name.partition(":")[0] for name in inputs],
    )
    call.attr["f"].func.CopyFrom(node.attr["f"].func)
    call.attr["Tin"].list.type.extend(arg.type for arg in function.signature.input_arg)
    call.attr["Tout"].list.type.extend(arg.type for arg in function.signature.output_arg)
    specs = component_specs(node)
    single = rename_functions(single)
    called = next(
        f
        for f in single.library.function
        if f.signature.name == single.node[-1].attr["f"].func.name
    )
    # Inlined into a branch that is not taken, each of its operators would cost time all the same.
    called.attr["_noinline"].b = True
    stock.register_functions(single)
    results = _imported(single, inputs, [f"call:{i}" for i in range(len(specs))])
    for result, spec in zip(results, specs, strict=True):
        result.set_shape(spec.shape)
    return results


def _imported(
    graph_def: stock.GraphDef, inputs: dict[str, tf.Tensor], outputs: list[str]
) -> list[tf.Tensor]:
    return list(
        tf.graph_util.import_graph_def(
            graph_def, input_map=inputs, return_elements=outputs, name="cachew"
        )
    )
