"""A job that several trainers read together comes to the workers that all of them can use."""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Iterator, Sequence

import pytest

from cachew_core.policy.rate_match import RateMatch, RateMatchSettings, match_rates
from cachew_core.policy.rate_windows import RateGathering, RateSettings, gather_rates
from cachew_core.policy.trainers import Reading, Trainers, combine

TOLERANCE = 0.05
BUFFERED = 4


class VirtualTrainers:
    """Trainers that take batches out of one stream.

    Args:
        work_s: of one worker for a batch.
        steps_s: of each trainer for a batch.
        lockstep: after each batch they wait for each other.
    """

    def __init__(self, work_s: float, steps_s: Sequence[float], *, lockstep: bool) -> None:
        self.workers = 1
        self._work_s = work_s
        self._steps_s = steps_s
        self._lockstep = lockstep
        self._ready_s = 0.0
        size = BUFFERED * len(steps_s)
        self._taken = deque([0.0] * size, maxlen=size)
        self._first_s: dict[int, float] = {}
        self._waited_s = [0.0] * len(steps_s)
        self._batches = [0] * len(steps_s)

    def epoch(self, batches: int) -> Iterator[dict[str, Reading]]:
        """What each of them measured, whenever one has taken some more."""
        readings: dict[str, Reading] = {}
        steps = self._rounds() if self._lockstep else self._each_by_itself()
        for trainer, got_s in steps:
            readings[str(trainer)] = self._reading(trainer, got_s)
            yield dict(readings)
            if sum(self._batches) >= batches:
                return

    def _rounds(self) -> Iterator[tuple[int, float]]:
        begins_s, turn = 0.0, 0
        while True:
            ends_s = begins_s
            order = range(len(self._steps_s))
            for trainer in (*order[turn:], *order[:turn]):
                got_s = self._take(trainer, begins_s)
                ends_s = max(ends_s, got_s + self._steps_s[trainer])
                yield trainer, got_s
            begins_s, turn = ends_s, (turn + 1) % len(self._steps_s)

    def _each_by_itself(self) -> Iterator[tuple[int, float]]:
        asking = [(0.0, trainer) for trainer in range(len(self._steps_s))]
        while True:
            asked_s, trainer = heapq.heappop(asking)
            got_s = self._take(trainer, asked_s)
            heapq.heappush(asking, (got_s + self._steps_s[trainer], trainer))
            yield trainer, got_s

    def _take(self, trainer: int, asked_s: float) -> float:
        self._ready_s = max(self._ready_s, self._taken[0]) + self._work_s / self.workers
        got_s = max(asked_s, self._ready_s)
        self._taken.append(got_s)
        self._batches[trainer] += 1
        if trainer in self._first_s:
            self._waited_s[trainer] += got_s - asked_s
        else:
            self._first_s[trainer] = got_s
        return got_s

    def _reading(self, trainer: int, got_s: float) -> Reading:
        return Reading(
            epoch=1,
            batches=self._batches[trainer],
            seconds=got_s - self._first_s[trainer],
            wait_s=self._waited_s[trainer],
            at_s=got_s,
        )


def settled(trainers: VirtualTrainers, batches: int) -> tuple[RateMatch, int]:
    """Where the rule comes to in an epoch, and how often it changed the number on the way."""
    state, known, gathering, changes = RateMatch(target=1), Trainers(), RateGathering(), 0
    for readings in trainers.epoch(batches):
        known, total = combine(known, readings, epoch=1, workers=trainers.workers)
        if total is None:
            continue
        gathering, window = gather_rates(gathering, total, RateSettings())
        if window is None:
            continue
        settings = RateMatchSettings(tolerance=TOLERANCE)
        state = match_rates(state, window, most=100, settings=settings)
        changes += state.target != trainers.workers
        trainers.workers = state.target
    return state, changes


PAIRS = [(0.36, 0.2), (0.1, 0.2), (0.036, 0.01), (0.4, 0.2)]


@pytest.mark.parametrize("number", [2, 3, 8, 16])
@pytest.mark.parametrize(("work_s", "step_s"), PAIRS)
def test_in_lockstep(number: int, work_s: float, step_s: float) -> None:
    trainers = VirtualTrainers(work_s, [step_s] * number, lockstep=True)
    state, changes = settled(trainers, 600 * number)
    best = math.ceil((1 - TOLERANCE) * number * work_s / step_s)
    assert state.settled is not None
    # What is within the tolerance is measured, too, to a percent or two.
    assert 0.93 * best <= state.target <= best + 1, state.reason
    assert changes <= math.log2(best) + 4


@pytest.mark.parametrize("number", [2, 3, 8, 16])
@pytest.mark.parametrize(("work_s", "step_s"), PAIRS)
def test_each_at_its_own_pace(number: int, work_s: float, step_s: float) -> None:
    steps_s = [step_s * (1 + index / number) for index in range(number)]
    trainers = VirtualTrainers(work_s, steps_s, lockstep=False)
    state, changes = settled(trainers, 600 * number)
    best = math.ceil((1 - TOLERANCE) * work_s * sum(1 / each for each in steps_s))
    assert state.settled is not None
    assert 0.93 * best <= state.target <= best + 1, state.reason
    assert changes <= math.log2(best) + 4


def test_the_slowest_of_a_lockstep_decides() -> None:
    trainers = VirtualTrainers(0.3, [0.1, 0.1, 0.2], lockstep=True)
    state, _ = settled(trainers, 1200)
    best = math.ceil((1 - TOLERANCE) * 3 * 0.3 / 0.2)
    assert state.settled is not None
    # What a fast one would take alone can't be told from what it waits for the slow one.
    assert best <= state.target <= 2 * best, state.reason


def test_what_is_counted_never_goes_back() -> None:
    # It once did, by a rounding, and everything after it was passed over.
    trainers = VirtualTrainers(0.4, [0.2 * (1 + index / 8) for index in range(8)], lockstep=False)
    trainers.workers = 27
    known, waits = Trainers(), [0.0]
    for readings in trainers.epoch(3000):
        known, total = combine(known, readings, epoch=1, workers=27)
        if total is not None:
            assert total.wait_s >= waits[-1]
            waits.append(total.wait_s)
    assert len(waits) > 100
