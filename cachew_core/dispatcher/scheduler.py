"""Who works for whom: gives each job with a live epoch its share of the pool, and each epoch its
workers.

One rule keeps data whole: the last worker that serves an open epoch is never drained. So what stays
is always able to take the splits that are left.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import time
from collections.abc import Callable
from pathlib import Path

from cachew_core.dispatcher.generation import Generation
from cachew_core.dispatcher.jobs import Epoch, EpochState, Job, JobBook
from cachew_core.dispatcher.pool import Assignment, AssignmentState, Pool
from cachew_core.errors import ServiceUnavailableError
from cachew_core.policy.share import Demand, even_shares
from cachew_core.ports import PortPool
from cachew_core.settings import DispatcherSettings

log = logging.getLogger(__name__)

ALL_MEMBERS_WAIT_S = 2.0
"""An epoch that could begin waits so long for the rest of its workers: splits are balanced from the
start.
"""


class Scheduler:
    """Distributes the pool's workers over the jobs' generations.

    Args:
        work_dir: generations keep their state in folders of it.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        book: JobBook,
        settings: DispatcherSettings,
        work_dir: Path,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.book = book
        self.pool = Pool(self.changed)
        self.refusing = ""
        self._settings = settings
        self._work_dir = work_dir
        self._clock = clock
        self._ports = PortPool(rest_s=600)
        self._numbers = itertools.count(1)
        self._change = asyncio.Event()
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
        epoch.workers = len(generation.serving())
        if epoch.job.seeded and epoch.workers == 1:
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
        self._fail_epochs_of_lost_workers()
        shares = self.shares()
        for job in self.book.jobs.values():
            self._retire(job)
            self._give_back(job, shares.get(job.id, 0))
        for job in self._claimants():
            self._take(job, shares[job.id])
        self._record_workers()

    def _claimants(self) -> list[Job]:
        """Jobs with a live epoch: those being read first, then by how long they wait."""
        live = [job for job in self.book.jobs.values() if job.live_epochs()]
        return sorted(live, key=lambda job: (not _is_open(job), job.live_epochs()[0].opened_at))

    def shares(self) -> dict[str, int]:
        """The workers that each job with a live epoch should have, by job id."""
        demands = [
            Demand(job=job.id, most=job.most_workers, least=len(_pinned(job)))
            for job in self._claimants()
        ]
        return dict(even_shares(len(self.pool.usable()), demands))

    def _fail_epochs_of_lost_workers(self) -> None:
        for job in self.book.jobs.values():
            for generation in list(job.generations):
                for assignment in generation.lost:
                    for epoch in list(generation.epochs):
                        failure = (
                            f"worker {assignment.slot.id} ({assignment.address}) was lost in epoch "
                            f"{epoch.number} of job {job.name!r}: {assignment.error}; start the "
                            "epoch again"
                        )
                        log.warning("%s", failure)
                        epoch.end(EpochState.FAILED, self._clock(), failure)
                generation.lost.clear()

    def _retire(self, job: Job) -> None:
        """Ends generations that no epoch uses and none will."""
        for generation in list(job.generations):
            if generation.epochs or not (generation.closed or job.ended):
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

    def _give_back(self, job: Job, share: int) -> None:
        """Lets go of workers over the share, and of those whose agent leaves."""
        held = [m for generation in job.generations for m in generation.staying()]
        for member in held:
            if member.slot.agent.leaving:
                self._let_go(member)
        second = _second_generation(job)
        needed_elsewhere = self._needed_elsewhere(job) + second
        surplus = len([m for m in held if not m.leaving]) - share + second
        for member in reversed(held):
            if surplus <= 0 or needed_elsewhere <= 0:
                return
            if not member.leaving and self._let_go(member):
                surplus -= 1
                needed_elsewhere -= 1

    def _needed_elsewhere(self, job: Job) -> int:
        shares = self.shares()
        wanted = 0
        for other in self._claimants():
            if other is not job:
                held = sum(len(generation.members) for generation in other.generations)
                wanted += max(0, shares[other.id] - held)
        coming = sum(1 for slot in self.pool.slots() if slot.assignment and slot.assignment.leaving)
        return wanted - len(self.pool.free()) - coming

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
        """The last worker of an open epoch leaves with its agent: another one must serve before it
        may.
        """
        coming = [m for m in generation.staying() if not m.slot.agent.leaving]
        free = self.pool.free()
        if not coming and free:
            self.pool.assign(free[0], generation)

    def _take(self, job: Job, share: int) -> None:
        """Puts free workers to work for the job, up to its share."""
        generation = self._generation_for(job)
        if generation is None:
            return
        held = sum(len(g.members) for g in job.generations)
        for slot in self.pool.free():
            if held >= share:
                return
            if generation.closed and not generation.epochs:
                return
            self.pool.assign(slot, generation)
            held += 1

    def _generation_for(self, job: Job) -> Generation | None:
        """Where more workers of the job belong; None if none may join now."""
        current = job.generation
        waiting = any(epoch.state is EpochState.WAITING for epoch in job.live_epochs())
        if current is not None and not current.closed:
            return None if any(epoch.fixed for epoch in current.epochs) else current
        if waiting:
            return self._new_generation(job) if self.pool.free() else None
        if current is None or any(epoch.fixed for epoch in current.epochs):
            return None
        return current  # members may still join its open epochs

    def _new_generation(self, job: Job) -> Generation:
        generation = Generation(
            job,
            work_dir=self._work_dir / f"{job.id}-{next(self._numbers)}",
            host=self._settings.host,
            ports=self._ports,
            client_timeout_s=self._settings.client_timeout_s,
        )
        job.generation = generation
        job.generations.add(generation)
        return generation

    def _record_workers(self) -> None:
        for job in self.book.jobs.values():
            for generation in job.generations:
                for epoch in generation.epochs:
                    epoch.workers = max(epoch.workers, len(generation.serving()))

    # The end

    async def stop(self) -> None:
        """Ends all generations; their workers are the caller's business."""
        for job in self.book.jobs.values():
            for generation in list(job.generations):
                self._stop(generation)
        if self._stopping:
            await asyncio.wait(self._stopping, timeout=5)
        self._ports.close()


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


def _is_open(job: Job) -> bool:
    return any(epoch.state is EpochState.OPEN for epoch in job.live_epochs())


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
    waiting = any(epoch.state is EpochState.WAITING for epoch in job.live_epochs())
    current = job.generation
    return int(
        waiting and (current is None or current.closed) and any(g.epochs for g in job.generations)
    )
