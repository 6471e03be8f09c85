"""Jobs, their epochs, and who reads them: plain state with the rules that keep it right. No I/O, no
clock of its own.

A job is one pipeline under one name. An epoch is one pass over it. A client is one `distribute`
call in a trainer; each iterator that it opens is a reader of one epoch.
"""

from __future__ import annotations

import asyncio
import enum
import itertools
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cachew_core.dispatcher.events import event
from cachew_core.dispatcher.swallowed import Swallowed
from cachew_core.errors import PipelineError
from cachew_core.policy.modes import Mode
from cachew_core.proto import cachew_pb2

if TYPE_CHECKING:
    from cachew_core.dispatcher.generation import Generation
    from cachew_core.dispatcher.handout import Handout
    from cachew_core.pipeline.points import CachePoint
    from cachew_core.pipeline.source_files import Sources

log = logging.getLogger(__name__)

KEPT_EPOCHS = 1000
"""Ended epochs that a job remembers; the oldest are forgotten first."""

KEPT_NOTICES = 20

KEPT_READERS = 256
"""Iterators of one client whose metrics can still change; more than a trainer measures."""

KEPT_ENDED_JOBS = 200
"""Ended jobs that status shows; the oldest are forgotten first."""


class EpochState(enum.StrEnum):
    """Where an epoch is in its life."""

    WAITING = "waiting"  # for workers
    OPEN = "open"
    FINISHED = "finished"
    ABANDONED = "abandoned"  # its readers left before its end
    FAILED = "failed"


LIVE = frozenset({EpochState.WAITING, EpochState.OPEN})


@dataclass(slots=True, eq=False, kw_only=True)
class Reader:
    """One iterator of one client, in one epoch.

    Attributes:
        id: what the trainer takes for stock's iteration client id.
        iterator: how many iterators the client had opened before.
        stock_id: the real iteration client id at the generation's stock server; None until bound.
        told_of_end: its trainer knows that the epoch finished or failed.
        done: its trainer has read all files that it was handed.
        metrics: the latest totals from the trainer's graph.
        beat: the last answer of stock to a heartbeat, when it came (by the system's steady clock),
            and the generation's `changes` then.
        reviewed: the totals up to which its choice of a mode was reviewed.
    """

    id: int
    client: Client
    iterator: int
    epoch: Epoch
    stock_id: int | None = None
    released: bool = False
    told_of_end: bool = False
    done: bool = False
    metrics: cachew_pb2.EpochMetrics = field(default_factory=cachew_pb2.EpochMetrics)
    beat: tuple[bytes, float, int] = (b"", 0.0, -1)
    reviewed: cachew_pb2.EpochMetrics = field(default_factory=cachew_pb2.EpochMetrics)


@dataclass(slots=True, eq=False, kw_only=True)
class Client:
    """One `distribute` call of one trainer.

    Attributes:
        connected: from its registration to its stream's end; a trainer that was killed loses it at
            once.
        streams: open ones; one that broke may end after the next has begun.
        seen_at: monotonic seconds of its last sign of life.
        direct: it sees the cache's volume, and its graph can read an epoch from there.
        dispatcher_address: `host:port` at which it reaches the dispatcher.
        cpu_share: of the cores that its process may use, of late.
    """

    id: str
    job: Job
    host: str
    pid: int
    seen_at: float
    direct: bool = False
    dispatcher_address: str = ""
    cpu_share: float = 0.0
    connected: bool = True
    streams: int = 0
    readers: dict[int, Reader] = field(default_factory=dict)  # by iterator
    opened: int = 0
    notices: list[cachew_pb2.ClientNotice] = field(default_factory=list)

    def has_read(self, epoch: Epoch) -> bool:
        """Whether any iterator of this client is or was a reader of the epoch."""
        return any(reader.client is self for reader in epoch.readers)

    def notify(self, text: str, *, warning: bool = False) -> None:
        """Leaves a line for the trainer's log."""
        level = cachew_pb2.ClientNotice.WARNING if warning else cachew_pb2.ClientNotice.INFO
        self.notices.append(cachew_pb2.ClientNotice(level=level, text=text))


