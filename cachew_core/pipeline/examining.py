"""Which of a pipeline's source files can't be read, found by reading them once more.

A reader of records says what is wrong and not in which file. To carry names along would cost
microseconds a record in every epoch; so it is found out once an epoch has failed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence

import tensorflow as tf

from cachew_core.pipeline.graph import DatasetGraph, base_op, value_of
from cachew_core.pipeline.scopes import outer_scope, walk
from cachew_core.sources import files_of

__all__ = ["broken_files"]

log = logging.getLogger(__name__)

KNOWN_COMPRESSIONS = ("", "GZIP", "ZLIB")

ENOUGH = 3
"""So many broken files are named."""


def broken_files(graph: bytes, patterns: Sequence[str], *, budget_s: float) -> list[str]:
    """Reads a pipeline's record files until it has found broken ones, or the time is over.

    Args:
        graph: a GraphDef; says how its readers of TFRecord files take them.
        patterns: paths, folders and globs.
        budget_s: after so long no further file is begun.

    Returns:
        `path: what is wrong`, of up to three files. Empty: none was found, or the graph has no such
        reader (others name the file themselves).
    """
    compressions = _compressions(DatasetGraph.parse(graph))
    deadline = time.monotonic() + budget_s
    found: list[str] = []
    for path in files_of(patterns) if compressions else ():
        if time.monotonic() > deadline or len(found) == ENOUGH:
            break
        if problem := _problem(path, compressions):
            found.append(f"{path}: {problem}")
    return found


def _compressions(graph: DatasetGraph) -> list[str]:
    """How the graph's TFRecord readers take their files; all ways, where a graph computes it."""
    found: set[str] = set()
    outer = outer_scope(graph)
    for node in graph.graph_def.node:
        for scope, called in ((outer, node), *walk(outer, node)):
            if base_op(called.op) == "TFRecordDataset":
                constant = scope.constant(scope.inputs(called)[1])
                value = None if constant is None else value_of(constant)
                found.update(KNOWN_COMPRESSIONS if value is None else [value.item().decode()])
    return sorted(found)


def _problem(path: str, compressions: Iterable[str]) -> str:
    """What is wrong with a file that no reader can read; empty: one of them can."""
    problem = ""
    for compression in compressions:
        try:
            # Skipping reads all, in C++.
            for _ in tf.data.TFRecordDataset(path, compression).skip(1 << 62):
                pass
        except tf.errors.OpError as error:
            problem = error.message.partition(" [Op:")[0].rpartition("}} ")[2]
        else:
            return ""
    return problem
