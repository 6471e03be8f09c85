"""What a pipeline is, as 64 hex digits that every process computes alike.

Names in a serialized graph depend on the process: functions are numbered as they were traced,
variables and tables carry random ids, and tables list their entries in any order. So nodes and
functions are hashed by what they are and what they read from, never by name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from cachew_core import stock
from cachew_core.pipeline.graph import DatasetGraph, component_specs, mark_name, user_name, value_of
from cachew_core.pipeline.state import writes_state

__all__ = ["fingerprint", "fingerprints_at", "rename_functions"]

_PROCESS_ATTRS = frozenset(
    {
        "config_proto",
        "container",
        "debug_name",
        "executor_type",
        "experimental_debug_info",
        "metadata",
        "shared_name",
    }
)
"""Attributes that say how and under which name something runs, not what it computes. All that begin
with "_"
are of that kind, too."""

_WAITING_OPS = frozenset({"Identity", "NoOp"})
"""Operators that others wait for because they wait for something themselves."""


def fingerprint(graph: DatasetGraph, element_spec: Any) -> str:
    """The identity of a pipeline: 64 hex digits.

    Equal for the same pipeline built in another process; another one for a changed constant,
    option, operator, function, mark or element spec. Not part of it: names (except those of marks),
    and where things are.
    """
    functions = _function_digests(graph)
    digests = _node_digests(graph.graph_def.node, functions, {})
    return _digest(digests[graph.sink.name], _describe_spec(element_spec).encode()).hex()


def fingerprints_at(graph: DatasetGraph, nodes: Iterable[Any]) -> dict[str, str]:
    """For dataset nodes, by name: the identity of the pipeline that ends there.

    The flat element spec is part of it, what follows the node is not.
    """
    digests = _node_digests(graph.graph_def.node, _function_digests(graph), {})
    return {
        node.name: _digest(
            digests[node.name], *(_describe_spec(spec).encode() for spec in component_specs(node))
        ).hex()
        for node in nodes
    }


def rename_functions(graph_def: stock.GraphDef) -> stock.GraphDef:
    """The graph with functions named by content, so that graphs of two processes can be joined."""
    graph = DatasetGraph(graph_def)
    names = {
        name: f"cachew_{digest.hex()[:32]}" for name, digest in _function_digests(graph).items()
    }
    renamed = stock.GraphDef()
    renamed.CopyFrom(graph_def)
    del renamed.library.function[:]
    for name, new_name in names.items():
        if all(f.signature.name != new_name for f in renamed.library.function):
            function = renamed.library.function.add()
            function.CopyFrom(graph.functions[name])
            function.signature.name = new_name
    bodies = [f.node_def for f in renamed.library.function]
    for node in (node for nodes in (renamed.node, *bodies) for node in nodes):
        _rename_in(node, names)
    return renamed


def _rename_in(node: Any, names: Mapping[str, str]) -> None:
    if node.op in names:
        node.op = names[node.op]
    for attr in node.attr.values():
        if attr.HasField("func"):
            attr.func.name = names.get(attr.func.name, attr.func.name)
        for function in attr.list.func:
            function.name = names.get(function.name, function.name)


def _function_digests(graph: DatasetGraph) -> dict[str, bytes]:
    """A digest of each function's content, callees before callers."""
    digests: dict[str, bytes] = {}
    for name in _callees_first(graph):
        function = graph.functions[name]
        arguments = {
            arg.name: _digest(b"argument", str(index).encode(), str(arg.type).encode())
            for index, arg in enumerate(function.signature.input_arg)
        }
        nodes = _node_digests(function.node_def, digests, arguments)
        results = [
            _reference(function.ret[arg.name], nodes) for arg in function.signature.output_arg
        ]
        # Nodes that no result reads can have effects, such as an assignment.
        digests[name] = _digest(b"function", *results, b"nodes", *sorted(nodes.values()))
    return digests


def _callees_first(graph: DatasetGraph) -> list[str]:
    calls = {
        name: [f.signature.name for node in function.node_def for f in _called(graph, node)]
        for name, function in graph.functions.items()
    }
    return _dependencies_first(calls)


def _called(graph: DatasetGraph, node: Any) -> list[Any]:
    direct = [graph.functions[node.op]] if node.op in graph.functions else []
    return direct + graph.functions_of(node)


