"""How the pool is distributed: real stock dispatch servers, scripted agents."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from cachew_core.dispatcher.jobs import Epoch, EpochState, Job, JobBook
from cachew_core.dispatcher.pool import Agent, Assignment
from cachew_core.dispatcher.scheduler import Scheduler
from cachew_core.errors import ServiceUnavailableError
from cachew_core.proto import cachew_pb2
from cachew_core.settings import DispatcherSettings

Report = cachew_pb2.AssignmentReport


class Service:
    """A scheduler, and agents that obey at once (but drains end when the test says)."""

    def __init__(self, work_dir: Path) -> None:
        self.book = JobBook()
        self.scheduler = Scheduler(self.book, DispatcherSettings(name="test"), work_dir)
        self.draining: dict[str, Agent] = {}
        self._opened = 0

    def agent(self, name: str, slots: int) -> Agent:
        hello = cachew_pb2.AgentHello(agent_id=name, host="host", slots=slots)
        return self.scheduler.pool.connect(hello)

    def job(self, name: str, **fields: Any) -> Job:
        request = cachew_pb2.RegisterPipelineRequest(
            job_name=name,
            fingerprint=name,
            processing_mode=cachew_pb2.DISTRIBUTED_EPOCH,
            compression=cachew_pb2.COMPRESSION_NONE,
            workers_deadline_s=0.3,
            **fields,
        )
        return self.book.register(request)

    def open(self, job: Job) -> Epoch:
        """The job's one trainer opens one more iterator."""
        self._opened += 1
        client = job.clients.get("trainer") or job.add_client("trainer", host="host", pid=1, now=0)
        return job.open_reader(client, self._opened, now=float(self._opened)).epoch

    async def begin(self, job: Job, deadline_s: float = 5) -> Epoch:
        epoch = self.open(job)
        await self.scheduler.bind(epoch, deadline_s)
        return epoch

    def end(self, epoch: Epoch) -> None:
        epoch.end(EpochState.ABANDONED, now=0)
        self.scheduler.changed()

    async def obey(self) -> None:
        """Carries out what the scheduler orders, for as long as the test runs."""
        while True:
            for agent in list(self.scheduler.pool.agents.values()):
                while not agent.commands.empty():
                    self._do(agent, agent.commands.get_nowait())
            await asyncio.sleep(0.001)

    def _do(self, agent: Agent, command: cachew_pb2.AgentCommand) -> None:
        if command.HasField("assign"):
            self._report(agent, command.assign.assignment_id, command.assign.slot, Report.SERVING)
        elif command.HasField("release"):
            self._ended(agent, command.release.assignment_id, Report.RELEASED)
        elif command.HasField("drain"):
            self.draining[command.drain.assignment_id] = agent

    def finish_drains(self) -> None:
        for assignment_id, agent in list(self.draining.items()):
            del self.draining[assignment_id]
            self._ended(agent, assignment_id, Report.DRAINED)

    def _ended(self, agent: Agent, assignment_id: str, end: "Report.End") -> None:
        for slot in agent.slots:
            if slot.assignment is not None and slot.assignment.id == assignment_id:
                self._report(agent, assignment_id, slot.index, Report.ENDED, end)

    def _report(
        self,
        agent: Agent,
        assignment_id: str,
        slot: int,
        state: "Report.State",
        end: "Report.End" = Report.NOT_ENDED,
    ) -> None:
        report = Report(
            assignment_id=assignment_id, slot=slot, state=state, end=end, address="host:1"
        )
        self.scheduler.pool.report(agent, report)

    def crash(self, assignment: Assignment) -> None:
        slot = assignment.slot
        report = Report(
            assignment_id=assignment.id,
            slot=slot.index,
            state=Report.ENDED,
            end=Report.CRASHED,
            error="killed by signal 9",
        )
        self.scheduler.pool.report(slot.agent, report)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(5):
            while not condition():
                await asyncio.sleep(0.002)


def serving(job: Job) -> int:
    return sum(len(generation.serving()) for generation in job.generations)


@asynccontextmanager
async def running(work_dir: Path) -> AsyncIterator[Service]:
    service = Service(work_dir)
    obeying = asyncio.ensure_future(service.obey())
    try:
        yield service
    finally:
        obeying.cancel()
        await service.scheduler.stop()


Scene = Callable[[Service], Coroutine[None, None, None]]
Run = Callable[[Scene], None]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    def run_scene(scene: Scene) -> None:
        async def with_service() -> None:
            async with running(tmp_path) as service:
                await scene(service)

        asyncio.run(with_service())

    return run_scene


def test_a_job_alone_gets_every_worker(run: Run) -> None:
    async def scene(service: Service) -> None:
        service.agent("a", 4)
        job = service.job("one")
        epoch = await service.begin(job)
        assert (serving(job), epoch.workers) == (4, 4)

    run(scene)


def test_an_epoch_after_an_undisturbed_one_keeps_generation_and_workers(run: Run) -> None:
    async def scene(service: Service) -> None:
        service.agent("a", 2)
        job = service.job("one")
        first = await service.begin(job)
        generation = first.generation
        service.end(first)
        assert (await service.begin(job)).generation is generation

    run(scene)


