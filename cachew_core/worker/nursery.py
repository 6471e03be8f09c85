"""The agent's side of the spawner: children that start at once and are missed when they end."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import signal
import socket
import sys
from typing import Any

from cachew_core.errors import ServiceError
from cachew_core.worker.child import FAILED, MAX_ERROR_BYTES, ChildOrder
from cachew_core.worker.spawner import (
    MAX_MESSAGE_BYTES,
    decode,
    environment,
    kill_message,
    start_message,
)

_log = logging.getLogger(__name__)

RESTART_PAUSE_S = 2.0
"""Between two tries to import TensorFlow again; the first follows at once."""


class Child:
    """A process that serves one assignment."""

    def __init__(self, number: int, lifeline: socket.socket, spawner: _Spawner) -> None:
        loop = asyncio.get_running_loop()
        self._number = number
        self._lifeline = lifeline
        self._spawner = spawner
        self._pid: asyncio.Future[int] = loop.create_future()
        self._ended: asyncio.Future[str] = loop.create_future()

    async def pid(self) -> int:
        """Its process id.

        Raises:
            ServiceError: it could not be forked.
        """
        return await asyncio.shield(self._pid)

    async def ended(self) -> str:
        """Waits for the process's end, and says how it ended."""
        return await asyncio.shield(self._ended)

    def kill(self) -> None:
        """Ends the process at once; nothing if it has ended."""
        self._lifeline.close()
        if not self._ended.done():
            self._spawner.send(kill_message(self._number))

    def _note_started(self, pid: int) -> None:
        self._pid.set_result(pid)

    def _note_ended(self, how: str) -> None:
        words = self._last_words()
        self._lifeline.close()
        if not self._pid.done():
            self._pid.set_exception(ServiceError(how))
            # Nobody may be waiting for it.
            self._pid.exception()
        self._ended.set_result(words or how)

    def _last_words(self) -> str:
        if self._lifeline.fileno() == -1:
            return ""
        with contextlib.suppress(BlockingIOError):
            return self._lifeline.recv(MAX_ERROR_BYTES).decode(errors="replace")
        return ""


class _Spawner:
    """One spawner process and what it says about its children."""

    def __init__(self, process: asyncio.subprocess.Process, control: socket.socket) -> None:
        self._process = process
        self._control = control
        self._children: dict[int, Child] = {}
        loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[float] = loop.create_future()
        self.gone: asyncio.Future[None] = loop.create_future()
        loop.add_reader(control, self._hear)

    def start(self, number: int, order: ChildOrder) -> Child:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with theirs:
            try:
                socket.send_fds(self._control, [start_message(number, order)], [theirs.fileno()])
            except OSError:
                ours.close()
                raise
        self._children[number] = child = Child(number, ours, self)
        return child

    def send(self, packet: bytes) -> None:
        with contextlib.suppress(OSError):
            self._control.send(packet)

    async def close(self) -> None:
        """Ends the spawner and, with it, all children."""
        self._lose()
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()

    def _hear(self) -> None:
        try:
            packet = self._control.recv(MAX_MESSAGE_BYTES)
        except BlockingIOError:
            return
        except ConnectionResetError:
            packet = b""
        if packet:
            self._note(decode(packet))
        else:
            self._lose()

    def _note(self, message: dict[str, Any]) -> None:
        match message["event"]:
            case "ready":
                self.ready.set_result(message["import_s"])
            case "broken":
                self._break(message["error"])
            case "started":
                self._children[message["child"]]._note_started(message["pid"])
            case "ended":
                self._children.pop(message["child"])._note_ended(_in_words(message["code"]))

    def _break(self, error: str) -> None:
        self.ready.set_exception(
            ServiceError(
                f"this worker node can't serve: TensorFlow can't be imported ({error}); "
                "install cachew-service[tf-cpu] or cachew-service[tf] here"
            )
        )

    def _lose(self) -> None:
        if self.gone.done():
            return
        asyncio.get_running_loop().remove_reader(self._control)
        self._control.close()
        if not self.ready.done():
            self._break("the process that imports it has ended")
            self.ready.exception()
        for child in self._children.values():
            child._note_ended("the process that it was forked from has ended, and it with that")
        self._children.clear()
        self.gone.set_result(None)


class Nursery:
    """Starts children within hundredths of a second; keeps a spawner warm for them."""

    def __init__(self) -> None:
        """A nursery that has started nothing; `open` it first."""
        self._numbers = itertools.count()
        self._warm: asyncio.Task[_Spawner] | None = None
        self._keeper: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Returns once a child can be started at once.

        Raises:
            ServiceError: TensorFlow can't be imported here.
        """
        self._warm = asyncio.create_task(_warm_spawner())
        await asyncio.shield(self._warm)
        self._keeper = asyncio.create_task(self._keep(self._warm))

    async def start(self, order: ChildOrder) -> Child:
        """Forks a child.

        Raises:
            ServiceError: TensorFlow can't be imported here any more.
        """
        if self._warm is None:
            raise ServiceError("no worker can be started: this agent's nursery is not open")
        while (spawner := await asyncio.shield(self._warm)).gone.done():
            # The keeper, which is to replace it, runs in the same turn of the loop.
            await asyncio.sleep(0)
        child = spawner.start(next(self._numbers), order)
        await child.pid()
        return child

    async def close(self) -> None:
        """Ends all children and the spawner; returns when they are gone."""
        if self._keeper is not None:
            await _cancel(self._keeper)
        if self._warm is not None:
            await _cancel(self._warm)
            if not self._warm.cancelled() and self._warm.exception() is None:
                await self._warm.result().close()

    async def _keep(self, warm: asyncio.Task[_Spawner]) -> None:
        """A spawner that ended by itself (out of memory, say) took its children; have a new one."""
        while True:
            try:
                spawner = await asyncio.shield(warm)
            except ServiceError as error:
                _log.error("%s", error)
                await asyncio.sleep(RESTART_PAUSE_S)
                self._warm = warm = asyncio.create_task(_warm_spawner())
                continue
            await asyncio.shield(spawner.gone)
            _log.warning("the process that workers are forked from has ended; starting another")
            self._warm = warm = asyncio.create_task(_warm_spawner())
            await spawner.close()


async def _warm_spawner() -> _Spawner:
    spawner = await _start_spawner()
    try:
        _log.info("TensorFlow imported in %.1f s", await spawner.ready)
    except BaseException:
        await spawner.close()
        raise
    return spawner


async def _cancel(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def _start_spawner() -> _Spawner:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    with theirs:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            # The working directory is the user's, not a place to import from.
            "-P",
            "-m",
            "cachew_core.worker.spawner",
            str(theirs.fileno()),
            str(os.getpid()),
            stdin=asyncio.subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            env=environment(os.environ),
            # Out of the terminal's process group: Ctrl-C is for the agent alone.
            start_new_session=True,
        )
    return _Spawner(process, ours)


def _in_words(code: int) -> str:
    if code == -signal.SIGKILL:
        return "its process was killed by SIGKILL, as the system does when memory runs out"
    if code < 0:
        return f"its process was ended by signal {signal.Signals(-code).name}"
    if code == FAILED:
        return "its stock worker could not be started, without a word why"
    return f"its process ended by itself with exit code {code}"