def _node_digests(
    nodes: Iterable[Any], functions: Mapping[str, bytes], known: Mapping[str, bytes]
) -> dict[str, bytes]:
    by_name = {node.name: node for node in nodes}
    digests = dict(known)
    reads = {
        name: [source for source in map(_source, node.input) if source in by_name]
        for name, node in by_name.items()
    }
    for name in _dependencies_first(reads):
        digests[name] = _node_digest(by_name[name], by_name, functions, digests)
    return {name: digest for name, digest in digests.items() if name in by_name} | dict(known)


def _node_digest(
    node: Any,
    by_name: Mapping[str, Any],
    functions: Mapping[str, bytes],
    digests: Mapping[str, bytes],
) -> bytes:
    if node.op == "Const" and node.attr["dtype"].type == tf.resource.as_datatype_enum:
        return _digest(b"resource")
    parts = [functions.get(node.op, node.op.encode())]
    if mark_name(node) is not None:
        parts.append((user_name(node) or "").encode())
    for key, attr in sorted(node.attr.items()):
        if not key.startswith("_") and key not in _PROCESS_ATTRS:
            parts += [key.encode(), _attr_digest(attr, functions)]
    if (entries := _table_entries(node, by_name)) is not None:
        return _digest(*parts, digests[_source(node.input[0])], entries)
    parts += [_reference(name, digests) for name in node.input if not name.startswith("^")]
    parts += sorted(_reference(name, digests) for name in _orderings(node, by_name))
    return _digest(*parts)


def _orderings(node: Any, by_name: Mapping[str, Any]) -> list[str]:
    """The control inputs that may order a change of state against something else.

    Those between two reads are left out: Python came by reads in an order that can depend on the
    process.
    """
    ordered = [name for name in node.input if name.startswith("^") and name[1:] in by_name]
    if _may_write(node):
        return ordered
    return [
        name
        for name in ordered
        if (source := by_name[name[1:]]).op in _WAITING_OPS or _may_write(source)
    ]


def _may_write(node: Any) -> bool:
    return writes_state(node.op) or any(attr.HasField("func") for attr in node.attr.values())


def _attr_digest(attr: Any, functions: Mapping[str, bytes]) -> bytes:
    called = [attr.func] if attr.HasField("func") else list(attr.list.func)
    if not called:
        return bytes(attr.SerializeToString(deterministic=True))
    return _digest(*(functions.get(f.name, f.name.encode()) for f in called))


def _table_entries(node: Any, by_name: Mapping[str, Any]) -> bytes | None:
    """A table's content in the same order in each process; None where it is no constant."""
    if node.op not in ("LookupTableImportV2", "InitializeTableV2"):
        return None
    sources = [by_name[_source(name)] for name in node.input[1:3]]
    if any(source.op != "Const" for source in sources):
        return None
    keys, values = (np.asarray(value_of(source)) for source in sources)
    order = np.argsort(keys.astype("S") if keys.dtype == object else keys, kind="stable")
    return _digest(*(repr(array[order].tolist()).encode() for array in (keys, values)))


def _dependencies_first(needs: Mapping[str, list[str]]) -> list[str]:
    """Names, each behind what it needs; without recursion, as graphs are deep."""
    ordered: dict[str, None] = {}
    for root in needs:
        path = [(root, iter(needs[root]))]
        entered = {root}
        while path:
            name, rest = path[-1]
            following = next((n for n in rest if n not in ordered and n not in entered), None)
            if following is None:
                ordered[name] = None
                path.pop()
            else:
                entered.add(following)
                path.append((following, iter(needs[following])))
    return list(ordered)


def _source(name: str) -> str:
    return name.lstrip("^").partition(":")[0]


def _reference(name: str, digests: Mapping[str, bytes]) -> bytes:
    source, _, port = name.lstrip("^").partition(":")
    return _digest(digests[source], port.encode(), b"^" if name.startswith("^") else b"")


def _describe_spec(spec: Any) -> str:
    if isinstance(spec, Mapping):
        inner = ",".join(f"{key!r}:{_describe_spec(spec[key])}" for key in sorted(spec))
        return f"{{{inner}}}"
    if isinstance(spec, list | tuple):
        return f"({','.join(_describe_spec(item) for item in spec)})"
    return repr(spec)


def _digest(*parts: bytes) -> bytes:
    hashed = hashlib.sha256()
    for part in parts:
        hashed.update(len(part).to_bytes(8, "big"))
        hashed.update(part)
    return hashed.digest()
