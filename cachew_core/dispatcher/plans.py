"""Plans: what an epoch runs and uses of the cache, and which data of a job can be stored."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field

from cachew_core.cache import Entry, Writing
from cachew_core.dispatcher.handout import Handout
from cachew_core.dispatcher.jobs import Epoch, Job
from cachew_core.dispatcher.sources import SourceLook
from cachew_core.pipeline.caching import reading_graph
from cachew_core.pipeline.points import CachePoint, cache_points
from cachew_core.pipeline.source_files import source_patterns
from cachew_core.policy.modes import Mode
from cachew_core.proto import cachew_pb2


@dataclass(slots=True, kw_only=True)
class EpochPlan:
    """How one epoch runs.

    Attributes:
        graph: what workers run, before it is made into a variant.
        name: of that graph, unique in the job.
        sources: what a plan that writes is about to read.
        entry: what workers read.
        handout: what trainers read themselves; the graph does not run then.
        held: lets go of what the epoch reads.
        workers: that were thought of when the mode was chosen; None: no number was.
    """

    mode: Mode
    graph: bytes
    name: str
    writing: Writing | None = None
    sources: SourceLook | None = None
    point: str = ""
    entry: Entry | None = None
    handout: Handout | None = None
    held: ExitStack = field(default_factory=ExitStack)
    workers: int | None = None


def computed(epoch: Epoch, mode: Mode) -> EpochPlan:
    """The plan of an epoch that leaves the cache alone."""
    return EpochPlan(mode=mode, graph=epoch.job.request.graph, name="compute")


def why_not_cached(request: cachew_pb2.RegisterPipelineRequest) -> str:
    """Why nothing of a job can be stored, whatever its pipeline is; empty if it can."""
    if request.processing_mode != cachew_pb2.DISTRIBUTED_EPOCH:
        return "only processing_mode='distributed_epoch' is cached: elsewhere each worker has all"
    if request.HasField("num_consumers") or request.cross_trainer_cache:
        return "coordinated reads and cross_trainer_cache are not cached: they have no end"
    return ""


def examine(job: Job) -> str:
    """Finds the job's cache points and source files; why that can't be, empty if it was done."""
    graph = job.request.graph
    if not graph:
        return "the job's last trainer left"
    if job.cache_points is None:
        job.cache_points = tuple(reversed(cache_points(graph)))
    if job.source_files is None:
        job.source_files = source_patterns(graph)
    return ""


def reading_graph_of(job: Job, name: str, point: CachePoint, entry: Entry) -> bytes:
    """The graph that reads an entry; made once for epochs in a row that read the same one."""
    if job.reading_graph[0] != name:
        graph = reading_graph(
            job.request.graph,
            point.node,
            [str(entry.path / chunk.path) for chunk in entry.files],
            shuffle_rows=_shuffle_rows(point, entry),
            rebatch=point.rebatch,
        )
        job.reading_graph = name, graph
    return job.reading_graph[1]


def _shuffle_rows(point: CachePoint, entry: Entry) -> int:
    """The buffer that shuffles at least as well as all of the pipeline's shuffles; 0: none did."""
    if not point.shuffles:
        return 0
    everything = max(1, entry.elements * max(1, point.rebatch))
    buffers = [s.buffer if s.buffer > 0 else everything for s in point.shuffles]
    return min(max(buffers), everything)
