"""Who works for whom: gives each job with a live epoch its share of the pool, and each epoch its
workers.

One rule keeps data whole: the last worker that serves an open epoch is never drained. So what stays
is always able to take the splits that are left.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from cachew_core.dispatcher.autoscaling import Autoscaler
from cachew_core.dispatcher.generation import Generation
from cachew_core.dispatcher.jobs import Epoch, EpochState, Job, JobBook, Reader
from cachew_core.dispatcher.pool import Assignment, AssignmentState, Pool, Slot
from cachew_core.dispatcher.stock_servers import StockServers
from cachew_core.errors import ServiceUnavailableError
from cachew_core.policy.autoscale import ScalingPolicy
from cachew_core.policy.pool_size import PoolLimits, PoolSize, resize
from cachew_core.policy.share import Demand, fair_shares
from cachew_core.settings import DispatcherSettings

log = logging.getLogger(__name__)

ALL_MEMBERS_WAIT_S = 2.0
"""An epoch that could begin waits so long for the rest of its workers: splits are balanced from the
start.
"""


class Scheduler:
    """Distributes the pool's workers over the jobs' generations.

    Args:
        servers: generations get theirs from it.
        autoscaler: says how many workers each job wants.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        book: JobBook,
        settings: DispatcherSettings,
        servers: StockServers,
        autoscaler: Autoscaler,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.book = book
        self.autoscaler = autoscaler
        self.pool = Pool(self.changed)
        self.refusing = ""
        self._settings = settings
        self._servers = servers
        self._clock = clock
        self._change = asyncio.Event()
        self._size = PoolSize()
        self._granted: dict[str, int] = {}
        self._stopping: set[asyncio.Task[None]] = set()

    # What epochs ask for

    async def bind(self, epoch: Epoch, deadline_s: float) -> Generation:
        """The generation that serves the epoch, once it can begin.

        Waits without end while the pool's workers serve other jobs (the job is queued), and up to
        `deadline_s` while there is no worker at all.

        Raises:
            ServiceUnavailableError: no worker came.
        """
        patience = _Patience(deadline_s, self._clock)
        started = self._clock()
        self.rebalance()
        while epoch.state is EpochState.WAITING:
            if self._can_begin(epoch, waited_s=self._clock() - started):
                self._begin(epoch)
                break
            if patience.lost(bool(self.pool.usable())):
                raise ServiceUnavailableError(self._no_worker(deadline_s))
            await self._wait_for_change(0.2)
        if epoch.generation is None:
            raise ServiceUnavailableError(
                epoch.failure or f"epoch {epoch.number} ended before it began"
            )
        return epoch.generation

    def _can_begin(self, epoch: Epoch, waited_s: float) -> bool:
        generation = epoch.job.generation
        if generation is None or generation.closed or not generation.serving():
            return False
        starting = [m for m in generation.staying() if m.state is AssignmentState.STARTING]
        return not starting or (not epoch.fixed and waited_s > ALL_MEMBERS_WAIT_S)

    def _begin(self, epoch: Epoch) -> None:
        generation = epoch.job.generation
        assert generation is not None
        epoch.state, epoch.generation = EpochState.OPEN, generation
        generation.epochs.add(epoch)
        generation.newest = epoch
        epoch.workers = len(generation.serving())
        # One that could get more is better off with them.
        if epoch.job.seeded and epoch.workers == 1 and self.most(epoch.job) == 1:
            epoch.fixed = True
        self.changed()

    def _no_worker(self, deadline_s: float) -> str:
        slots = list(self.pool.slots())
        name = f"service {self._settings.name!r}"
        if not slots:
            return f"0 workers registered at {name} after {deadline_s:g} s: start some"
        return (
            f"none of the {len(slots)} workers of {name} could serve within {deadline_s:g} s (they "
            "are leaving, or their processes fail to start: see the worker's log)"
        )

    async def _wait_for_change(self, timeout_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._change.wait(), timeout_s)

    def planned(self, epoch: Epoch, guess: int | None) -> None:
        """It is known what the epoch does: it may want another number of workers.

        Args:
            epoch: with its mode.
            guess: workers that were thought of when the mode was chosen; None: no number was.
        """
        self.autoscaler.planned(epoch, guess)
        self.changed()

    def measured(self, reader: Reader) -> None:
        """A trainer has new metrics: its job may want another number of workers."""
        generation, job = reader.epoch.generation, reader.epoch.job
        if generation is None:
            return
        granted, want = self._granted.get(job.id, 0), self.autoscaler.want(job)
        # One that has all it wants may want all there is.
        most = granted if want is None or granted < want else max(granted, self._limits().most)
        if self.autoscaler.measured(reader, workers=len(generation.serving()), most=most):
            self.changed()

    # How the pool is distributed

    def changed(self) -> None:
        """Something happened: distributes anew and wakes the epochs that wait."""
        self.rebalance()
        self._change.set()
        self._change = asyncio.Event()

    def rebalance(self) -> None:
        """Orders what is needed to bring every job to its share. Cheap, and right to call at any
        time.
        """
        self._fail_epochs_of_the_lost()
        claimants = self._claimants()
        self._resize(claimants)
        self._granted = shares = self._shares_of([self._demand(job) for job in claimants])
        missing = {job.id: max(0, shares[job.id] - _held(job)) for job in claimants}
        for job in self.book.jobs.values():
            self._retire(job)
        wanted, supply = sum(missing.values()), self._supply()
        for job in self.book.jobs.values():
            needed_elsewhere = wanted - missing.get(job.id, 0) - supply
            supply += self._give_back(job, shares.get(job.id, 0), needed_elsewhere)
        free = deque(self.pool.free())
        for job in claimants:
            self._take(job, shares[job.id], free)
        self._record_workers()

    def _resize(self, claimants: Sequence[Job]) -> None:
        """Lets as many slots work as are wanted and allowed."""
        limits = self._limits()
        wants = [self.autoscaler.want(job) for job in claimants]
        self._size = resize(self._size, wants, limits, self._clock())
        self.pool.size = self._size.workers

    def notices(self) -> list[str]:
        """What is not as it should be with the pool, for people."""
        least, capacity = self._settings.min_workers or 0, self.pool.capacity
        if capacity >= least:
            return []
        return [f"min_workers={least}, and agents offer {capacity}: jobs go on with these"]

    def _limits(self) -> PoolLimits:
        settings, capacity = self._settings, self.pool.capacity
        most = min(settings.max_workers or capacity, capacity)
        least = most if settings.min_workers is None else min(settings.min_workers, most)
        return PoolLimits(
            least=least,
            most=most,
            standby=settings.standby,
            shrink_after_s=settings.shrink_after_s,
        )

    def _claimants(self) -> list[Job]:
        """Jobs with a live epoch: those being read first, then by how long they wait."""
        live = [job for job in self.book.jobs.values() if job.epochs_for_workers()]
        return sorted(
            live, key=lambda job: (not _is_open(job), job.epochs_for_workers()[0].opened_at)
        )

    def shares(self) -> dict[str, int]:
        """The workers that each job with a live epoch should have, by job id."""
        return self._shares_of([self._demand(job) for job in self._claimants()])

    def most(self, job: Job) -> int:
        """The workers that a job could get now, if it wanted all that are of use to it."""
        others = [self._demand(other) for other in self._claimants() if other is not job]
        own = replace(self._demand(job), want=job.most_workers)
        return self._shares_of([*others, own], self._limits().most).get(job.id, 0)

    def expected(self, job: Job) -> tuple[int, int]:
        """The fewest and the most workers that an epoch of the job gets, both at least 1."""
        most = max(1, self.most(job))
        fixed = self.autoscaler.policy(job) is ScalingPolicy.ALL
        return (most if fixed else 1), most

    def _demand(self, job: Job) -> Demand:
        request = job.request
        return Demand(
            job=job.id,
            want=self.autoscaler.want(job),
            least=len(_pinned(job)),
            weight=request.weight or 1.0,
            priority=request.priority,
            tenant=request.tenant,
        )

    def _shares_of(self, demands: Sequence[Demand], workers: int | None = None) -> dict[str, int]:
        if workers is None:
            workers = min(len(self.pool.usable()), self._size.workers)
        return fair_shares(workers, demands, self._settings.tenant_weights)

    def _fail_epochs_of_the_lost(self) -> None:
        for job in self.book.jobs.values():
            for generation in list(job.generations):
                for assignment in generation.lost:
                    who = f"worker {assignment.slot.id} ({assignment.address})"
                    self._fail_epochs(generation, who, assignment.error)
                generation.lost.clear()
                if generation.broken:
                    self._fail_epochs(generation, "the stock server", generation.broken)

    def _fail_epochs(self, generation: Generation, who: str, error: str) -> None:
        for epoch in list(generation.epochs):
            failure = (
                f"{who} was lost in epoch {epoch.number} of job {generation.job.name!r}: {error}; "
                "start the epoch again"
            )
            log.warning("%s", failure)
            epoch.end(EpochState.FAILED, self._clock(), failure)

    def _retire(self, job: Job) -> None:
        """Ends generations that no epoch uses and none will."""
        for generation in list(job.generations):
            needless = generation.closed or job.ended or job.does_without_workers
            if generation.epochs or not needless:
                continue
            for member in list(generation.members):
                self.pool.release(member)
            if not generation.members:
                self._stop(generation)

    def _stop(self, generation: Generation) -> None:
        generation.job.generations.discard(generation)
        if generation.job.generation is generation:
            generation.job.generation = None
        task = asyncio.ensure_future(generation.stop())
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)

    def _supply(self) -> int:
        """Workers that are free, or will be soon."""
        coming = sum(1 for slot in self.pool.slots() if slot.assignment and slot.assignment.leaving)
        return len(self.pool.free()) + coming

    def _give_back(self, job: Job, share: int, needed_elsewhere: int) -> int:
        """Lets go of workers over the share, and of those that can't stay.

        Args:
            job: any.
            share: how many workers it should have.
            needed_elsewhere: how many the other jobs want that nobody else gives up.

        Returns:
            How many it let go.
        """
        held = [m for generation in job.generations for m in generation.staying()]
        for member in held:
            if not member.stays:
                self._let_go(member)
        second = _second_generation(job)
        staying = len([m for m in held if not m.leaving])
        want = self.autoscaler.want(job)
        unwanted = staying - want if want is not None and job.epochs_for_workers() else 0
        surplus = min(staying - share, max(needed_elsewhere, unwanted)) + second
        # The last first, and before all others those that don't serve yet: nothing is lost by that.
        for member in sorted(reversed(held), key=lambda m: m.state is not AssignmentState.STARTING):
            if surplus <= 0:
                break
            if not member.leaving and self._let_go(member):
                surplus -= 1
        return sum(member.leaving for member in held)

    def _let_go(self, member: Assignment) -> bool:
        generation = member.generation
        if not generation.epochs:
            self.pool.release(member)
            return True
        if not generation.job.sharded:
            return False
        others = [m for m in generation.serving() if m is not member]
        if not others:
            self._bring_replacement(generation)
            return False
        self.pool.drain(member)
        return True

    def _bring_replacement(self, generation: Generation) -> None:
        """The last worker of an open epoch can't stay: another one must serve before it may go."""
        coming = [m for m in generation.staying() if m.stays]
        free = self.pool.free()
        if not coming and free:
            self.pool.assign(free[0], generation)

    def _take(self, job: Job, share: int, free: deque[Slot]) -> None:
        """Puts free workers to work for the job, up to its share."""
        generation = self._generation_for(job, free)
        if generation is None or (generation.closed and not generation.epochs):
            return
        for _ in range(min(share - _held(job), len(free))):
            self.pool.assign(free.popleft(), generation)

    def _generation_for(self, job: Job, free: Collection[Slot]) -> Generation | None:
        """Where more workers of the job belong; None if none may join now."""
        current = job.generation
        waiting = any(epoch.state is EpochState.WAITING for epoch in job.epochs_for_workers())
        if current is not None and not current.closed:
            return None if any(epoch.fixed for epoch in current.epochs) else current
        if waiting:
            return self._new_generation(job) if free else None
        if current is None or any(epoch.fixed for epoch in current.epochs):
            return None
        return current  # members may still join its open epochs

    def _new_generation(self, job: Job) -> Generation | None:
        """None if there is no stock server yet; once there is, everything is distributed anew."""
        server = self._servers.take()
        if server is None:
            return None
        generation = Generation(job, server)
        server.on_end = lambda how: self._broke(generation, how)
        job.generation = generation
        job.generations.add(generation)
        return generation

    def _broke(self, generation: Generation, how: str) -> None:
        generation.broken, generation.closed = how, True
        self.changed()

    def _record_workers(self) -> None:
        for job in self.book.jobs.values():
            for generation in job.generations:
                for epoch in generation.epochs:
                    epoch.workers = max(epoch.workers, len(generation.serving()))
                    if epoch.live:
                        epoch.hold(len(generation.members), self._clock())

    # The end

    async def stop(self) -> None:
        """Ends all generations; their workers are the caller's business."""
        for job in self.book.jobs.values():
            for generation in list(job.generations):
                self._stop(generation)
        if self._stopping:
            await asyncio.wait(self._stopping, timeout=5)


class _Patience:
    """Runs out when there has been no worker for so long, without a break."""

    def __init__(self, deadline_s: float, clock: Callable[[], float]) -> None:
        self._deadline_s = deadline_s
        self._clock = clock
        self._last_seen = clock()

    def lost(self, workers_exist: bool) -> bool:
        if workers_exist:
            self._last_seen = self._clock()
        return self._clock() - self._last_seen > self._deadline_s


def _held(job: Job) -> int:
    """Workers that serve the job or are to: those that leave are no supply."""
    return sum(not member.leaving for g in job.generations for member in g.members)


def _is_open(job: Job) -> bool:
    return any(epoch.state is EpochState.OPEN for epoch in job.epochs_for_workers())


def _pinned(job: Job) -> list[Assignment]:
    """Workers that can't be taken from the job before an epoch's end."""
    return [
        member
        for generation in job.generations
        if generation.epochs and not job.sharded
        for member in generation.members
    ]


def _second_generation(job: Job) -> int:
    """1 if an epoch of the job waits for a generation while its workers serve an older one."""
    waiting = any(epoch.state is EpochState.WAITING for epoch in job.epochs_for_workers())
    current = job.generation
    return int(
        waiting and (current is None or current.closed) and any(g.epochs for g in job.generations)
    )
