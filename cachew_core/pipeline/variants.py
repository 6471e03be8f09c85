"""The forms of a registered pipeline that the dispatcher gives to workers."""

from __future__ import annotations

from cachew_core.pipeline.graph import DatasetGraph
from cachew_core.pipeline.interleaves import pass_splits_through_interleaves
from cachew_core.pipeline.seeds import fix_seeds, remove_seeds, seeded_operators
from cachew_core.pipeline.sources import coarsen_sources
from cachew_core.pipeline.writing import swallows_own_errors

__all__ = ["seeded_operators", "worker_variant"]


def worker_variant(graph: bytes, *, sharded: bool, single: bool, epoch: int) -> bytes:
    """The graph that workers run for one epoch.

    Args:
        graph: as `prepare` made it.
        sharded: the input is split over workers: sources hand out blocks.
        single: one worker runs it, now and until the epoch's end: seeds stay, mixed with the
            epoch's number. Otherwise seeds are taken out, and each worker draws its own streams.
        epoch: its number, from 0.

    Returns:
        A serialized GraphDef.
    """
    variant = DatasetGraph.parse(graph)
    if sharded:
        coarsen_sources(variant)
        pass_splits_through_interleaves(variant)
    _log_ignored_errors(variant)
    if single:
        fix_seeds(variant, epoch)
    else:
        remove_seeds(variant)
    return variant.prune().serialize()


def _log_ignored_errors(graph: DatasetGraph) -> None:
    """Have every `ignore_errors` log what it swallows: that is all that can be known of it."""
    inner = (node for function in graph.graph_def.library.function for node in function.node_def)
    for node in (*graph.graph_def.node, *inner):
        if node.op == "IgnoreErrorsDataset" and not swallows_own_errors(node):
            node.attr["log_warning"].b = True
