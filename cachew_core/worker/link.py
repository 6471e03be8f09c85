"""The agent's connection to its dispatcher, which heals: reports and beats up, commands down."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

import grpc
import grpc.aio

from cachew_core.errors import ServiceError, ServiceUnavailableError
from cachew_core.proto import cachew_pb2, cachew_pb2_grpc
from cachew_core.rpc import CHANNEL_OPTIONS, check_versions, own_versions

_Outgoing: TypeAlias = asyncio.Queue[cachew_pb2.AgentMessage | None]
"""None is the last: nothing more will be said."""

if TYPE_CHECKING:
    # The generated stubs are untyped.
    _Stub: TypeAlias = Any
    _Call: TypeAlias = grpc.aio.StreamStreamCall[cachew_pb2.AgentMessage, cachew_pb2.AgentCommand]

_log = logging.getLogger(__name__)

INFO_TIMEOUT_S = 5.0
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 2.0

_HOPELESS = (
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNAUTHENTICATED,
)
"""Answers that a second try will not change."""


class DispatcherLink:
    """Keeps one agent in touch with its dispatcher."""

    def __init__(
        self,
        address: str,
        *,
        deadline_s: float,
        greet: Callable[[], Iterable[cachew_pb2.AgentMessage]],
        obey: Callable[[cachew_pb2.AgentCommand], None],
    ) -> None:
        """A link that is not connected; `run` connects it.

        Args:
            address: `host:port` of the dispatcher.
            deadline_s: how long to go on without it.
            greet: the messages that begin each connection.
            obey: called with each command but the welcome.
        """
        self._address = address
        self._deadline_s = deadline_s
        self._greet = greet
        self._obey = obey
        self._outgoing: _Outgoing | None = None
        self._missed: list[cachew_pb2.AgentMessage] = []
        self._last_heard_s = time.monotonic()
        self._pause_s = FIRST_PAUSE_S
        self._complained = False
        self._finishing = False
        self._known = False

    def send(self, message: cachew_pb2.AgentMessage) -> None:
        """Sends at once, or, where it can't and the next greeting will not say it, after that."""
        if self._outgoing is not None:
            self._outgoing.put_nowait(message)
        elif message.report.state == cachew_pb2.AssignmentReport.ENDED:
            self._missed.append(message)

    async def check_service(self) -> None:
        """Returns when the dispatcher has answered, and may be talked to.

        Raises:
            ServiceUnavailableError: it does not answer within the deadline.
            VersionMismatchError: it would not be understood.
            ServiceError: what answers is no dispatcher.
        """
        await self._insist(self._ask_versions)

    def finish(self) -> bool:
        """Says the last word; `run` returns when the dispatcher has heard it.

        Returns:
            Whether it is connected, so that this may be worth waiting for.
        """
        self._finishing = True
        if self._outgoing is None:
            return False
        self._outgoing.put_nowait(None)
        return True

    async def run(self) -> None:
        """Stays connected until `finish`.

        Raises:
            ServiceUnavailableError: the dispatcher was away for the deadline.
            VersionMismatchError: it came back in a version that would not be understood.
            ServiceError: it refuses this agent.
        """
        while not self._finishing:
            await self._insist(self._converse)
            if not self._finishing:
                await self._pause()

    async def _insist(self, attempt: Callable[[_Stub], Coroutine[Any, Any, None]]) -> None:
        """Makes attempts until one succeeds, with pauses."""
        while True:
            async with grpc.aio.insecure_channel(self._address, options=CHANNEL_OPTIONS) as channel:
                try:
                    stub = cachew_pb2_grpc.DispatcherStub(channel)
                    await attempt(stub)
                    return
                except grpc.aio.AioRpcError as error:
                    self._judge(error)
            await self._pause()

    async def _pause(self) -> None:
        # Many agents that lost one dispatcher should not come back in step.
        await asyncio.sleep(self._pause_s * random.uniform(0.5, 1.0))
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)

    def _judge(self, error: grpc.aio.AioRpcError) -> None:
        # A dispatcher that is about to end says UNIMPLEMENTED, too; the next one may be back soon.
        unknown = error.code() is grpc.StatusCode.UNIMPLEMENTED and not self._known
        if unknown or error.code() in _HOPELESS:
            raise ServiceError(
                f"grpc://{self._address} does not take this agent: {error.details()} "
                f"({error.code().name})" + ("; is it a Cachew dispatcher?" if unknown else "")
            )
        away_s = time.monotonic() - self._last_heard_s
        # Once for each absence: an agent that starts together with its dispatcher tries many times.
        level = logging.DEBUG if self._complained else logging.WARNING
        _log.log(
            level,
            "the dispatcher at grpc://%s can't be reached: %s",
            self._address,
            error.details(),
        )
        self._complained = True
        if away_s >= self._deadline_s:
            raise ServiceUnavailableError(
                f"the dispatcher at grpc://{self._address} could not be reached for {away_s:.0f} s "
                f"({error.details()}): this agent ends"
            )

    async def _ask_versions(self, stub: _Stub) -> None:
        own = own_versions()
        request = cachew_pb2.ServiceInfoRequest(client=own)
        info = await stub.GetServiceInfo(request, timeout=INFO_TIMEOUT_S)
        check_versions(own, info.versions, who=f"the service at grpc://{self._address}")
        self._known = True
        self._heard()

    async def _converse(self, stub: _Stub) -> None:
        await self._ask_versions(stub)
        call = stub.ConnectAgent()
        outgoing: _Outgoing = asyncio.Queue()
        self._outgoing = outgoing
        for message in (*self._greet(), *self._missed):
            outgoing.put_nowait(message)
        self._missed.clear()
        writer = asyncio.create_task(_write(call, outgoing))
        beats: asyncio.Task[None] | None = None
        try:
            async for command in call:
                self._heard()
                if command.HasField("welcome"):
                    _log.info("connected to service %s", command.welcome.service)
                    beats = beats or asyncio.create_task(
                        self._beat(command.welcome.beat_interval_s)
                    )
                else:
                    self._obey(command)
            if not self._finishing:
                _log.warning("the dispatcher at grpc://%s hung up", self._address)
        finally:
            self._last_heard_s = time.monotonic()
            self._hang_up(outgoing)
            await _stop(writer, beats)
            call.cancel()

    def _hang_up(self, unsent: _Outgoing) -> None:
        self._outgoing = None
        while not unsent.empty():
            message = unsent.get_nowait()
            if message is not None:
                self.send(message)

    def _heard(self) -> None:
        self._complained = False
        self._last_heard_s = time.monotonic()
        self._pause_s = FIRST_PAUSE_S

    async def _beat(self, interval_s: float) -> None:
        while True:
            await asyncio.sleep(interval_s)
            self.send(cachew_pb2.AgentMessage(beat=cachew_pb2.AgentBeat()))


async def _write(call: _Call, outgoing: _Outgoing) -> None:
    # A broken connection shows, with its cause, where the commands are read.
    with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
        while (message := await outgoing.get()) is not None:
            await call.write(message)
        await call.done_writing()


async def _stop(*tasks: asyncio.Task[None] | None) -> None:
    running = [task for task in tasks if task is not None]
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
