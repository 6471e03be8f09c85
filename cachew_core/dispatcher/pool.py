"""The workers that there are: agents, their slots, and what each slot is assigned to. Carries out,
decides nothing.
"""

from __future__ import annotations

import asyncio
import enum
import itertools
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cachew_core.proto import cachew_pb2

if TYPE_CHECKING:
    from cachew_core.dispatcher.generation import Generation

log = logging.getLogger(__name__)

Report = cachew_pb2.AssignmentReport

FAILURES_IN_A_ROW = 3
"""A slot whose children failed so often is left alone until its agent connects again."""


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
    """

    id: str
    slot: Slot
    generation: Generation
    state: AssignmentState = AssignmentState.STARTING
    releasing: bool = False
    address: str = ""
    pid: int = 0
    error: str = ""

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


class Pool:
    """Agents and slots.

    Args:
        on_change: called after anything that may allow or demand another distribution of workers.
    """

    def __init__(self, on_change: Callable[[], None]) -> None:
        self.agents: dict[str, Agent] = {}
        self._on_change = on_change
        self._ids = itertools.count(1)

    def slots(self) -> Iterator[Slot]:
        """Slots of all connected agents."""
        for agent in self.agents.values():
            yield from agent.slots

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
        log.info("agent %s connected from %s: %d workers", agent.id, agent.host, hello.slots)
        self._on_change()
        return agent

    def disconnect(self, agent_id: str, reason: str) -> None:
        """Everything that the agent had is lost."""
        agent = self.agents.pop(agent_id, None)
        if agent is None:
            return
        log.info("agent %s is gone: %s", agent.id, reason)
        for slot in agent.slots:
            if slot.assignment is not None:
                self._end(slot.assignment, lost=not slot.assignment.releasing, error=reason)
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
            dispatch_address=generation.address,
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
        if report.state == Report.ENDED:
            self._ended(assignment, report)
        elif report.state == Report.SERVING and assignment.state is AssignmentState.STARTING:
            assignment.state = AssignmentState.SERVING
            assignment.slot.failures = 0
        self._on_change()

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
        self._end(assignment, lost=lost, error=report.error or "it ended by itself")

    def _end(self, assignment: Assignment, *, lost: bool, error: str) -> None:
        served = assignment.state in (AssignmentState.SERVING, AssignmentState.DRAINING)
        assignment.state, assignment.error = AssignmentState.ENDED, error
        assignment.slot.assignment = None
        assignment.generation.member_ended(assignment, lost=lost and served)