def test_a_second_job_gets_half_by_drains_and_the_first_one_goes_on(run: Run) -> None:
    async def scene(service: Service) -> None:
        service.agent("a", 4)
        one, two = service.job("one"), service.job("two")
        epoch = await service.begin(one)
        binding = asyncio.ensure_future(service.begin(two))
        await service.until(lambda: len(service.draining) == 2)
        assert epoch.state is EpochState.OPEN
        service.finish_drains()
        await binding
        await service.until(lambda: (serving(one), serving(two)) == (2, 2))

    run(scene)


def test_the_epoch_after_a_drain_gets_a_new_generation(run: Run) -> None:
    async def scene(service: Service) -> None:
        service.agent("a", 2)
        one, two = service.job("one"), service.job("two")
        epoch = await service.begin(one)
        old = epoch.generation
        binding = asyncio.ensure_future(service.begin(two))
        await service.until(lambda: len(service.draining) == 1)
        service.finish_drains()
        await binding
        service.end(epoch)
        assert (await service.begin(one)).generation is not old

    run(scene)


def test_workers_come_back_when_the_other_job_has_no_open_epoch(run: Run) -> None:
    async def scene(service: Service) -> None:
        service.agent("a", 4)
        one, two = service.job("one"), service.job("two")
        await service.begin(one)
        binding = asyncio.ensure_future(service.begin(two))
        await service.until(lambda: len(service.draining) == 2)
        service.finish_drains()
        other = await binding
        service.end(other)
        await service.until(lambda: serving(one) == 4)

    run(scene)


def test_a_job_without_a_worker_is_queued_and_gets_one_when_another_epoch_ends(run: Run) -> None:
    async def scene(service: Service) -> None:
        service.agent("a", 1)
        one, two = service.job("one"), service.job("two")
        first = await service.begin(one)
        binding = asyncio.ensure_future(service.begin(two, deadline_s=0.05))
        await asyncio.sleep(0.3)  # far beyond the deadline, which is for a service without workers
        assert not binding.done()
        service.end(first)
        assert (await binding).state is EpochState.OPEN

    run(scene)


def test_the_last_worker_of_an_open_epoch_is_never_drained_without_another(run: Run) -> None:
    async def scene(service: Service) -> None:
        agent = service.agent("a", 1)
        job = service.job("one")
        await service.begin(job)
        service.scheduler.pool.leave(agent)
        assert service.draining == {}
        service.agent("b", 1)
        await service.until(lambda: len(service.draining) == 1)
        assert serving(job) == 1

    run(scene)


def test_workers_that_come_in_mid_epoch_join(run: Run) -> None:
    async def scene(service: Service) -> None:
        service.agent("a", 1)
        job = service.job("one")
        epoch = await service.begin(job)
        service.agent("b", 2)
        await service.until(lambda: serving(job) == 3)
        assert epoch.workers == 3

    run(scene)


def test_a_job_on_one_worker_keeps_it_to_its_epochs_end(run: Run) -> None:
    async def scene(service: Service) -> None:
        service.agent("a", 2)
        one, two = service.job("one", single_worker=True), service.job("two")
        await service.begin(one)
        await service.begin(two)
        assert (serving(one), serving(two)) == (1, 1)
        assert service.draining == {}

    run(scene)


def test_parallel_epochs_keep_the_workers_of_their_start(run: Run) -> None:
    async def scene(service: Service) -> None:
        service.agent("a", 2)
        job = service.job("one")
        job.request.processing_mode = cachew_pb2.PARALLEL_EPOCHS
        await service.begin(job)
        service.agent("b", 2)
        await asyncio.sleep(0.05)
        assert serving(job) == 2

    run(scene)


def test_a_lost_worker_fails_the_epoch_and_the_next_one_begins_anew(run: Run) -> None:
    async def scene(service: Service) -> None:
        service.agent("a", 2)
        job = service.job("one")
        epoch = await service.begin(job)
        generation = epoch.generation
        assert generation is not None
        service.crash(generation.members[0])
        assert epoch.state is EpochState.FAILED
        assert (
            "worker a/0 (host:1) was lost in epoch 1 of job 'one': killed by signal 9"
            in epoch.failure
        )
        again = await service.begin(job)
        assert again.generation is not generation
        assert serving(job) == 2

    run(scene)


def test_a_lost_agent_fails_the_epochs_that_it_served(run: Run) -> None:
    async def scene(service: Service) -> None:
        service.agent("a", 1)
        job = service.job("one")
        epoch = await service.begin(job)
        service.scheduler.pool.disconnect("a", "its connection ended")
        assert epoch.state is EpochState.FAILED

    run(scene)


def test_a_service_without_workers_says_so_after_the_deadline(run: Run) -> None:
    async def scene(service: Service) -> None:
        with pytest.raises(
            ServiceUnavailableError, match=r"0 workers registered at service .test. after 0\.1 s"
        ):
            await service.begin(service.job("one"), deadline_s=0.1)

    run(scene)


def test_a_second_iterator_in_a_closed_generation_gets_a_worker_of_its_own(run: Run) -> None:
    async def scene(service: Service) -> None:
        agent = service.agent("a", 2)
        service.agent("b", 1)
        job = service.job("one")
        first = await service.begin(job)
        service.scheduler.pool.leave(agent)
        await service.until(lambda: len(service.draining) == 2)
        service.finish_drains()
        service.agent("c", 1)
        await service.until(lambda: serving(job) == 2)
        binding = asyncio.ensure_future(service.begin(job))
        await service.until(lambda: len(service.draining) == 1)
        service.finish_drains()
        second = await binding
        assert second.generation is not first.generation
        assert first.state is EpochState.OPEN

    run(scene)
