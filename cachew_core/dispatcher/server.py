"""The dispatcher process: puts the parts together, serves, and ends in order."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import grpc

from cachew_core.dispatcher.epochs import EpochService
from cachew_core.dispatcher.front import Front
from cachew_core.dispatcher.jobs import JobBook
from cachew_core.dispatcher.scheduler import Scheduler
from cachew_core.dispatcher.service import DispatcherService
from cachew_core.errors import ServiceError
from cachew_core.proto import cachew_pb2, cachew_pb2_grpc
from cachew_core.rpc import SERVER_OPTIONS
from cachew_core.settings import DispatcherSettings

log = logging.getLogger(__name__)

WATCH_INTERVAL_S = 1.0

GOODBYE_S = 2.0
"""How long trainers get to hear why their epochs end, and agents to end their workers."""


def run(settings: DispatcherSettings) -> None:
    """Serves until it is told to end, or nobody has used it for too long.

    Raises:
        ServiceError: the port can't be had.
    """
    asyncio.run(_serve(settings))


async def _serve(settings: DispatcherSettings) -> None:
    work_dir = settings.work_dir or Path(tempfile.mkdtemp(prefix="cachew-dispatcher-"))
    work_dir.mkdir(parents=True, exist_ok=True)
    try:
        dispatcher = Dispatcher(settings, work_dir)
        await dispatcher.start()
        await dispatcher.serve_until_ended()
    finally:
        if settings.work_dir is None:
            shutil.rmtree(work_dir, ignore_errors=True)


class Dispatcher:
    """One service's dispatcher.

    Args:
        settings: see there.
        work_dir: an existing folder for the stock servers' state.
    """

    def __init__(self, settings: DispatcherSettings, work_dir: Path) -> None:
        clock = time.monotonic
        self._settings = settings
        self._clock = clock
        self._end = asyncio.Event()
        self._end_reason = ""
        self._book = JobBook()
        self._scheduler = Scheduler(self._book, settings, work_dir, clock)
        self._epochs = EpochService(self._scheduler, clock)
        self._service = DispatcherService(
            settings,
            self._scheduler,
            self._epochs,
            clock=clock,
            shut_down=self._shut_down,
            pid=os.getpid(),
        )
        self._server = grpc.aio.server(options=SERVER_OPTIONS)
        self._tasks: set[asyncio.Task[None]] = set()
        self._started_at = clock()
        self._last_client_at: float | None = None

    async def start(self) -> None:
        """Listens, and writes the endpoint to its file.

        Raises:
            ServiceError: the port can't be had.
        """
        cachew_pb2_grpc.add_DispatcherServicer_to_server(self._service, self._server)
        self._server.add_generic_rpc_handlers((Front(self._book, self._epochs),))
        wanted = f"{self._settings.host}:{self._settings.port}"
        try:
            port = self._server.add_insecure_port(wanted)
        except RuntimeError as error:
            raise ServiceError(
                f"the dispatcher can't listen on {wanted}: is the port in use?"
            ) from error
        await self._server.start()
        endpoint = f"grpc://{self._settings.host}:{port}"
        self._service.endpoint = endpoint
        if self._settings.endpoint_file is not None:
            _write(self._settings.endpoint_file, endpoint)
        log.info("service %s: dispatcher serves at %s", self._settings.name, endpoint)

    async def serve_until_ended(self) -> None:
        """Returns once the service was shut down, got SIGTERM, or was idle for too long."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(
                number, self._shut_down, cachew_pb2.ShutdownRequest(reason=number.name)
            )
        watch = self._spawn(self._watch())
        await self._end.wait()
        watch.cancel()
        await self._say_goodbye()
        await self._scheduler.stop()
        await self._server.stop(grace=0.5)
        log.info("service %s ended: %s", self._settings.name, self._end_reason)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # The end

    def _shut_down(self, request: cachew_pb2.ShutdownRequest) -> None:
        reason = request.reason or "it was taken down"
        self._end_reason = self._end_reason or reason
        self._scheduler.refusing = f"service {self._settings.name!r} is going down: {reason}"
        log.info(
            "%s%s", self._scheduler.refusing, "; open epochs may end first" if request.drain else ""
        )
        if request.drain:
            self._spawn(self._end_when_quiet())
        else:
            self._end.set()

    async def _end_when_quiet(self) -> None:
        while any(job.live_epochs() for job in self._book.jobs.values()):
            await asyncio.sleep(0.1)
        self._end.set()

    async def _say_goodbye(self) -> None:
        """Trainers hear why their epochs end; then agents end their workers."""
        self._epochs.fail_all(f"service {self._settings.name!r} was taken down: {self._end_reason}")
        await _poll(
            lambda: all(reader.told_of_end for reader in self._epochs.readers.values()), GOODBYE_S
        )
        for agent in self._scheduler.pool.agents.values():
            command = cachew_pb2.AgentShutdown(reason=self._end_reason)
            agent.commands.put_nowait(cachew_pb2.AgentCommand(shutdown=command))
        await _poll(lambda: not self._scheduler.pool.agents, GOODBYE_S)

    # What needs a clock

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(WATCH_INTERVAL_S)
            await self._remove_silent_clients()
            self._end_if_idle()

    async def _remove_silent_clients(self) -> None:
        now = self._clock()
        for job in list(self._book.jobs.values()):
            for client in list(job.clients.values()):
                if now - client.seen_at > self._settings.client_timeout_s:
                    await self._epochs.remove_client(
                        client, f"it was silent for {self._settings.client_timeout_s:g} s"
                    )

    def _end_if_idle(self) -> None:
        now = self._clock()
        if any(job.clients for job in self._book.jobs.values()):
            self._last_client_at = now
            return
        if self._last_client_at is None:
            idle_since, limit_s, what = (
                self._started_at,
                self._settings.first_client_timeout_s,
                "no client came",
            )
        else:
            idle_since, limit_s, what = (
                self._last_client_at,
                self._settings.idle_timeout_s,
                "no client",
            )
        if now - idle_since > limit_s:
            self._shut_down(cachew_pb2.ShutdownRequest(reason=f"{what} for {limit_s:g} s"))


async def _poll(condition: Callable[[], bool], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition() and time.monotonic() < deadline:
        await asyncio.sleep(0.02)


def _write(path: Path, text: str) -> None:
    """Writes so that a reader sees all of it or none."""
    draft = path.with_name(path.name + ".tmp")
    with contextlib.suppress(FileNotFoundError):
        draft.unlink()
    draft.write_text(text + "\n")
    draft.replace(path)
