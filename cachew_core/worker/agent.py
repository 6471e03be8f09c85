"""The process on a worker node: offers slots to a dispatcher and runs what it assigns to them.

It never imports TensorFlow; that is in the spawner and in the children. It says hello only when a
child can be started at once, so an assignment serves within a second.

On SIGTERM the agent tells the dispatcher, which then drains or releases each assignment; the agent
alone can't know whether another worker is left to take the splits, and draining the last one would
end the epoch early without a word.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import secrets
import signal
import socket
from collections.abc import Coroutine, Iterator
from typing import Any

from cachew_core.errors import SettingsError
from cachew_core.forkserver.nursery import Nursery
from cachew_core.ports import PortPool, parse_port_range
from cachew_core.proto import cachew_pb2
from cachew_core.rpc import address_of, own_versions
from cachew_core.settings import AgentSettings
from cachew_core.worker.link import DispatcherLink
from cachew_core.worker.looking import looked_at
from cachew_core.worker.measuring import measured
from cachew_core.worker.memory import MemoryLimit
from cachew_core.worker.slot import Assignment, Report, WorkerNode
from cachew_core.worker.staging import Stages

_log = logging.getLogger(__name__)

LAST_WORD_S = 1.0
"""How long an agent that ends waits for the dispatcher to have heard its last reports."""


def run(settings: AgentSettings) -> None:
    """Serves as an agent until it is told or forced to end; returns when nothing of it is left.

    Call it in the main thread: it answers SIGTERM and SIGINT.

    Raises:
        SettingsError: no dispatcher is named, or a setting can't be used.
        ServiceUnavailableError: the dispatcher can't be reached, or was away for too long.
        VersionMismatchError: dispatcher and agent would not understand each other.
        ServiceError: TensorFlow can't be imported here, or the dispatcher refuses this agent.
    """
    if not settings.dispatcher:
        raise SettingsError(
            "setting dispatcher is empty: give the agent its dispatcher as grpc://host:port "
            "(--dispatcher or CACHEW_DISPATCHER)"
        )
    _raise_descriptor_limit()
    asyncio.run(Agent(settings).run())


class Agent:
    """Connects slots to a dispatcher."""

    def __init__(self, settings: AgentSettings) -> None:
        """An agent that has started nothing.

        Raises:
            SettingsError: the dispatcher's endpoint or the range of ports can't be used.
        """
        self._settings = settings
        self._id = f"{socket.gethostname()}-{secrets.token_hex(3)}"
        self._assignments: dict[str, Assignment] = {}
        self._lives: set[asyncio.Task[None]] = set()
        self._measurements: dict[str, asyncio.Task[None]] = {}
        self._background: set[asyncio.Task[None]] = set()
        self._leaving = False
        self._over = asyncio.Event()
        self._link = DispatcherLink(
            address_of(settings.dispatcher),
            deadline_s=settings.dispatcher_deadline_s,
            greet=self._greet,
            obey=self._obey,
        )
        self._nursery = Nursery()
        self._stages = Stages()
        ports = parse_port_range(settings.port_range) if settings.port_range else None
        self._node = WorkerNode(
            host=f"[{settings.host}]" if ":" in settings.host else settings.host,
            nursery=self._nursery,
            ports=PortPool(settings.port_rest_s, ports=ports),
            tell=self._tell,
            tell_ignored=self._tell_ignored,
            prepare=self._stages.do_first,
            memory=_memory_limit(settings),
        )

    async def run(self) -> None:
        """See `run`."""
        loop = asyncio.get_running_loop()
        for name in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(name, self._leave)
        serving = asyncio.create_task(self._serve())
        over = asyncio.create_task(self._over.wait())
        try:
            await asyncio.wait((serving, over), return_when=asyncio.FIRST_COMPLETED)
            await self._end_assignments()
            if self._link.finish():
                await asyncio.wait((serving,), timeout=LAST_WORD_S)
            if serving.done():
                serving.result()
        finally:
            await _cancel(serving, over)
            await self._end_assignments()
            await self._nursery.close()
            self._node.ports.close()

    async def _serve(self) -> None:
        # Together: where both are started at the same time, each imports TensorFlow for seconds.
        await asyncio.gather(self._link.check_service(), self._nursery.open())
        await self._link.run()

    async def _end_assignments(self) -> None:
        self._stages.end()
        await _cancel(*self._lives, *self._measurements.values(), *self._background)

    def _greet(self) -> Iterator[cachew_pb2.AgentMessage]:
        hello = cachew_pb2.AgentHello(
            versions=own_versions(),
            agent_id=self._id,
            host=self._settings.host,
            pid=os.getpid(),
            slots=self._settings.slots,
        )
        yield cachew_pb2.AgentMessage(hello=hello)
        for assignment in self._assignments.values():
            yield cachew_pb2.AgentMessage(report=assignment.report)
        if self._leaving:
            yield self._leaving_message()

    def _leaving_message(self) -> cachew_pb2.AgentMessage:
        leaving = cachew_pb2.AgentLeaving(grace_s=self._settings.grace_s)
        return cachew_pb2.AgentMessage(leaving=leaving)

    def _tell(self, report: cachew_pb2.AssignmentReport) -> None:
        if report.state == Report.ENDED:
            self._assignments.pop(report.assignment_id, None)
        self._link.send(cachew_pb2.AgentMessage(report=report))

    def _tell_ignored(self, ignored: cachew_pb2.IgnoredErrors) -> None:
        self._link.send(cachew_pb2.AgentMessage(ignored=ignored))

    # Commands

    def _obey(self, command: cachew_pb2.AgentCommand) -> None:
        match command.WhichOneof("command"):
            case "assign":
                self._assign(command.assign)
            case "drain":
                self._drain(command.drain.assignment_id)
            case "release":
                self._release(command.release.assignment_id)
            case "profile":
                self._measure(command.profile)
            case "sources":
                self._in_background(self._look(command.sources))
            case "stage":
                self._in_background(self._staged(command.stage))
            case "shutdown":
                _log.info("the dispatcher ends this agent: %s", command.shutdown.reason)
                self._over.set()
            case unknown:
                _log.warning("the dispatcher sent a command that is not known here: %s", unknown)

    def _assign(self, command: cachew_pb2.Assign) -> None:
        known = self._assignments.get(command.assignment_id)
        if known is not None:
            self._tell(known.report)
            return
        refusal = self._why_not(command)
        if refusal:
            self._tell_ended(command.assignment_id, Report.FAILED, refusal, slot=command.slot)
            return
        assignment = Assignment(command, self._node)
        self._assignments[command.assignment_id] = assignment
        life = asyncio.create_task(assignment.run())
        self._lives.add(life)
        life.add_done_callback(self._bury)

    def _why_not(self, command: cachew_pb2.Assign) -> str:
        if self._leaving:
            return "the agent is leaving"
        if not 0 <= command.slot < self._settings.slots:
            return f"the agent has no slot {command.slot}: it has {self._settings.slots}"
        for assignment in self._assignments.values():
            if assignment.report.slot == command.slot:
                return f"slot {command.slot} is busy with {assignment.report.assignment_id}"
        return ""

    def _drain(self, assignment_id: str) -> None:
        if assignment_id in self._assignments:
            self._assignments[assignment_id].drain()
        else:
            self._tell_ended(assignment_id, Report.FAILED, "the agent holds no such assignment")

    def _release(self, assignment_id: str) -> None:
        if assignment_id in self._assignments:
            self._assignments[assignment_id].release()
        else:
            self._tell_ended(assignment_id, Report.RELEASED, "")

    def _measure(self, command: cachew_pb2.Profile) -> None:
        if command.profile_id not in self._measurements:
            self._measurements[command.profile_id] = asyncio.create_task(self._measured(command))

    async def _measured(self, command: cachew_pb2.Profile) -> None:
        try:
            result = await measured(command, self._nursery)
            # One that did not arrive is of no use any more: the dispatcher has given it up.
            self._link.send(cachew_pb2.AgentMessage(profile=result))
        finally:
            del self._measurements[command.profile_id]

    async def _look(self, command: cachew_pb2.SeeSources) -> None:
        seen = await looked_at(command, self._nursery)
        self._link.send(cachew_pb2.AgentMessage(sources=seen))

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _staged(self, order: cachew_pb2.StageOrder) -> None:
        result = await self._stages.do(order)
        if result.error:
            _log.warning("%s", result.error)
        # One that did not arrive is asked for again: the dispatcher lost this agent meanwhile.
        self._link.send(cachew_pb2.AgentMessage(stage=result))

    def _tell_ended(
        self, assignment_id: str, end: Report.End, error: str, *, slot: int = 0
    ) -> None:
        self._tell(
            Report(assignment_id=assignment_id, slot=slot, state=Report.ENDED, end=end, error=error)
        )

    def _bury(self, life: asyncio.Task[None]) -> None:
        self._lives.discard(life)
        if self._leaving and not self._lives:
            self._over.set()

    # The end

    def _leave(self) -> None:
        """A first signal asks for an end in order, a second one for an end."""
        if self._leaving or not self._lives:
            self._over.set()
            return
        self._leaving = True
        _log.info("leaving within %g s, with %d workers", self._settings.grace_s, len(self._lives))
        self._link.send(self._leaving_message())
        asyncio.get_running_loop().call_later(self._settings.grace_s, self._over.set)


async def _cancel(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _raise_descriptor_limit() -> None:
    """Ports that rest and readers of many files need more than the usual 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _memory_limit(settings: AgentSettings) -> MemoryLimit | None:
    if settings.worker_memory_bytes is None:
        return None
    return MemoryLimit(
        held_bytes=settings.worker_memory_bytes, after_s=settings.worker_memory_after_s
    )
