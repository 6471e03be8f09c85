"""Jobs, their epochs, and who reads them: plain state with the rules that keep it right. No I/O, no
clock of its own.

A job is one pipeline under one name. An epoch is one pass over it. A client is one `distribute`
call in a trainer; each iterator that it opens is a reader of one epoch.
"""

from __future__ import annotations

import enum
import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cachew_core.errors import PipelineError
from cachew_core.proto import cachew_pb2

if TYPE_CHECKING:
    from cachew_core.dispatcher.generation import Generation

KEPT_EPOCHS = 1000
"""Ended epochs that a job remembers; the oldest are forgotten first."""

KEPT_NOTICES = 20

KEPT_READERS = 256
"""Iterators of one client whose metrics can still change: as many as a trainer's graph measures."""

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
        metrics: the latest totals from the trainer's graph.
    """

    id: int
    client: Client
    iterator: int
    epoch: Epoch
    stock_id: int | None = None
    released: bool = False
    told_of_end: bool = False
    metrics: cachew_pb2.EpochMetrics = field(default_factory=cachew_pb2.EpochMetrics)


@dataclass(slots=True, eq=False, kw_only=True)
class Client:
    """One `distribute` call of one trainer.

    Attributes:
        connected: from its registration to its stream's end; a trainer that was killed loses it at
            once.
        streams: open ones; one that broke may end after the next has begun.
        seen_at: monotonic seconds of its last sign of life.
    """

    id: str
    job: Job
    host: str
    pid: int
    seen_at: float
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

    @property
    def live(self) -> bool:
        """Whether it waits for workers or is being read."""
        return self.state in LIVE

    def end(self, state: EpochState, now: float, failure: str = "") -> None:
        """Ends it once; later calls change nothing.

        A finished epoch keeps its generation until it is settled: an answer may still be on its way
        to a reader.
        """
        if not self.live:
            return
        self.state, self.ended_at, self.failure = state, now, failure
        if state is not EpochState.FINISHED:
            self.settle()

    def settle(self) -> None:
        """Nothing of it is left on the workers that any reader could want."""
        if self.generation is not None:
            self.generation.epochs.discard(self)

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
        shared_graph: what workers run in epochs that any number of them may share; made once.
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
    shared_graph: bytes | None = None

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
        """More are of no use."""
        return 1 if self.request.single_worker else None

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

    def add_client(self, client_id: str, *, host: str, pid: int, now: float) -> Client:
        """A new client of this job."""
        self.ended = False
        client = Client(id=client_id, job=self, host=host, pid=pid, seen_at=now)
        self.clients[client_id] = client
        return client

    def open_reader(self, client: Client, reader_id: int, now: float) -> Reader:
        """A reader in the epoch that this client's next iterator belongs to.

        That is the newest open epoch if the client has not read from it yet and one of its readers
        is still connected; else a new one.
        """
        epoch = self._epoch_to_join(client) or self._open_epoch(client, now)
        reader = Reader(id=reader_id, client=client, iterator=client.opened, epoch=epoch)
        client.readers[client.opened] = reader
        client.readers.pop(client.opened - KEPT_READERS, None)
        client.opened += 1
        epoch.readers.append(reader)
        return reader

    def _epoch_to_join(self, client: Client) -> Epoch | None:
        if not self.epochs or not self.epochs[-1].live or client.has_read(self.epochs[-1]):
            return None
        newest = self.epochs[-1]
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
        self.shared_graph = None
        self.request.ClearField("graph")

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
        job = self._named(request.job_name) if request.job_name else None
        if job is not None and job.held:
            self._check_same(job, request)
        if job is not None and _same(job.request, request):
            job.request.graph = request.graph
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

    def _named(self, name: str) -> Job | None:
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
                "all of them the same processing_mode, compression, num_consumers and "
                "cross_trainer_cache"
            )


def _same(
    one: cachew_pb2.RegisterPipelineRequest, other: cachew_pb2.RegisterPipelineRequest
) -> bool:
    return _identity(one) == _identity(other)


def _identity(request: cachew_pb2.RegisterPipelineRequest) -> tuple[object, ...]:
    consumers = request.num_consumers if request.HasField("num_consumers") else None
    reading = request.processing_mode, request.compression, consumers, request.cross_trainer_cache
    return request.fingerprint, *reading
