"""State that functions of a pipeline carry from element to element, told apart from random streams.

A variable that a function assigns makes each element depend on those before it, so such a pipeline
runs on one worker. The state of a random generator (`tf.random.Generator`, Keras' `SeedGenerator`)
is assigned, too, but no element's value is expected to depend on the others': such pipelines are
split, each worker with a stream of its own.
"""

from __future__ import annotations

import re
from typing import Any

from cachew_core.pipeline.graph import DatasetGraph

__all__ = ["random_variables", "state_operators", "writes_state"]

_WRITES = re.compile(
    r"^(Assign\w*VariableOp|Resource(Scatter|Apply|SparseApply|StridedSliceAssign|Accumulator|CountUpTo)\w*"
    r"|LookupTable(Insert|Remove|Import)\w*|MutableDenseHashTable\w*|(Queue|Barrier|Stack|TensorArray)\w*Push\w*"
    r"|Queue(Enqueue|Dequeue)\w*|IteratorGetNext\w*|Accumulator\w*)$"
)
_RANDOM_STATE = re.compile(
    r"^(RngReadAndSkip|RngSkip|Stateful(Random|StandardNormal|TruncatedNormal|Uniform)\w*)$"
)
_SEED_USES = re.compile(r"^StatelessRandomGetKeyCounter\w*$")
_PASS_ON = frozenset(
    {
        "Add",
        "AddV2",
        "Bitcast",
        "Cast",
        "ConcatV2",
        "FloorMod",
        "Identity",
        "Mul",
        "Pack",
        "ReadVariableOp",
        "StridedSlice",
    }
)


def writes_state(op: str) -> bool:
    """Whether an operator changes something that outlives its call, random streams left out."""
    return _WRITES.match(op) is not None


def state_operators(graph: DatasetGraph, node: Any) -> list[str]:
    """Operators by which functions of a dataset node carry state, random streams left out."""
    return [
        str(inner.op)
        for function in graph.reachable_functions([node])
        for inner in function.node_def
        if writes_state(inner.op) and not _is_seed_update(function, inner)
    ]


def random_variables(graph: DatasetGraph) -> list[Any]:
    """The variables (their `VarHandleOp` nodes) that hold the state of a random stream."""
    found = {}
    for node in graph.operators():
        functions = graph.reachable_functions([node])
        random = any(
            _RANDOM_STATE.match(inner.op) or _is_seed_update(function, inner)
            for function in functions
            for inner in function.node_def
        )
        for source in graph.inputs(node) if random else ():
            handle = _variable(graph, source)
            if handle is not None and _may_hold_random_state(handle):
                found[handle.name] = handle
    return list(found.values())


def _variable(graph: DatasetGraph, node: Any) -> Any | None:
    while node.op == "Identity":
        node = graph.input(node, 0)
    return node if node.op == "VarHandleOp" else None


def _may_hold_random_state(handle: Any) -> bool:
    dims = [dim.size for dim in handle.attr["shape"].shape.dim]
    # A generator's state has two or three whole numbers (DT_INT32, DT_INT64, DT_UINT32, DT_UINT64).
    return handle.attr["dtype"].type in (3, 9, 22, 23) and dims in ([2], [3])


def _is_seed_update(function: Any, assignment: Any) -> bool:
    """Whether an assigned variable is read only for random seeds and its own next value."""
    if not assignment.op.startswith("Assign"):
        return False
    resource = assignment.input[0]
    tainted = {resource.partition(":")[0]}
    used_as_seed = False
    waiting = list(tainted)
    while waiting:
        source = waiting.pop()
        for reader in function.node_def:
            if source not in (name.partition(":")[0] for name in reader.input):
                continue
            if _SEED_USES.match(reader.op):
                used_as_seed = True
            elif reader.op in _PASS_ON and reader.name not in tainted:
                tainted.add(reader.name)
                waiting.append(reader.name)
            elif reader.op not in _PASS_ON and not _assigns(reader, resource):
                return False
        if any(source == value.partition(":")[0] for value in function.ret.values()):
            return False
    return used_as_seed


def _assigns(node: Any, resource: str) -> bool:
    return bool(node.op.startswith("Assign") and node.input[0] == resource)
