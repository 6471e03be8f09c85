"""What is known of an error that ended an epoch: the worker, and the file it could not read."""

from __future__ import annotations

import asyncio
import logging

from cachew_core.dispatcher.jobs import Job
from cachew_core.dispatcher.pool import Pool, Slot
from cachew_core.dispatcher.sources import SourceView
from cachew_core.errors import CachewError
from cachew_core.pipeline.source_files import source_patterns

__all__ = ["explain", "worker_of"]

log = logging.getLogger(__name__)


def worker_of(job: Job, error: str, pool: Pool) -> Slot | None:
    """The worker of a job that gave that error; None: none that is known.

    Args:
        job: what the trainer was reading.
        error: its text, in which stock names a worker's address.
        pool: the workers.
    """
    for slot in pool.slots():
        assignment = slot.assignment
        if assignment is None or assignment.generation.job is not job:
            continue
        if assignment.address and f"{assignment.address}:" in error:
            return slot
    return None


async def explain(job: Job, slot: Slot, sources: SourceView) -> str:
    """Has the worker's node read the pipeline's record files to find the broken one.

    Args:
        job: what the trainer was reading.
        slot: the worker that gave an error.
        sources: asks worker nodes.

    Returns:
        A sentence; empty if no more is known than the error says.
    """
    graph = job.request.graph
    if not graph:
        return ""
    found = await asyncio.to_thread(source_patterns, graph)
    patterns = (*found.patterns, *job.request.sources)
    try:
        broken = await sources.broken_files(slot.agent, graph, patterns)
    except CachewError as problem:
        log.info("job %s: the files could not be examined: %s", job.name, problem)
        return ""
    if not broken:
        return ""
    return f"worker {slot.id} on {slot.agent.host} can't read {'; '.join(broken)}"
