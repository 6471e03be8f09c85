"""Our own gRPC API: registration, the streams of clients and agents, status, shutdown."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc

from cachew_core.dispatcher.epochs import EpochService
from cachew_core.dispatcher.jobs import Client, Job
from cachew_core.dispatcher.pool import Agent
from cachew_core.dispatcher.scheduler import Scheduler
from cachew_core.dispatcher.status import service_status
from cachew_core.errors import CachewError, PipelineError
from cachew_core.pipeline.variants import seeded_operators
from cachew_core.proto import cachew_pb2, cachew_pb2_grpc
from cachew_core.rpc import check_versions, own_versions
from cachew_core.settings import DispatcherSettings

log = logging.getLogger(__name__)

Context = grpc.aio.ServicerContext[Any, Any]

NOTICE_INTERVAL_S = 0.2


class DispatcherService(cachew_pb2_grpc.DispatcherServicer):
    """Serves `cachew.v1.Dispatcher`.

    Args:
        shut_down: begins the end of the service; returns at once.
    """

    def __init__(
        self,
        settings: DispatcherSettings,
        scheduler: Scheduler,
        epochs: EpochService,
        *,
        clock: Callable[[], float],
        shut_down: Callable[[cachew_pb2.ShutdownRequest], None],
        pid: int,
    ) -> None:
        self.endpoint = ""
        self._settings = settings
        self._scheduler = scheduler
        self._epochs = epochs
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
        )

    async def RegisterPipeline(  # noqa: N802
        self, request: cachew_pb2.RegisterPipelineRequest, context: Context
    ) -> cachew_pb2.RegisterPipelineResponse:
        try:
            job = self._register(request)
        except PipelineError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except CachewError as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        notices = await self._look_at_seeds(job)
        return cachew_pb2.RegisterPipelineResponse(
            job_id=job.id, job_name=job.name, versions=self._versions, notices=notices
        )

    def _register(self, request: cachew_pb2.RegisterPipelineRequest) -> Job:
        check_versions(self._versions, request.client, who=f"the trainer on {request.host}")
        if self._scheduler.refusing:
            raise CachewError(self._scheduler.refusing)
        if len(request.graph) > self._settings.max_graph_bytes:
            raise PipelineError(
                f"the pipeline's graph is {len(request.graph)} bytes, over the service's "
                f"max_graph_bytes={self._settings.max_graph_bytes}: put data into files"
            )
        job = self._scheduler.book.register(request)
        job.add_client(request.client_id, host=request.host, pid=request.pid, now=self._clock())
        for reason in request.single_worker_reasons:
            job.note(f"runs on one worker: {reason}")
        return job

    async def _look_at_seeds(self, job: Job) -> list[str]:
        if job.seeded_known:
            return []
        job.seeded_known = True
        job.seeded = await asyncio.to_thread(seeded_operators, job.request.graph)
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
            while not incoming.done():
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
            elif message.HasField("leaving"):
                self._scheduler.pool.leave(agent)

    # People

    async def GetStatus(  # noqa: N802
        self, request: cachew_pb2.StatusRequest, context: Context
    ) -> cachew_pb2.ServiceStatus:
        return service_status(
            self._scheduler,
            name=self._settings.name,
            endpoint=self.endpoint,
            state="draining" if self._scheduler.refusing else "running",
            clock=self._clock,
        )

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