@dataclass(slots=True, eq=False, kw_only=True)
class Epoch:
    """One pass over the job's pipeline.

    Attributes:
        number: 1 for the job's first.
        fixed: its workers are those of its start: none joins, none is drained.
        workers: the most that served it at one time.
        failure: why it failed, in one sentence for the trainer.
        point: the cache point that it writes or reads.
        swallowed: by the pipeline's own `ignore_errors`.
        tasks: of workers, by the ids that its readers were told.
        stored: key of the cache entry that was made of what it wrote; empty: none.
        planning: makes the plan that all its readers share.
        looking: finds out whether its readers can do without workers.
        undecided: that is not known yet, so it asks for no workers.
        expected_workers: the fewest and the most that it may get.
        handout: what its readers read themselves; None: they read through workers.
        settled: nothing of it is left on the workers.
        iteration: stock's id of it at its generation's server; None: not known yet.
    """

    number: int
    job: Job
    opened_at: float
    fixed: bool
    state: EpochState = EpochState.WAITING
    ended_at: float | None = None
    generation: Generation | None = None
    readers: list[Reader] = field(default_factory=list)
    workers: int = 0
    failure: str = ""
    queued_notice: bool = False
    swallowed: Swallowed = field(default_factory=Swallowed)
    tasks: set[int] = field(default_factory=set)
    stored: str = ""
    mode: Mode = Mode.COMPUTE
    point: str = ""
    planning: asyncio.Future[Any] | None = None
    looking: asyncio.Future[None] | None = None
    undecided: bool = False
    expected_workers: tuple[int, int] = (1, 1)
    handout: Handout | None = None
    settled: bool = False
    iteration: int | None = None
    _on_settled: Callable[[], None] | None = None
    _held: int = 0
    _held_since: float = 0.0
    _worker_s: float = 0.0

    @property
    def live(self) -> bool:
        """Whether it waits for workers or is being read."""
        return self.state in LIVE

    @property
    def direct(self) -> bool:
        """Whether its readers read the cache's files themselves."""
        return self.handout is not None

    @property
    def ending(self) -> bool:
        """Whether no input is left to hand out, so that workers run dry one after the other."""
        return self.generation is not None and self.iteration in self.generation.dry

    @property
    def is_read(self) -> bool:
        """Whether none of its readers has files left to read."""
        return not self.direct or all(r.done or r.released for r in self.readers)

    @property
    def can_be_direct(self) -> bool:
        """Whether all who read it, and all who may yet, see the cache's volume."""
        clients = [client for client in self.job.clients.values() if client.connected]
        return all(client.direct for client in (*clients, *(r.client for r in self.readers)))

    def end(self, state: EpochState, now: float, failure: str = "") -> None:
        """Ends it once; later calls change nothing.

        A finished epoch keeps its generation until it is settled: an answer may still be on its way
        to a reader.
        """
        if not self.live:
            return
        self.hold(0, now)
        self.state, self.ended_at, self.failure = state, now, failure
        log.info(
            "job %s: epoch %d is %s",
            self.job.name,
            self.number,
            state,
            extra=event(
                "epoch_ended",
                job=self.job.name,
                epoch=self.number,
                mode=self.mode,
                state=state,
                seconds=self.seconds(now),
                worker_seconds=self.worker_seconds(now),
                failure=failure,
            ),
        )
        if state is not EpochState.FINISHED:
            self.settle()

    def hold(self, workers: int, now: float) -> None:
        """From now on so many workers are held for it."""
        self._worker_s = self.worker_seconds(now)
        self._held, self._held_since = workers, now

    def worker_seconds(self, now: float) -> float:
        """What it cost so far: for each worker the time for which it was held."""
        return self._worker_s + self._held * (now - self._held_since)

    def ignore(self, errors: int, text: str, now: float) -> None:
        """Counts what its pipeline's own `ignore_errors` swallowed, and keeps that for status."""
        self.job.forget_note(self.swallowed.words(self.number))
        got = sum(reader.metrics.elements for reader in self.readers)
        self.swallowed.add(errors, text, elements=got, now_s=now)
        self.job.note(self.swallowed.words(self.number))

    def settle(self) -> None:
        """Nothing of it is left on the workers that any reader could want."""
        if self.generation is not None:
            self.generation.epochs.discard(self)
        self.settled = True
        tell, self._on_settled = self._on_settled, None
        if tell is not None:
            tell()

    def when_settled(self, tell: Callable[[], None]) -> None:
        """Has it called once when the epoch is settled: now, if its readers left before this."""
        self._on_settled = tell
        if self.settled:
            self.settle()

    def seconds(self, now: float) -> float:
        """How long it took, or takes so far."""
        return (now if self.ended_at is None else self.ended_at) - self.opened_at

    def totals(self) -> cachew_pb2.EpochMetrics:
        """Sums over its readers; the span is the longest one."""
        metrics = [reader.metrics for reader in self.readers]
        return cachew_pb2.EpochMetrics(
            elements=sum(m.elements for m in metrics),
            wait_s=sum(m.wait_s for m in metrics),
            step_s=sum(m.step_s for m in metrics),
            span_s=max((m.span_s for m in metrics), default=0.0),
        )


