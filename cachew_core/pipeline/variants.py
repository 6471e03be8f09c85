"""The forms of a registered pipeline that the dispatcher gives to workers."""

from __future__ import annotations

from cachew_core.pipeline.graph import DatasetGraph
from cachew_core.pipeline.interleaves import pass_splits_through_interleaves
from cachew_core.pipeline.seeds import fix_seeds, remove_seeds, seeded_operators
from cachew_core.pipeline.sources import coarsen_sources

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
    if single:
        fix_seeds(variant, epoch)
    else:
        remove_seeds(variant)
    return variant.prune().serialize()
