"""A service in simulated time: the real policies, and trainers and workers that are made up.

A trainer's batches come at a rate that is a formula of the workers that serve it, so one step of a
job is one look of the policy, however many batches lie in it.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import simpy

from cachew_core.policy.autoscale import (
    AutoscaleSettings,
    Scaling,
    ScalingPolicy,
    begin,
    look,
)
from cachew_core.policy.constants import Prices
from cachew_core.policy.progress import Progress
from cachew_core.policy.share import Demand, fair_shares

LEAST_LOOK_S, LOOK_BATCHES = 0.25, 2
"""A trainer reports so often, and a report without new batches is none."""

SETTLED_LOOK_S = 2.0
"""The same where the policy has come to rest: it takes as long to see a change, and the simulation
an eighth of the time.
"""

Process = Generator[simpy.Event, Any, None]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """A training.

    Attributes:
        work_s: of one worker for a batch.
        step_s: of the trainer for a batch.
        shared_s: what all workers together need for a batch at least.
        batches: until it ends.
        arrives_s: when it begins.
        load_steps: from this part of the batches on, the trainer's step is so many times as long.
    """

    work_s: float
    step_s: float
    batches: int
    shared_s: float = 0.0
    arrives_s: float = 0.0
    load_steps: tuple[tuple[float, float], ...] = ()

    def step_at(self, batch: float) -> float:
        """The trainer's step at a batch."""
        factors = [factor for part, factor in self.load_steps if batch >= part * self.batches]
        return self.step_s * (factors[-1] if factors else 1.0)

    def seconds(self, workers: int, noise: float) -> float:
        """How long it takes with a number of workers that never changes, all there at once.

        Args:
            workers: the number.
            noise: see `World`.
        """
        parts = [0.0, *(part for part, _ in self.load_steps), 1.0]
        return sum(
            (end - begin_) * self.batches * self.period_s(begin_ * self.batches, workers, noise)
            for begin_, end in itertools.pairwise(parts)
        )

    def period_s(self, batch: float, workers: int, noise: float) -> float:
        """From batch to batch, on average.

        Where workers are about as fast as the trainer, it waits for them whenever they are slower
        than usual, and gains nothing whenever they are faster.
        """
        step_s, usual_s = self.step_at(batch), max(self.work_s / workers, self.shared_s)
        least_s, most_s = (1 - noise) * usual_s, (1 + noise) * usual_s
        if most_s <= step_s:
            return step_s
        if least_s >= step_s:
            return usual_s
        above_s2 = (most_s**2 - step_s**2) / 2
        return (above_s2 + step_s * (step_s - least_s)) / (most_s - least_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What the jobs run on.

    Attributes:
        workers: that there can be.
        start_s: until a worker that is given to a job serves it.
        noise: half the width of the part by which a stretch's rate differs.
        lives_s: of a worker on average, until it dies while it serves; None: it does not.
    """

    workers: int
    start_s: float = 7.0
    noise: float = 0.0
    lives_s: float | None = None


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What became of one job.

    Attributes:
        spec: of the job.
        seconds: from its first worker's first batch to its last batch.
        worker_s: for all workers, the time for which they were held.
        targets: what was wanted, with the seconds since its start.
    """

    spec: JobSpec
    seconds: float = 0.0
    worker_s: float = 0.0
    targets: list[tuple[float, int]] = field(default_factory=list)

    def price(self, prices: Prices) -> float:
        """Of trainer and workers."""
        return price(self.seconds, self.worker_s, prices)

    def regret(self, prices: Prices, most: int, noise: float) -> float:
        """How much more it cost than with the best number of workers that never changes."""
        return self.price(prices) / best_price(self.spec, prices, most, noise) - 1

    @property
    def converged_s(self) -> float:
        """When the number was changed last."""
        return self.targets[-1][0]


def price(seconds: float, worker_s: float, prices: Prices) -> float:
    """Of a trainer for so long, and of so many worker-seconds."""
    return (prices.trainer_hour * seconds + prices.worker_hour * worker_s) / 3600


def best_price(spec: JobSpec, prices: Prices, most: int, noise: float) -> float:
    """The least for which any number of workers that never changes does a job."""
    times = ((count, spec.seconds(count, noise)) for count in range(1, most + 1))
    return min(price(seconds, count * seconds, prices) for count, seconds in times)


@dataclass(slots=True, eq=False, kw_only=True)
class _Job:
    name: str
    spec: JobSpec
    scaling: Scaling
    outcome: Outcome
    held: int = 0
    serving: int = 0
    batches: float = 1.0
    seconds: float = 0.0
    wait_s: float = 0.0
    live: bool = False
    held_since: float = 0.0


class Simulation:
    """One service and its jobs."""

    def __init__(
        self,
        specs: Sequence[JobSpec],
        world: World,
        policy: ScalingPolicy,
        *,
        seed: int = 0,
        settings: AutoscaleSettings | None = None,
    ) -> None:
        """A service that has not begun."""
        self._world = world
        self._settings = settings or AutoscaleSettings()
        self._chance = random.Random(seed)
        self._env = simpy.Environment()
        self._jobs = [
            _Job(name=str(n), spec=spec, scaling=begin(policy), outcome=Outcome(spec=spec))
            for n, spec in enumerate(specs)
        ]

    def run(self) -> list[Outcome]:
        """Runs until all jobs have ended."""
        for job in self._jobs:
            self._env.process(self._life(job))
        self._env.run()
        return [job.outcome for job in self._jobs]

    def _life(self, job: _Job) -> Process:
        yield self._env.timeout(job.spec.arrives_s)
        job.live = True
        self._grant()
        while not job.serving:
            yield self._env.timeout(LEAST_LOOK_S)
        began = self._env.now
        job.outcome.targets.append((0.0, job.scaling.target or 0))
        while job.batches < job.spec.batches:
            yield self._env.timeout(self._read(job))
            self._look(job, began)
        self._hold(job, 0)
        job.outcome.seconds = self._env.now - began
        job.live = False
        job.serving = 0
        self._grant()

    def _read(self, job: _Job) -> float:
        """Some batches pass; how long that takes."""
        if not job.serving:
            return LEAST_LOOK_S
        noise = 1 + self._world.noise * self._chance.uniform(-1, 1)
        step_s = job.spec.step_at(job.batches)
        period_s = max(step_s, noise * max(job.spec.work_s / job.serving, job.spec.shared_s))
        look_s = SETTLED_LOOK_S if job.scaling.settled else LEAST_LOOK_S
        batches = max(LOOK_BATCHES, round(look_s / period_s))
        job.batches += batches
        job.seconds += batches * period_s
        job.wait_s += batches * (period_s - step_s)
        return batches * period_s

    def _look(self, job: _Job, began: float) -> None:
        before = job.scaling.target
        progress = Progress(
            epoch=1,
            workers=job.serving,
            batches=int(job.batches),
            seconds=job.seconds,
            wait_s=job.wait_s,
        )
        most = self._most(job)
        job.scaling = look(job.scaling, progress, most=most, settings=self._settings)
        if job.scaling.target != before:
            job.outcome.targets.append((self._env.now - began, job.scaling.target or 0))
            self._grant()

    def _most(self, job: _Job) -> int:
        # One that has all it wants may want all there is.
        has_all = job.scaling.target is not None and job.held >= job.scaling.target
        return self._world.workers if has_all else max(1, job.held)

    @staticmethod
    def _demand(job: _Job) -> Demand:
        return Demand(job=job.name, want=job.scaling.target)

    def _grant(self) -> None:
        live = [job for job in self._jobs if job.live]
        shares: Mapping[str, int] = fair_shares(
            self._world.workers, [self._demand(job) for job in live]
        )
        for job in live:
            share = shares[job.name]
            for _ in range(share - job.held):
                self._env.process(self._worker(job))
            job.serving = min(job.serving, share)
            self._hold(job, share)

    def _hold(self, job: _Job, workers: int) -> None:
        job.outcome.worker_s += job.held * (self._env.now - job.held_since)
        job.held, job.held_since = workers, self._env.now

    def _worker(self, job: _Job) -> Process:
        """Starts, serves, and may die; another one takes its place."""
        yield self._env.timeout(self._world.start_s)
        while job.live and job.serving < job.held:
            job.serving += 1
            if self._world.lives_s is None:
                return
            yield self._env.timeout(self._chance.expovariate(1 / self._world.lives_s))
            job.serving = max(0, job.serving - 1)
            yield self._env.timeout(self._world.start_s)
