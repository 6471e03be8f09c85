"""The workers that there are: agents, their slots, and what each slot is assigned to. Carries out,
decides nothing.
"""

from __future__ import annotations

import asyncio
import enum
import itertools
import logging
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from cachew_core.dispatcher.events import event
from cachew_core.errors import ServiceError
from cachew_core.proto import cachew_pb2

if TYPE_CHECKING:
    from cachew_core.dispatcher.generation import Generation

log = logging.getLogger(__name__)

Report = cachew_pb2.AssignmentReport

FAILURES_IN_A_ROW = 3
"""A slot whose children failed so often is left alone until its agent connects again."""


PROFILE_GRACE_S = 30.0
"""What a measurement may take on top of three times its budget; agents end it earlier."""


class AssignmentState(enum.StrEnum):
    """Where an assignment is in its life."""

    STARTING = "starting"
    SERVING = "serving"
    DRAINING = "draining"
    ENDED = "ended"


@dataclass(slots=True, eq=False, kw_only=True)
class Assignment:
    """One slot working for one generation of one job, by a `WorkerServer` of its own.

    Attributes:
        releasing: its end has been ordered; only the agent's word is missing.
        over_memory: it holds more than its node allows, so another is to take its place.
    """

    id: str
    slot: Slot
    generation: Generation
    state: AssignmentState = AssignmentState.STARTING
    releasing: bool = False
    over_memory: bool = False
    address: str = ""
    pid: int = 0
    error: str = ""

    @property
    def stays(self) -> bool:
        """Whether it may work for its job as long as that wants it."""
        # One that has served no epoch yet has nothing that a fresh one would not have.
        swollen = self.over_memory and self.generation.newest is not None
        return not (self.slot.agent.leaving or swollen)

    @property
    def leaving(self) -> bool:
        """Whether it takes no new work."""
        return self.releasing or self.state in (AssignmentState.DRAINING, AssignmentState.ENDED)


@dataclass(slots=True, eq=False, kw_only=True)
class Slot:
    """Room for one worker on an agent."""

    agent: Agent
    index: int
    assignment: Assignment | None = None
    failures: int = 0

    @property
    def id(self) -> str:
        """The worker's id in status."""
        return f"{self.agent.id}/{self.index}"

    @property
    def free(self) -> bool:
        """Whether it can take an assignment now."""
        return (
            self.assignment is None and not self.agent.leaving and self.failures < FAILURES_IN_A_ROW
        )


@dataclass(slots=True, eq=False, kw_only=True)
class Agent:
    """A connected agent. `commands` are sent in order by whoever holds its stream."""

    id: str
    host: str
    pid: int
    leaving: bool = False
    slots: list[Slot] = field(default_factory=list)
    commands: asyncio.Queue[cachew_pb2.AgentCommand] = field(default_factory=asyncio.Queue)