@dataclass(slots=True, eq=False, kw_only=True)
class Job:
    """One pipeline under one name.

    Attributes:
        request: how it was registered.
        seeded: operators with a fixed seed; with one worker they are reproducible, with several
            they are not kept.
        generation: the newest; None before the first epoch.
        shared_graph: what workers run in epochs that any number of them may share, and of which
            plan it was made; made once for epochs in a row with the same plan.
        reading_graph: the graph that reads what the job read last, and the plan's name.
        cache_points: of the graph, from the sources to the end; None: not looked for yet.
        source_files: of the graph, likewise.
        choices: what the chooser knows of the job.
        scaling: what the autoscaler knows of it.
    """

    id: str
    name: str
    request: cachew_pb2.RegisterPipelineRequest
    seeded: tuple[str, ...] = ()
    seeded_known: bool = False
    clients: dict[str, Client] = field(default_factory=dict)
    epochs: list[Epoch] = field(default_factory=list)
    generation: Generation | None = None
    generations: set[Generation] = field(default_factory=set)
    ended: bool = False
    opened_epochs: int = 0
    notices: list[str] = field(default_factory=list)
    shared_graph: tuple[str, bytes] = ("", b"")
    reading_graph: tuple[str, bytes] = ("", b"")
    cache_points: tuple[CachePoint, ...] | None = None
    source_files: Sources | None = None
    choices: Any = None
    scaling: Any = None

    @property
    def private(self) -> bool:
        """Whether no other trainer can find it."""
        return not self.request.job_name

    @property
    def held(self) -> bool:
        """Whether a trainer that lives reads it, so that its name can't be another pipeline's."""
        return any(client.connected for client in self.clients.values())

    @property
    def most_workers(self) -> int | None:
        """More are of no use; None: any number may be."""
        return 1 if self.request.single_worker else self.request.max_workers or None

    @property
    def sharded(self) -> bool:
        """Whether stock hands out its splits, so that workers can come and go in mid-epoch."""
        return (
            self.request.processing_mode == cachew_pb2.DISTRIBUTED_EPOCH
            and not self.request.single_worker
            and not self.request.HasField("num_consumers")
        )

    def live_epochs(self) -> list[Epoch]:
        """Epochs that wait for workers or are being read, oldest first."""
        return [epoch for epoch in self.epochs if epoch.live]

    def epochs_for_workers(self) -> list[Epoch]:
        """Live epochs that need workers, oldest first."""
        return [e for e in self.live_epochs() if not (e.undecided or e.direct)]

    @property
    def does_without_workers(self) -> bool:
        """Whether it is being read, and by trainers that read files only."""
        live = self.live_epochs()
        return bool(live) and all(epoch.direct for epoch in live)

    def add_client(self, client_id: str, *, host: str, pid: int, now: float) -> Client:
        """A new client of this job."""
        self.ended = False
        client = Client(id=client_id, job=self, host=host, pid=pid, seen_at=now)
        self.clients[client_id] = client
        return client

    def open_reader(
        self, client: Client, reader_id: int, now: float, iterator: int | None = None
    ) -> Reader:
        """A reader in the epoch that this client's next iterator belongs to.

        That is the newest open epoch if the client has not read from it yet, can read it, and one
        of its readers is still connected; else a new one.

        Args:
            client: whose iterator it is.
            reader_id: a new one.
            now: of the job's clock, in seconds.
            iterator: the number that the client gave it. Default: the next one.
        """
        epoch = self._epoch_to_join(client) or self._open_epoch(client, now)
        number = client.opened if iterator is None else iterator
        reader = Reader(id=reader_id, client=client, iterator=number, epoch=epoch)
        client.readers[number] = reader
        client.readers.pop(number - KEPT_READERS, None)
        client.opened += 1
        epoch.readers.append(reader)
        return reader

    def _epoch_to_join(self, client: Client) -> Epoch | None:
        if not self.epochs or not self.epochs[-1].live or client.has_read(self.epochs[-1]):
            return None
        newest = self.epochs[-1]
        # What has all been handed out may still be read, but not by others.
        if newest.handout is not None and (not client.direct or newest.handout.over.is_set()):
            return None
        if not any(reader.client.connected and not reader.released for reader in newest.readers):
            return None
        return newest

    def _open_epoch(self, client: Client, now: float) -> Epoch:
        if client.opened == 0 and self.epochs and len(self.clients) > 1:
            last = self.epochs[-1]
            client.notify(
                f"job {self.name!r}: epoch {last.number} was already {last.state} when this "
                f"trainer came; it starts epoch {self.opened_epochs + 1}"
            )
        self.opened_epochs += 1
        epoch = Epoch(number=self.opened_epochs, job=self, opened_at=now, fixed=not self.sharded)
        self.epochs.append(epoch)
        del self.epochs[:-KEPT_EPOCHS]
        return epoch

    def end(self) -> None:
        """Its last client left. The graph, which may be large, comes again with the next one."""
        self.ended = True
        self.shared_graph = self.reading_graph = "", b""
        self.cache_points = self.source_files = None
        self.request.ClearField("graph")

    def forget_note(self, text: str) -> None:
        """Takes a line back."""
        if text in self.notices:
            self.notices.remove(text)

    def note(self, text: str) -> None:
        """Keeps a line for status."""
        if text not in self.notices:
            self.notices.append(text)
            del self.notices[:-KEPT_NOTICES]


