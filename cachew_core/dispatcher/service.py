"""Our own gRPC API: registration, the streams of clients and agents, status, shutdown."""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc

from cachew_core.cache import Proof
from cachew_core.dispatcher.choosing import Chooser
from cachew_core.dispatcher.epochs import EpochService
from cachew_core.dispatcher.events import event
from cachew_core.dispatcher.explaining import explain, worker_of
from cachew_core.dispatcher.jobs import Client, Job
from cachew_core.dispatcher.pool import Agent
from cachew_core.dispatcher.scheduler import Scheduler
from cachew_core.dispatcher.sources import SourceView
from cachew_core.dispatcher.status import service_status
from cachew_core.dispatcher.stored import StoredView
from cachew_core.errors import CachewError, PipelineError
from cachew_core.pipeline.variants import seeded_operators
from cachew_core.policy.autoscale import parse_scaling_policy
from cachew_core.policy.modes import parse_policy
from cachew_core.proto import cachew_pb2, cachew_pb2_grpc
from cachew_core.rpc import check_versions, own_versions
from cachew_core.settings import DispatcherSettings

log = logging.getLogger(__name__)

Context = grpc.aio.ServicerContext[Any, Any]

NOTICE_INTERVAL_S = 0.2


class DispatcherService(cachew_pb2_grpc.DispatcherServicer):
    """Serves `cachew.v1.Dispatcher`.

    Args:
        stored: what lies in the cache, for people.
        proof: what trainers must have read to count as seeing the cache; None: there is no cache.
        shut_down: begins the end of the service; returns at once.
    """

    def __init__(
        self,
        settings: DispatcherSettings,
        scheduler: Scheduler,
        epochs: EpochService,
        chooser: Chooser,
        sources: SourceView,
        stored: StoredView,
        *,
        proof: Proof | None,
        clock: Callable[[], float],
        shut_down: Callable[[cachew_pb2.ShutdownRequest], None],
        pid: int,
    ) -> None:
        self.endpoint = ""
        self.page = ""
        self.ending = False
        """Streams to trainers end by themselves: gRPC logs those that it breaks off as faults."""
        self._settings = settings
        self._scheduler = scheduler
        self._epochs = epochs
        self._chooser = chooser
        self._sources = sources
        self._stored = stored
        self._proof = proof
        self._clock = clock
        self._shut_down = shut_down
        self._pid = pid
        self._versions = own_versions()

    async def GetServiceInfo(  # noqa: N802
        self, request: cachew_pb2.ServiceInfoRequest, context: Context
    ) -> cachew_pb2.ServiceInfo:
        return cachew_pb2.ServiceInfo(
            versions=self._versions,
            name=self._settings.name,
            workers=len(self._scheduler.pool.usable()),
            max_graph_bytes=self._settings.max_graph_bytes,
            cache_proof_path=self._proof.path if self._proof else "",
            cache_proof_sha256=self._proof.sha256 if self._proof else "",
            cache_policy=str(parse_policy(self._settings.cache_policy)),
        )

    async def RegisterPipeline(  # noqa: N802
        self, request: cachew_pb2.RegisterPipelineRequest, context: Context
    ) -> cachew_pb2.RegisterPipelineResponse:
        try:
            self._check(request)
            seeded = await asyncio.to_thread(seeded_operators, request.graph)
            job = self._register(request)
            await self._scheduler.autoscaler.recall(job)
        except PipelineError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except CachewError as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        notices = self._note_seeds(job, seeded)
        return cachew_pb2.RegisterPipelineResponse(
            job_id=job.id,
            job_name=job.name,
            versions=self._versions,
            notices=notices,
            direct_reads=self._sees_the_cache(request),
        )

    def _check(self, request: cachew_pb2.RegisterPipelineRequest) -> None:
        check_versions(self._versions, request.client, who=f"the trainer on {request.host}")
        if len(request.graph) > self._settings.max_graph_bytes:
            raise PipelineError(
                f"the pipeline's graph is {len(request.graph)} bytes, over the service's "
                f"max_graph_bytes={self._settings.max_graph_bytes}: put data into files"
            )
        if request.cache_policy:
            parse_policy(request.cache_policy)
        if request.scaling_policy:
            parse_scaling_policy(request.scaling_policy)
        if not (math.isfinite(request.weight) and request.weight >= 0 <= request.max_workers):
            raise PipelineError(
                f"weight={request.weight!r} and max_workers={request.max_workers!r} can't be used: "
                "they are not below 0"
            )

    def _register(self, request: cachew_pb2.RegisterPipelineRequest) -> Job:
        if self._scheduler.refusing:
            raise CachewError(self._scheduler.refusing)
        job = self._scheduler.book.register(request)
        client = job.add_client(
            request.client_id, host=request.host, pid=request.pid, now=self._clock()
        )
        client.dispatcher_address = request.dispatcher_address
        client.direct = self._sees_the_cache(request)
        log.info(
            "job %s: process %d on %s came",
            job.name,
            request.pid,
            request.host,
            extra=event("trainer_came", job=job.name, fingerprint=request.fingerprint),
        )
        for reason in request.single_worker_reasons:
            job.note(f"runs on one worker: {reason}")
        return job

    def _sees_the_cache(self, request: cachew_pb2.RegisterPipelineRequest) -> bool:
        proof = self._proof
        return proof is not None and secrets.compare_digest(proof.secret, request.cache_proof)

    def _note_seeds(self, job: Job, seeded: tuple[str, ...]) -> list[str]:
        if job.seeded_known:
            return []
        job.seeded_known, job.seeded = True, seeded
        if not job.seeded or job.request.single_worker:
            return []
        return [
            f"job {job.name!r}: the seed of {', '.join(job.seeded)} is kept only in epochs that "
            "one worker serves alone; several workers draw independently, so that none repeats "
            "another's numbers"
        ]

    # Streams

    async def ConnectClient(  # noqa: N802
        self,
        request_iterator: AsyncIterator[cachew_pb2.ClientMessage],
        context: Context,
    ) -> AsyncIterator[cachew_pb2.ClientNotice]:
        client = self._find_client((await anext(request_iterator)).hello)
        if client is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, "the service does not know this client")
        client.streams += 1
        client.connected = True
        incoming = asyncio.ensure_future(self._listen_to_client(client, request_iterator))
        try:
            while not incoming.done() and not self.ending:
                client.seen_at = self._clock()
                while client.notices:
                    yield client.notices.pop(0)
                await asyncio.wait({incoming}, timeout=NOTICE_INTERVAL_S)
        finally:
            incoming.cancel()
            client.streams -= 1
            client.connected = client.streams > 0

    def _find_client(self, hello: cachew_pb2.ClientHello) -> Client | None:
        job = self._scheduler.book.jobs.get(hello.job_id)
        return job.clients.get(hello.client_id) if job else None

    async def _listen_to_client(
        self, client: Client, messages: AsyncIterator[cachew_pb2.ClientMessage]
    ) -> None:
        async for message in messages:
            client.seen_at = self._clock()
            if message.HasField("bye"):
                await self._epochs.remove_client(client, "done")
                return
            if message.HasField("metrics"):
                client.cpu_share = message.metrics.cpu_share
            for metrics in message.metrics.epochs:
                reader = client.readers.get(metrics.iterator)
                if reader is not None:
                    self._epochs.measured(reader, metrics)

    async def ConnectAgent(  # noqa: N802
        self,
        request_iterator: AsyncIterator[cachew_pb2.AgentMessage],
        context: Context,
    ) -> AsyncIterator[cachew_pb2.AgentCommand]:
        hello = (await anext(request_iterator)).hello
        try:
            check_versions(self._versions, hello.versions, who=f"the agent on {hello.host}")
        except CachewError as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        agent = self._scheduler.pool.connect(hello)
        welcome = cachew_pb2.Welcome(
            service=self._settings.name, beat_interval_s=self._settings.agent_beat_interval_s
        )
        incoming = asyncio.ensure_future(self._listen_to_agent(agent, request_iterator))
        reason = "its connection ended"
        try:
            yield cachew_pb2.AgentCommand(welcome=welcome)
            async for command in _commands_until(incoming, agent):
                yield command
            reason = incoming.result()
        finally:
            incoming.cancel()
            if self._scheduler.pool.agents.get(agent.id) is agent:
                self._scheduler.pool.disconnect(agent.id, reason)

    async def _listen_to_agent(
        self, agent: Agent, messages: AsyncIterator[cachew_pb2.AgentMessage]
    ) -> str:
        """Takes in what the agent says, until it says no more. Returns why."""
        while True:
            try:
                message = await asyncio.wait_for(anext(messages), self._settings.agent_timeout_s)
            except TimeoutError:
                return f"it was silent for {self._settings.agent_timeout_s:g} s"
            except (StopAsyncIteration, grpc.aio.AioRpcError):
                return "its connection ended"
            if message.HasField("report"):
                self._scheduler.pool.report(agent, message.report)
            elif message.HasField("profile"):
                self._scheduler.pool.profiled(agent, message.profile)
            elif message.HasField("sources"):
                self._sources.answered(message.sources)
            elif message.HasField("ignored"):
                self._epochs.errors_ignored(agent, message.ignored)
            elif message.HasField("stage") and self._scheduler.pool.watch is not None:
                self._scheduler.pool.watch.answered(agent, message.stage)
            elif message.HasField("leaving"):
                self._scheduler.pool.leave(agent)

    async def ExplainFailure(  # noqa: N802
        self, request: cachew_pb2.ExplainFailureRequest, context: Context
    ) -> cachew_pb2.FailureExplanation:
        hello = cachew_pb2.ClientHello(client_id=request.client_id, job_id=request.job_id)
        client = self._find_client(hello)
        slot = worker_of(client.job, request.error, self._scheduler.pool) if client else None
        if client is None or slot is None:
            return cachew_pb2.FailureExplanation()
        text = await explain(client.job, slot, self._sources)
        self._epochs.failed(client, text or request.error)
        if text:
            client.job.note(text)
            log.warning("job %s: %s", client.job.name, text)
        return cachew_pb2.FailureExplanation(text=text)

    # People

    async def GetStatus(  # noqa: N802
        self, request: cachew_pb2.StatusRequest, context: Context
    ) -> cachew_pb2.ServiceStatus:
        return self.status()

    def status(self) -> cachew_pb2.ServiceStatus:
        """What the service says of itself."""
        return service_status(
            self._scheduler,
            self._chooser,
            stored=self._stored.entries,
            name=self._settings.name,
            endpoint=self.endpoint,
            page=self.page,
            state="draining" if self._scheduler.refusing else "running",
            clock=self._clock,
        )

    async def ScaleJob(  # noqa: N802
        self, request: cachew_pb2.ScaleJobRequest, context: Context
    ) -> cachew_pb2.ScaleJobResponse:
        job = self._scheduler.book.named(request.job_name)
        if job is None or job.ended:
            await context.abort(
                grpc.StatusCode.NOT_FOUND, f"no job {request.job_name!r} is read now: see status"
            )
        if request.workers < 0:
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT, f"workers={request.workers} is below 0"
            )
        self._scheduler.autoscaler.set_by_hand(job, request.workers or None)
        self._scheduler.changed()
        return cachew_pb2.ScaleJobResponse()

    async def Shutdown(  # noqa: N802
        self, request: cachew_pb2.ShutdownRequest, context: Context
    ) -> cachew_pb2.ShutdownResponse:
        self._shut_down(request)
        return cachew_pb2.ShutdownResponse(pid=self._pid)


async def _commands_until(
    end: asyncio.Future[str], agent: Agent
) -> AsyncIterator[cachew_pb2.AgentCommand]:
    """The agent's commands, one after the other, until `end` is done."""
    while not end.done():
        getting = asyncio.ensure_future(agent.commands.get())
        waiting: set[asyncio.Future[Any]] = {end, getting}
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if getting.done():
            yield getting.result()
        else:
            getting.cancel()