class PoolWatch(Protocol):
    """Is told what happens to agents, and has a say in what they do first."""

    def connected(self, agent: Agent) -> None:
        """It is here; no command was sent to it yet."""

    def assigned(self, agent: Agent) -> Sequence[cachew_pb2.StageOrder]:
        """It gets one more worker to run; what must be done on its disk before."""

    def lost(self, agent: Agent) -> None:
        """It is gone."""

    def answered(self, agent: Agent, result: cachew_pb2.StageResult) -> None:
        """It has done what it was ordered to, or could not."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Measurement:
    agent: Agent
    answer: asyncio.Future[cachew_pb2.ProfileResult]


class Pool:
    """Agents and slots.

    Args:
        on_change: called after anything that may allow or demand another distribution of workers.

    Attributes:
        watch: is told of agents; None: nobody is.
        size: so many slots may work; None: all that agents have.
    """

    def __init__(self, on_change: Callable[[], None]) -> None:
        self.agents: dict[str, Agent] = {}
        self.watch: PoolWatch | None = None
        self.size: int | None = None
        self._on_change = on_change
        self._ids = itertools.count(1)
        self._measurements: dict[str, _Measurement] = {}

    @property
    def capacity(self) -> int:
        """Slots that agents have, whether they may work or not."""
        return sum(len(agent.slots) for agent in self.agents.values() if not agent.leaving)

    def slots(self) -> Iterator[Slot]:
        """Slots of all connected agents that work or may work."""
        slots = [slot for agent in self.agents.values() for slot in agent.slots]
        idle = len(slots)
        if self.size is not None:
            # Those that leave, or can't stay, will be replaced.
            held = [slot.assignment for slot in slots if slot.assignment is not None]
            idle = self.size - sum(1 for each in held if each.stays and not each.leaving)
        for slot in slots:
            if slot.assignment is not None or slot.agent.leaving:
                yield slot
            elif idle > 0:
                idle -= 1
                yield slot

    def usable(self) -> list[Slot]:
        """Slots that have or can have work for some time to come."""
        return [
            slot
            for slot in self.slots()
            if slot.free or (slot.assignment and not slot.agent.leaving)
        ]

    def free(self) -> list[Slot]:
        """Slots that can take an assignment now."""
        return [slot for slot in self.slots() if slot.free]

    def connect(self, hello: cachew_pb2.AgentHello) -> Agent:
        """Takes in an agent; one of the same id that was still on the books is lost first."""
        self.disconnect(hello.agent_id, "its agent connected anew")
        agent = Agent(id=hello.agent_id, host=hello.host, pid=hello.pid)
        agent.slots = [Slot(agent=agent, index=index) for index in range(hello.slots)]
        self.agents[agent.id] = agent
        if self.watch is not None:
            self.watch.connected(agent)
        log.info(
            "agent %s connected from %s: %d workers",
            agent.id,
            agent.host,
            hello.slots,
            extra=event("agent_connected", agent=agent.id, workers=hello.slots),
        )
        self._on_change()
        return agent

    def disconnect(self, agent_id: str, reason: str) -> None:
        """Everything that the agent had is lost."""
        agent = self.agents.pop(agent_id, None)
        if agent is None:
            return
        log.info(
            "agent %s is gone: %s", agent.id, reason, extra=event("agent_gone", agent=agent.id)
        )
        if self.watch is not None:
            self.watch.lost(agent)
        for slot in agent.slots:
            if slot.assignment is not None:
                self._end(slot.assignment, lost=not slot.assignment.releasing, error=reason)
        for profile_id, measurement in list(self._measurements.items()):
            if measurement.agent is agent:
                lost = f"it is gone before it had measured the pipeline: {reason}"
                self.profiled(agent, cachew_pb2.ProfileResult(profile_id=profile_id, error=lost))
        self._on_change()

    def leave(self, agent: Agent) -> None:
        """The agent goes: nothing new for it, and what it has is drained."""
        agent.leaving = True
        self._on_change()

    def assign(self, slot: Slot, generation: Generation) -> Assignment:
        """Orders a fresh worker for the generation on a free slot."""
        assignment = Assignment(id=f"a{next(self._ids)}", slot=slot, generation=generation)
        slot.assignment = assignment
        generation.members.append(assignment)
        command = cachew_pb2.Assign(
            slot=slot.index,
            assignment_id=assignment.id,
            job_name=generation.job.name,
            dispatch_address=generation.server.address,
            first=self.watch.assigned(slot.agent) if self.watch is not None else (),
        )
        slot.agent.commands.put_nowait(cachew_pb2.AgentCommand(assign=command))
        return assignment

    def drain(self, assignment: Assignment) -> None:
        """No more splits for it; it ends once it has delivered what it holds."""
        if assignment.leaving:
            return
        assignment.state = AssignmentState.DRAINING
        assignment.generation.closed = True
        command = cachew_pb2.Drain(assignment_id=assignment.id)
        assignment.slot.agent.commands.put_nowait(cachew_pb2.AgentCommand(drain=command))

    def release(self, assignment: Assignment) -> None:
        """Ends it at once."""
        if assignment.releasing or assignment.state is AssignmentState.ENDED:
            return
        assignment.releasing = True
        assignment.generation.closed = True
        command = cachew_pb2.Release(assignment_id=assignment.id)
        assignment.slot.agent.commands.put_nowait(cachew_pb2.AgentCommand(release=command))

    def report(self, agent: Agent, report: cachew_pb2.AssignmentReport) -> None:
        """What an agent says of an assignment; one that we gave up is released again."""
        slot = agent.slots[report.slot] if 0 <= report.slot < len(agent.slots) else None
        assignment = slot.assignment if slot else None
        if assignment is None or assignment.id != report.assignment_id:
            if report.state != Report.ENDED:
                release = cachew_pb2.Release(assignment_id=report.assignment_id)
                agent.commands.put_nowait(cachew_pb2.AgentCommand(release=release))
            return
        assignment.address = report.address or assignment.address
        assignment.pid = report.pid or assignment.pid
        if report.over_memory_bytes and not assignment.over_memory:
            self._note_over_memory(assignment, report.over_memory_bytes)
        assignment.generation.dry.update(report.dry)
        assignment.generation.changes += 1
        if report.state == Report.ENDED:
            self._ended(assignment, report)
        elif report.state == Report.SERVING and assignment.state is AssignmentState.STARTING:
            assignment.state = AssignmentState.SERVING
            assignment.slot.failures = 0
            log.info(
                "worker %s serves job %s",
                assignment.slot.id,
                assignment.generation.job.name,
                extra=event(
                    "worker_serves",
                    worker=assignment.slot.id,
                    job=assignment.generation.job.name,
                ),
            )
        self._on_change()

    @staticmethod
    def _note_over_memory(assignment: Assignment, held_bytes: int) -> None:
        assignment.over_memory = True
        job = assignment.generation.job
        text = (
            f"worker {assignment.slot.id} came to hold {held_bytes / 1e6:.0f} MB, over its node's "
            "worker_memory_bytes: a fresh one takes its place"
        )
        job.note(text)
        log.warning("job %s: %s", job.name, text)

    def assignment(self, agent: Agent, assignment_id: str) -> Assignment | None:
        """What an agent does for somebody under that id; None: nothing any more."""
        held = (slot.assignment for slot in agent.slots)
        return next((a for a in held if a is not None and a.id == assignment_id), None)

    async def profile(
        self, graph: bytes, points: Sequence[str], scratch: str, budget_s: float, batches: int
    ) -> str:
        """Has an agent measure a pipeline, beside its slots; one with an idle slot, if there is.

        Args:
            graph: as one worker would run it alone, a GraphDef.
            points: names of nodes of the graph, in the order of the data; the last is the end.
            scratch: a folder on the cache's disk that is not there yet; it is gone afterwards.
            budget_s: what it may take, about.
            batches: so many elements at the end make a figure good enough.

        Returns:
            A `PipelineProfile` as JSON.

        Raises:
            ServiceError: there is no agent, or it is gone, or can't measure the pipeline.
        """
        agent = self._measurer()
        profile_id = secrets.token_hex(8)
        command = cachew_pb2.Profile(
            profile_id=profile_id,
            graph=graph,
            points=points,
            scratch=scratch,
            budget_s=budget_s,
            batches=batches,
        )
        answer = asyncio.get_running_loop().create_future()
        self._measurements[profile_id] = _Measurement(agent=agent, answer=answer)
        agent.commands.put_nowait(cachew_pb2.AgentCommand(profile=command))
        try:
            async with asyncio.timeout(3 * budget_s + PROFILE_GRACE_S):
                result = await answer
        except TimeoutError:
            raise ServiceError(f"agent {agent.id} has not said what it measured") from None
        finally:
            del self._measurements[profile_id]
        if result.error:
            raise ServiceError(f"agent {agent.id}: {result.error}")
        return str(result.json)

    def profiled(self, agent: Agent, result: cachew_pb2.ProfileResult) -> None:
        """What an agent says of a measurement; nobody may be waiting for it any more."""
        measurement = self._measurements.get(result.profile_id)
        if measurement and measurement.agent is agent and not measurement.answer.done():
            measurement.answer.set_result(result)

    def _measurer(self) -> Agent:
        busy = [measurement.agent.id for measurement in self._measurements.values()]
        staying = [agent for agent in self.agents.values() if not agent.leaving]
        if not staying:
            raise ServiceError("the pipeline can't be measured: the service has no worker node")
        return min(
            staying,
            key=lambda agent: (
                all(slot.assignment is not None for slot in agent.slots),
                busy.count(agent.id),
            ),
        )

    def _ended(self, assignment: Assignment, report: cachew_pb2.AssignmentReport) -> None:
        if report.end in (Report.CRASHED, Report.FAILED):
            log.warning(
                "worker %s of job %s: %s",
                assignment.slot.id,
                assignment.generation.job.name,
                report.error,
            )
        if report.end == Report.FAILED:
            assignment.slot.failures += 1
        lost = report.end == Report.CRASHED or (
            report.end == Report.RELEASED and not assignment.releasing
        )
        usual = "it ended by itself" if lost else "its work is done"
        self._end(assignment, lost=lost, error=report.error or usual)

    def _end(self, assignment: Assignment, *, lost: bool, error: str) -> None:
        log.info(
            "worker %s of job %s ended: %s",
            assignment.slot.id,
            assignment.generation.job.name,
            error,
            extra=event(
                "worker_ended",
                worker=assignment.slot.id,
                job=assignment.generation.job.name,
                lost=lost,
            ),
        )
        served = assignment.state in (AssignmentState.SERVING, AssignmentState.DRAINING)
        assignment.state, assignment.error = AssignmentState.ENDED, error
        assignment.slot.assignment = None
        assignment.generation.member_ended(assignment, lost=lost and served)
