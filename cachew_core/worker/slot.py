"""The life of one assignment: a port, a gate and a fresh child, from its start to its end.

STARTING -> SERVING -> DRAINING -> ENDED; each state may also go to ENDED at once, and an assignment
may be drained before it serves. A child and its port are never used for a second assignment: stock
dispatchers number their tasks alike, so a late reader would get another job's elements.
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from cachew_core.errors import CachewError
from cachew_core.forkserver.child import WorkerOrder
from cachew_core.forkserver.nursery import Child, Nursery
from cachew_core.ports import PortPool
from cachew_core.proto import cachew_pb2
from cachew_core.worker.child_log import ChildLog
from cachew_core.worker.gate import Gate
from cachew_core.worker.memory import MemoryLimit

_log = logging.getLogger(__name__)

Report = cachew_pb2.AssignmentReport

SERVE_DEADLINE_S = 20.0
"""A child that is not registered after so long never will be; usual are some hundredths."""

HEARTBEAT_INTERVAL_MS = 500
"""Of the stock worker. A drain takes two; each costs the agent 1 to 2 ms of its processor."""

LINGER_S = 1.0
"""A drained child lives on for so long: several readers may share its tasks, and only the first to
see the end says so; the others' answers may be on their way."""


class _Event(enum.Enum):
    SERVING = enum.auto()
    LATE = enum.auto()
    DRAIN = enum.auto()
    DRAINED = enum.auto()
    RELEASE = enum.auto()
    CHILD_ENDED = enum.auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerNode:
    """What the assignments of one agent share."""

    host: str
    """The address at which trainers reach this node."""
    nursery: Nursery
    ports: PortPool
    tell: Callable[[cachew_pb2.AssignmentReport], None]
    """Gets a report at each change of state."""
    tell_ignored: Callable[[cachew_pb2.IgnoredErrors], None]
    """Gets what a pipeline's own `ignore_errors` swallowed."""
    prepare: Callable[[Sequence[cachew_pb2.StageOrder]], Awaitable[None]]
    """Does on this node's disk what a worker needs; raises `CacheError` if it can't."""
    memory: MemoryLimit | None = None
    """Of each worker; None: there is none."""


