"""The maker's side of a spawner: children that start at once and are missed when they end."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import signal
import socket
import sys
from collections.abc import Sequence
from typing import Any, Protocol

from cachew_core.errors import ServiceError
from cachew_core.forkserver import spawner
from cachew_core.forkserver.child import FAILED, MAX_ERROR_BYTES
from cachew_core.forkserver.spawner import (
    MAX_MESSAGE_BYTES,
    Order,
    decode,
    environment,
    kill_message,
    start_message,
)

_log = logging.getLogger(__name__)

RESTART_PAUSE_S = 2.0
"""Between two tries to import TensorFlow again; the first follows at once."""


class Child:
    """A process that carries out one order."""

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


class _Process(Protocol):
    """A spawner's process; `asyncio.subprocess.Process` is one."""

    def kill(self) -> None:
        """Ends it at once; raises ProcessLookupError if it has ended."""

    async def wait(self) -> int:
        """Waits for its end."""


class ForkedSpawner:
    """A spawner that this process forks from itself: it has TensorFlow, and has it once.

    To be made before the process has a second thread.
    """

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        maker = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            # Nothing may unwind into what this process is a copy of.
            try:
                ours.close()
                os.setsid()
                spawner.main(theirs.detach(), maker)
            finally:
                os._exit(0)
        theirs.close()
        ours.setblocking(False)
        self.control = ours

    def kill(self) -> None:
        """Ends it at once."""
        os.kill(self._pid, signal.SIGKILL)

    async def wait(self) -> int:
        """Waits for its end."""
        _, status = await asyncio.to_thread(os.waitpid, self._pid, 0)
        return os.waitstatus_to_exitcode(status)


class _Spawner:
    """One spawner process and what it says about its children."""

    def __init__(self, process: _Process, control: socket.socket) -> None:
        self._process = process
        self._control = control
        self._children: dict[int, Child] = {}
        loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[float] = loop.create_future()
        self.gone: asyncio.Future[None] = loop.create_future()
        loop.add_reader(control, self._hear)

    def start(self, number: int, order: Order, files: Sequence[int]) -> Child:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with theirs:
            try:
                message = start_message(number, order)
                socket.send_fds(self._control, [message], [theirs.fileno(), *files])
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
        with contextlib.suppress(ProcessLookupError):
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
                f"this machine can't serve: TensorFlow can't be imported ({error}); "
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

    def __init__(self, forked: ForkedSpawner | None = None) -> None:
        """A nursery that has started nothing; `open` it first.

        Args:
            forked: its first spawner. Default: it starts one.
        """
        self._forked = forked
        self._numbers = itertools.count()
        self._warm: asyncio.Task[_Spawner] | None = None
        self._keeper: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Returns once a child can be started at once.

        Raises:
            ServiceError: TensorFlow can't be imported here.
        """
        forked = self._forked
        first = _Spawner(forked, forked.control) if forked is not None else None
        self._warm = asyncio.create_task(_warm_spawner(first))
        await asyncio.shield(self._warm)
        self._keeper = asyncio.create_task(self._keep(self._warm))

    async def start(self, order: Order, files: Sequence[int] = ()) -> Child:
        """Forks a child.

        Args:
            order: what it is for.
            files: descriptors that it gets copies of.

        Raises:
            ServiceError: TensorFlow can't be imported here any more.
        """
        if self._warm is None:
            raise ServiceError("no process can be started: this nursery is not open")
        while (warm := await asyncio.shield(self._warm)).gone.done():
            # The keeper, which is to replace it, runs in the same turn of the loop.
            await asyncio.sleep(0)
        child = warm.start(next(self._numbers), order, files)
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
                former = await asyncio.shield(warm)
            except ServiceError as error:
                _log.error("%s", error)
                await asyncio.sleep(RESTART_PAUSE_S)
                self._warm = warm = asyncio.create_task(_warm_spawner())
                continue
            await asyncio.shield(former.gone)
            _log.warning("the process that others are forked from has ended; starting another")
            self._warm = warm = asyncio.create_task(_warm_spawner())
            await former.close()


async def _warm_spawner(started: _Spawner | None = None) -> _Spawner:
    warm = started or await _start_spawner()
    try:
        import_s = await warm.ready
    except BaseException:
        await warm.close()
        raise
    if started is None:
        _log.info("TensorFlow imported in %.1f s", import_s)
    return warm


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
            "cachew_core.forkserver.spawner",
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
        return "it could not do its work, without a word why"
    return f"its process ended by itself with exit code {code}"