@dataclass(slots=True)
class JobBook:
    """All jobs of the service, by id and by name."""

    jobs: dict[str, Job] = field(default_factory=dict)
    _ids: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def register(self, request: cachew_pb2.RegisterPipelineRequest) -> Job:
        """The job that a registration belongs to: a live one of that name, or a new one.

        Raises:
            PipelineError: the name belongs to a live job with another pipeline or another way of
                reading it.
        """
        job = self.named(request.job_name) if request.job_name else None
        if job is not None and job.held:
            self._check_same(job, request)
        if job is not None and _same(job.request, request):
            # What is known of a graph names its nodes, and each trainer's has names of its own.
            job.request.graph = job.request.graph or request.graph
            return job
        number = next(self._ids)
        name = request.job_name or f"private-{number}"
        job = Job(id=f"job-{number}", name=name, request=request)
        self.jobs[job.id] = job
        self._forget_old_jobs()
        return job

    def _forget_old_jobs(self) -> None:
        ended = [job for job in self.jobs.values() if job.ended and not job.generations]
        for job in ended[: max(0, len(ended) - KEPT_ENDED_JOBS)]:
            del self.jobs[job.id]

    def named(self, name: str) -> Job | None:
        """The newest job of that name."""
        return next((job for job in reversed(self.jobs.values()) if job.name == name), None)

    @staticmethod
    def _check_same(job: Job, request: cachew_pb2.RegisterPipelineRequest) -> None:
        if job.request.fingerprint != request.fingerprint:
            holders = ", ".join(f"process {c.pid} on {c.host}" for c in job.clients.values())
            raise PipelineError(
                f"job_name={job.name!r} is in use by another pipeline ({holders}; fingerprint "
                f"{job.request.fingerprint[:12]}, this one {request.fingerprint[:12]}): take "
                "another name, or give all trainers of this job the same pipeline"
            )
        if not _same(job.request, request):
            raise PipelineError(
                f"job_name={job.name!r} is read with other arguments by its other trainers: give "
                "all of them the same processing_mode, compression, num_consumers, "
                "cross_trainer_cache, cache_policy, sources, trust_sources, scaling_policy, "
                "max_workers, weight, priority and tenant"
            )


def _same(
    one: cachew_pb2.RegisterPipelineRequest, other: cachew_pb2.RegisterPipelineRequest
) -> bool:
    return _identity(one) == _identity(other)


def _identity(request: cachew_pb2.RegisterPipelineRequest) -> tuple[object, ...]:
    consumers = request.num_consumers if request.HasField("num_consumers") else None
    reading = request.processing_mode, request.compression, consumers, request.cross_trainer_cache
    caching = request.cache_policy, tuple(request.sources), request.trust_sources
    scaling = request.scaling_policy, request.max_workers, request.weight, request.priority
    return request.fingerprint, *reading, *caching, *scaling, request.tenant