class Assignment:
    """One job's worker in one slot."""

    def __init__(self, command: cachew_pb2.Assign, node: WorkerNode) -> None:
        """An assignment that has not begun; `run` is its life."""
        self._command = command
        self._node = node
        self._events: asyncio.Queue[_Event] = asyncio.Queue()
        self._released = asyncio.Event()
        self._served = False
        self._how_child_ended = ""
        self._splits: Counter[tuple[int, int, int]] = Counter()
        self._report = Report(
            assignment_id=command.assignment_id, slot=command.slot, state=Report.STARTING
        )

    @property
    def report(self) -> cachew_pb2.AssignmentReport:
        """How it stands."""
        return self._report

    @property
    def ended(self) -> bool:
        """Whether its slot is free. What is left of it may still linger."""
        return bool(self._report.state == Report.ENDED)

    def drain(self) -> None:
        """Takes no more splits; ends once readers have all that it holds."""
        self._events.put_nowait(_Event.DRAIN)

    def release(self) -> None:
        """Ends at once."""
        self._released.set()
        self._events.put_nowait(_Event.RELEASE)

    async def run(self) -> None:
        """Lives, reports, and returns when nothing is left of it but its port's rest."""
        async with AsyncExitStack() as belongings:
            end, error = await self._live_safely(belongings)
            if end == Report.DRAINED:
                self._enter(Report.ENDED, end=end)
                await self._linger()
        if not self.ended:
            # The dispatcher may rely on it: what was reported as ended serves nobody any more.
            self._enter(Report.ENDED, end=end, error=error)

    async def _live_safely(self, belongings: AsyncExitStack) -> tuple[Report.End, str]:
        try:
            if not await self._prepare():
                return Report.RELEASED, ""
            await self._start(belongings)
            return await self._live()
        except (CachewError, OSError) as error:
            return Report.FAILED, f"the worker could not be started: {error}"
        except Exception as error:
            _log.exception("assignment %s", self._command.assignment_id)
            return Report.FAILED, f"the agent failed: {type(error).__name__}: {error}"

    async def _start(self, belongings: AsyncExitStack) -> None:
        self._enter(Report.STARTING)
        reservation = self._node.ports.reserve()
        belongings.callback(reservation.release)
        address = f"{self._node.host}:{reservation.port}"
        self._gate = Gate(
            self._command.dispatch_address,
            on_serving=lambda: self._events.put_nowait(_Event.SERVING),
            on_drained=lambda: self._events.put_nowait(_Event.DRAINED),
            on_dry=self._tell_dry,
        )
        self._splits = self._gate.splits
        belongings.push_async_callback(self._gate.close)
        order = WorkerOrder(
            gate_address=await self._gate.open(),
            address=address,
            port=reservation.port,
            heartbeat_interval_ms=HEARTBEAT_INTERVAL_MS,
        )
        log = ChildLog(self._tell_ignored)
        belongings.callback(log.close)
        self._child = await self._node.nursery.start(order, (log.descriptor,))
        belongings.push_async_callback(_end, self._child)
        self._report.address = address
        self._report.pid = await self._child.pid()
        watch = asyncio.create_task(self._watch(self._child))
        belongings.callback(watch.cancel)
        if self._node.memory is not None:
            weighing = asyncio.create_task(self._weigh(self._node.memory))
            belongings.callback(weighing.cancel)
        late = asyncio.get_running_loop().call_later(
            SERVE_DEADLINE_S, self._events.put_nowait, _Event.LATE
        )
        belongings.callback(late.cancel)

    async def _prepare(self) -> bool:
        """Has done what is to be done first; False: the assignment was released meanwhile."""
        preparing = asyncio.ensure_future(self._node.prepare(self._command.first))
        released = asyncio.ensure_future(self._released.wait())
        try:
            await asyncio.wait((preparing, released), return_when=asyncio.FIRST_COMPLETED)
            if preparing.done():
                preparing.result()
            return preparing.done()
        finally:
            preparing.cancel()
            released.cancel()

    async def _watch(self, child: Child) -> None:
        self._how_child_ended = await child.ended()
        self._events.put_nowait(_Event.CHILD_ENDED)

    async def _weigh(self, limit: MemoryLimit) -> None:
        self._report.over_memory_bytes = await limit.passed(self._report.pid)
        _log.warning(
            "slot %d, assignment %s of job %s: it holds %d bytes, over worker_memory_bytes=%d",
            self._command.slot,
            self._command.assignment_id,
            self._command.job_name,
            self._report.over_memory_bytes,
            limit.held_bytes,
        )
        if self._report.state == Report.SERVING:
            self._tell()

    async def _live(self) -> tuple[Report.End, str]:
        while True:
            match await self._events.get():
                case _Event.RELEASE:
                    return Report.RELEASED, ""
                case _Event.CHILD_ENDED:
                    end = Report.CRASHED if self._served else Report.FAILED
                    return end, self._how_child_ended
                case _Event.LATE if not self._served:
                    return Report.FAILED, self._too_late()
                case _Event.SERVING:
                    self._served = True
                    if self._report.state == Report.STARTING:
                        self._enter(Report.SERVING)
                case _Event.DRAIN if self._report.state != Report.DRAINING:
                    self._gate.drain()
                    self._enter(Report.DRAINING)
                case _Event.DRAINED:
                    return Report.DRAINED, ""

    def _tell_dry(self, iteration: int) -> None:
        # Its state is told anew, with what is new in it.
        self._report.dry.append(iteration)
        if self._report.state in (Report.SERVING, Report.DRAINING):
            self._tell()

    def _tell_ignored(self, count: int, example: str) -> None:
        self._node.tell_ignored(
            cachew_pb2.IgnoredErrors(
                assignment_id=self._command.assignment_id, count=count, example=example
            )
        )

    async def _linger(self) -> None:
        try:
            async with asyncio.timeout(LINGER_S):
                while await self._events.get() not in (_Event.RELEASE, _Event.CHILD_ENDED):
                    pass
        except TimeoutError:
            return

    def _enter(
        self, state: Report.State, *, end: Report.End = Report.NOT_ENDED, error: str = ""
    ) -> None:
        self._report.state = state
        self._report.end = end
        self._report.error = error
        self._report.splits = sum(self._splits.values())
        _log.info(
            "slot %d, assignment %s of job %s: %s after %d splits%s",
            self._command.slot,
            self._command.assignment_id,
            self._command.job_name,
            Report.End.Name(end) if state == Report.ENDED else Report.State.Name(state),
            self._report.splits,
            f" ({error})" if error else "",
        )
        self._tell()

    def _tell(self) -> None:
        copy = Report()
        copy.CopyFrom(self._report)
        self._node.tell(copy)

    def _too_late(self) -> str:
        return (
            f"the job's stock dispatcher at {self._command.dispatch_address} did not accept the "
            f"worker within {SERVE_DEADLINE_S:g} s: can this node reach it?"
        )


async def _end(child: Child) -> None:
    child.kill()
    await child.ended()
