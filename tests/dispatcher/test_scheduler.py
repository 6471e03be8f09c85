"""How the pool is distributed: real stock dispatch servers, scripted agents."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from cachew_core.dispatcher.autoscaling import Autoscaler
from cachew_core.dispatcher.history import History
from cachew_core.dispatcher.jobs import Epoch, EpochState, Job, JobBook
from cachew_core.dispatcher.pool import Agent, Assignment
from cachew_core.dispatcher.scheduler import Scheduler
from cachew_core.dispatcher.stock_servers import StockServers
from cachew_core.errors import ServiceUnavailableError
from cachew_core.forkserver.nursery import Nursery
from cachew_core.policy.autoscale import AutoscaleSettings, ScalingPolicy
from cachew_core.proto import cachew_pb2
from cachew_core.settings import DispatcherSettings

Report = cachew_pb2.AssignmentReport


class Service:
    """A scheduler, and agents that obey at once (but drains end when the test says)."""

    def __init__(self, servers: StockServers) -> None:
        self.book = JobBook()
        self.wants: dict[str, int] = {}
        autoscaler = Autoscaler(
            ScalingPolicy.ALL, AutoscaleSettings(), History(None), clock=time.monotonic
        )
        autoscaler.want = lambda job: self.wants.get(job.name, job.most_workers)  # type: ignore[method-assign]
        self.scheduler = Scheduler(self.book, DispatcherSettings(name="test"), servers, autoscaler)
        servers.on_ready = self.scheduler.changed
        self.draining: dict[str, Agent] = {}
        self.slow = False
        self.starting: dict[str, tuple[Agent, int]] = {}
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
            self.starting[command.assign.assignment_id] = agent, command.assign.slot
            if not self.slow:
                self.finish_starts()
        elif command.HasField("release"):
            self.starting.pop(command.release.assignment_id, None)
            self._ended(agent, command.release.assignment_id, Report.RELEASED)
        elif command.HasField("drain") and command.drain.assignment_id in self.starting:
            # Nobody has asked it for anything.
            del self.starting[command.drain.assignment_id]
            self._ended(agent, command.drain.assignment_id, Report.DRAINED)
        elif command.HasField("drain"):
            self.draining[command.drain.assignment_id] = agent

    def finish_starts(self, count: int | None = None) -> None:
        for assignment_id in list(self.starting)[:count]:
            agent, slot = self.starting.pop(assignment_id)
            self._report(agent, assignment_id, slot, Report.SERVING)

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
async def running(nursery: Nursery, work_dir: Path) -> AsyncIterator[Service]:
    servers = StockServers(nursery, "127.0.0.1", work_dir, client_timeout_s=30)
    service = Service(servers)
    obeying = asyncio.ensure_future(service.obey())
    try:
        yield service
    finally:
        obeying.cancel()
        await service.scheduler.stop()
        await servers.close()
        assert list(work_dir.iterdir()) == []


Scene = Callable[[Service], Coroutine[None, None, None]]
Run = Callable[[Scene], None]


@pytest.fixture(scope="module")
def in_loop() -> Iterator[Callable[[Scene, Path], None]]:
    """Runs scenes in one event loop, which has one nursery: TensorFlow is imported once."""
    nursery = Nursery()

    async def play(scene: Scene, work_dir: Path) -> None:
        async with running(nursery, work_dir) as service:
            await scene(service)

    with asyncio.Runner() as runner:
        runner.run(nursery.open())
        yield lambda scene, work_dir: runner.run(play(scene, work_dir))
        runner.run(nursery.close())


@pytest.fixture
def run(in_loop: Callable[[Scene, Path], None], tmp_path: Path) -> Run:
    return lambda scene: in_loop(scene, tmp_path)


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


def test_a_pool_that_can_not_give_the_least_says_so_and_jobs_go_on_with_what_there_is(
    run: Run,
) -> None:
    async def scene(service: Service) -> None:
        service.scheduler._settings = DispatcherSettings(name="test", min_workers=3, max_workers=5)
        service.agent("a", 2)
        job = service.job("one")
        await service.begin(job)
        assert serving(job) == 2
        assert service.scheduler.notices() == [
            "min_workers=3, and agents offer 2: jobs go on with these"
        ]
        service.agent("b", 1)
        assert service.scheduler.notices() == []

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


def test_a_job_gets_no_more_than_it_wants_and_gives_back_what_it_does_not(run: Run) -> None:
    async def scene(service: Service) -> None:
        service.agent("node", 4)
        job = service.job("one")
        service.wants["one"] = 3
        await service.begin(job)
        await service.until(lambda: serving(job) == 3)
        assert len(service.scheduler.pool.free()) == 1
        service.wants["one"] = 2
        service.scheduler.changed()
        await service.until(lambda: len(service.draining) == 1)
        service.finish_drains()
        await service.until(lambda: len(service.scheduler.pool.free()) == 2)
        service.wants["one"] = 4
        service.scheduler.changed()
        await service.until(lambda: serving(job) == 4)

    run(scene)


def test_the_last_worker_stays_whatever_is_wanted(run: Run) -> None:
    async def scene(service: Service) -> None:
        service.agent("node", 2)
        job = service.job("one")
        service.wants["one"] = 2
        epoch = await service.begin(job)
        await service.until(lambda: serving(job) == 2)
        service.wants["one"] = 1
        service.scheduler.changed()
        await service.until(lambda: len(service.draining) == 1)
        service.scheduler.changed()
        leaving = [m.leaving for generation in job.generations for m in generation.members]
        assert sorted(leaving) == [False, True]
        assert serving(job) == 1
        assert epoch.worker_seconds(service.scheduler._clock()) > 0

    run(scene)


def test_what_one_job_does_not_want_another_one_gets(run: Run) -> None:
    async def scene(service: Service) -> None:
        service.agent("node", 5)
        small, large = service.job("small"), service.job("large")
        service.wants |= {"small": 1, "large": 9}
        await service.begin(small)
        await service.begin(large)
        await service.until(lambda: (serving(small), serving(large)) == (1, 4))
        assert service.scheduler.most(small) == 2

    run(scene)


def test_workers_that_take_long_to_come_and_to_go_are_asked_for_once_and_let_go_in_order(
    run: Run,
) -> None:
    async def want(service: Service, count: int) -> None:
        service.wants["one"] = count
        # However often it looks while they are under way.
        for _ in range(20):
            service.scheduler.changed()
            await asyncio.sleep(0.005)

    async def scene(service: Service) -> None:
        service.agent("a", 8)
        service.wants["one"] = 1
        job = service.job("one")
        epoch = await service.begin(job)
        service.slow = True

        await want(service, 6)
        assert len(service.starting) == 5
        service.finish_starts(2)
        assert serving(job) == 3

        # Those that are still to come go first, and of the others just what is too much.
        await want(service, 2)
        assert (len(service.starting), len(service.draining), serving(job)) == (0, 1, 2)

        # One that leaves is no supply.
        await want(service, 3)
        assert (len(service.starting), len(service.draining), serving(job)) == (1, 1, 2)
        service.finish_starts()
        service.finish_drains()
        await want(service, 3)
        assert (len(service.starting), len(service.draining), serving(job)) == (0, 0, 3)
        assert epoch.state is EpochState.OPEN

    run(scene)
