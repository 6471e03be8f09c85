"""Stock `DispatchServer`s, each in a process of its own that is forked when one may be wanted.

In our own process they would stop it: stock's `stop` keeps Python's lock until every connection has
ended, and one that says nothing takes 20 s (TensorFlow 2.21). A crash in one would end all jobs.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import grpc

from cachew_core.errors import ServiceError
from cachew_core.forkserver.child import DispatchOrder
from cachew_core.forkserver.nursery import Child, Nursery
from cachew_core.ports import PortPool, Reservation
from cachew_core.rpc import STOCK_CHANNEL_OPTIONS

log = logging.getLogger(__name__)

DISPATCHER_SERVICE = "/tensorflow.data.DispatcherService/"

STOCK_ANSWER_S = 60.0
"""The stock server has an answer at once; a busy machine may take seconds to deliver it."""

JOB_GC_MS = 1_000
"""An epoch that its readers left ends on the workers within about twice this time."""

RETRY_S = 1.0
"""Between two tries to start a server."""

_WAITING_FOR_IT = (
    ("grpc.initial_reconnect_backoff_ms", 20),
    ("grpc.min_reconnect_backoff_ms", 20),
    ("grpc.max_reconnect_backoff_ms", 200),
)
"""It listens some hundredths of a second after its process was forked."""


class StockServer:
    """One stock server that serves.

    Attributes:
        address: `host:port`.
        on_end: called if it ends by itself, with how it ended.
    """

    def __init__(
        self,
        address: str,
        child: Child,
        channel: grpc.aio.Channel,
        reservation: Reservation,
        work_dir: Path,
    ) -> None:
        self.address = address
        self.on_end: Callable[[str], None] | None = None
        self._child: Child | None = child
        self._channel = channel
        self._reservation = reservation
        self._work_dir = work_dir
        self._watch = asyncio.ensure_future(self._miss(child))

    async def call(self, method: str, request: bytes) -> bytes:
        """One call, as bytes.

        Raises:
            ServiceError: the server was stopped before or while it answered.
            grpc.aio.AioRpcError: it refused, or did not answer within `STOCK_ANSWER_S`.
        """
        call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = self._channel.unary_unary(
            DISPATCHER_SERVICE + method
        )
        try:
            return await call(request, timeout=STOCK_ANSWER_S)
        except (asyncio.CancelledError, grpc.aio.UsageError) as error:
            # A closed channel cancels its calls. Passed on, that would end our caller's handler
            # without an answer, and a trainer would wait for it for ever.
            if self._child is not None:
                raise
            raise ServiceError("its stock server was stopped") from error

    async def stop(self) -> None:
        """Ends it and removes its work dir; its port rests."""
        child, self._child = self._child, None
        if child is None:
            return
        self._watch.cancel()
        await self._channel.close()
        child.kill()
        await child.ended()
        self._reservation.release()
        await asyncio.to_thread(shutil.rmtree, self._work_dir, ignore_errors=True)

    async def _miss(self, child: Child) -> None:
        how = await child.ended()
        if self.on_end is not None:
            self.on_end(how)


class StockServers:
    """Keeps one stock server ready, so that a job need not wait for it.

    Args:
        nursery: what servers are forked from.
        host: of this machine, by which workers reach them.
        work_dir: they keep their state in folders of it.
        client_timeout_s: a reader silent for so long is dropped.

    Attributes:
        on_ready: called when there is a server to take.
    """

    def __init__(
        self, nursery: Nursery, host: str, work_dir: Path, client_timeout_s: float
    ) -> None:
        self.on_ready: Callable[[], None] = lambda: None
        self._nursery = nursery
        self._host = host
        self._work_dir = work_dir
        self._client_timeout_s = client_timeout_s
        self._ports = PortPool(rest_s=600)
        self._numbers = itertools.count(1)
        self._ready: StockServer | None = None
        self._starting: asyncio.Task[None] | None = None

    def open(self) -> None:
        """Begins to start the first one."""
        if self._starting is None or self._starting.done():
            self._starting = asyncio.ensure_future(self._have_one_ready())

    def take(self) -> StockServer | None:
        """A server of one's own; None: there is none yet, and `on_ready` will tell."""
        server, self._ready = self._ready, None
        self.open()
        return server

    async def close(self) -> None:
        """Ends the one that nobody took, and gives the ports back."""
        if self._starting is not None:
            self._starting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._starting
        if self._ready is not None:
            await self._ready.stop()
        self._ports.close()

    async def _have_one_ready(self) -> None:
        while self._ready is None:
            try:
                self._ready = await self._started()
            except ServiceError as error:
                log.warning("a stock server can't be started: %s", error)
                await asyncio.sleep(RETRY_S)
        self._ready.on_end = self._replace
        self.on_ready()

    def _replace(self, how: str) -> None:
        log.warning("a stock server that nobody used yet ended: %s", how)
        server, self._ready = self._ready, None
        if server is not None:
            ending = asyncio.ensure_future(server.stop())
            ending.add_done_callback(lambda _: self.open())

    async def _started(self) -> StockServer:
        work_dir = self._work_dir / f"stock-{next(self._numbers)}"
        work_dir.mkdir(parents=True)
        reservation = self._ports.reserve()
        order = DispatchOrder(
            port=reservation.port,
            work_dir=str(work_dir),
            client_timeout_ms=int(self._client_timeout_s * 1000),
            job_gc_ms=JOB_GC_MS,
        )
        options = (*STOCK_CHANNEL_OPTIONS, *_WAITING_FOR_IT)
        address = f"{self._host}:{reservation.port}"
        channel = grpc.aio.insecure_channel(address, options=options)
        server: StockServer | None = None
        try:
            child = await self._nursery.start(order)
            server = StockServer(address, child, channel, reservation, work_dir)
            await _until_serving(channel, child)
        except BaseException:
            await _undo(server, channel, reservation, work_dir)
            raise
        return server


async def _until_serving(channel: grpc.aio.Channel, child: Child) -> None:
    serves = asyncio.ensure_future(channel.channel_ready())
    ends = asyncio.ensure_future(child.ended())
    try:
        await asyncio.wait({serves, ends}, return_when=asyncio.FIRST_COMPLETED)
        if ends.done():
            raise ServiceError(ends.result())
    finally:
        serves.cancel()
        ends.cancel()


async def _undo(
    server: StockServer | None, channel: grpc.aio.Channel, reservation: Reservation, work_dir: Path
) -> None:
    if server is not None:
        await server.stop()
        return
    await channel.close()
    reservation.release()
    shutil.rmtree(work_dir, ignore_errors=True)
