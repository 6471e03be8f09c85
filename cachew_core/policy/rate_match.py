"""Our rule for the number of workers: what the trainer's demand asks for, from measured rates.

Wanted are the fewest workers whose throughput is within a tolerance of the best that any number
gives. One worker's rate and the trainer's demand say at once how many that is, where both can be
seen; where they can't, the number is doubled, or halved. What each number really gave is kept, so a
limit that all workers share is found, and a guess is never believed against a measurement.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from statistics import fmean

from cachew_core.policy.rate_windows import RateWindow


@dataclass(frozen=True, slots=True, kw_only=True)
class RateMatchSettings:
    """The rule's constants.

    Attributes:
        tolerance: a throughput within this part of the best is as good.
        most_growth: a step up goes to so many times the number at most.
        knee: a step up that brings less than this part of what it promised has met a limit.
        reopen_over: a settled job is looked at again if its throughput or demand differs by this
            factor.
        reopen_windows: that many windows in a row must say so.
    """

    tolerance: float = field(default=0.05, metadata={"origin": "guess"})
    most_growth: int = field(default=8, metadata={"origin": "guess"})
    knee: float = field(default=0.6, metadata={"origin": "guess"})
    reopen_over: float = field(default=1.25, metadata={"origin": "guess"})
    reopen_windows: int = field(default=2, metadata={"origin": "guess"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RateMatch:
    """Where the rule stands for one job in one mode.

    Attributes:
        target: workers wanted, whatever the pool has.
        tried: batches/s that each number of workers gave.
        worker_rate: batches/s of one worker, from a number of workers that was too small.
        enough: some number in `tried` is as fast as any.
        promised: batches/s that the trainer would take of somewhat more workers than that.
        settled: the window by which it settled; None while it searches.
        odd: windows in a row that did not look like the settled one.
        reason: why the target is what it is.
    """

    target: int = 1
    tried: Mapping[int, float] = field(default_factory=dict)
    worker_rate: float | None = None
    enough: bool = False
    promised: float = 0.0
    settled: RateWindow | None = None
    odd: int = 0
    reason: str = "one worker to begin with"


def match_rates(
    state: RateMatch, window: RateWindow, *, most: int, settings: RateMatchSettings | None = None
) -> RateMatch:
    """Takes in a window.

    Args:
        state: where the rule stood.
        window: of what happened since then. One of another number of workers than is wanted, or
            than the pool can give, is passed over.
        most: workers that the pool could give now, at least 1. What is wanted may be more: it is
            wanted still when the pool has it.
        settings: None: the defaults.
    """
    settings = settings or RateMatchSettings()
    if window.workers != min(state.target, most):
        return state
    if state.settled is not None:
        if window.workers != state.settled.workers:
            return state
        if not _is_odd(state, state.settled, window, settings):
            return replace(state, odd=0) if state.odd else state
        if state.odd + 1 < settings.reopen_windows:
            return replace(state, odd=state.odd + 1)
        # A trainer that does not wait got slower or faster by itself: a worker's rate holds.
        kept = None if window.waited else state.worker_rate
        state = replace(
            state, tried={}, worker_rate=kept, enough=False, promised=0.0, settled=None, odd=0
        )
    return _search(_learn(state, window, settings), window, settings)


def _is_odd(
    state: RateMatch, settled: RateWindow, window: RateWindow, settings: RateMatchSettings
) -> bool:
    pairs = [(settled.rate, window.rate)]
    if settled.demand is not None and window.demand is not None:
        pairs.append((settled.demand, window.demand))
    if any(_differ(*pair, settings.reopen_over) for pair in pairs):
        return True
    best = _best(state, settings)
    return window.waited and not settled.waited and window.rate < (1 - settings.tolerance) * best


def _differ(one: float, other: float, factor: float) -> bool:
    return max(one, other) > factor * min(one, other)


def _learn(state: RateMatch, window: RateWindow, settings: RateMatchSettings) -> RateMatch:
    n, rate = window.workers, window.rate
    enough, promised = state.enough, state.promised
    if not window.waited or _is_knee(state, window, settings):
        enough = True
    elif window.demand is not None and _needed(window.demand, rate / n, settings) <= n:
        enough, promised = True, max(promised, window.demand)
    return replace(state, tried={**state.tried, n: rate}, enough=enough, promised=promised)


def _is_knee(state: RateMatch, window: RateWindow, settings: RateMatchSettings) -> bool:
    smaller = [n for n in state.tried if n < window.workers]
    if not smaller:
        return False
    before = max(smaller)
    was = state.tried[before]
    promised = was * window.workers / before
    if window.demand is not None:
        promised = min(promised, window.demand)
    # A little more is promised where the demand is nearly met: that says nothing.
    if promised <= (1 + settings.tolerance) * was:
        return True
    return window.rate - was < settings.knee * (promised - was)


def _search(state: RateMatch, window: RateWindow, settings: RateMatchSettings) -> RateMatch:
    if not state.enough:
        return _grow(state, window, settings)
    best = _best(state, settings)
    good = (1 - settings.tolerance) * best
    high = min((n for n, rate in state.tried.items() if rate >= good), default=None)
    if high is None:
        # What gave more once does not now.
        return _grow(replace(state, enough=False, promised=0.0), window, settings)
    low = max((n for n in state.tried if n < high), default=0)
    if low:
        # Of a number that is too small: above it, something that all share may be the limit.
        state = replace(state, worker_rate=state.tried[low] / low)
    guess = max(_guess(state, high, best, settings), low + 1)
    if guess >= high:
        reason = f"{high} workers: {state.tried[high]:.3g} batches/s"
        if low:
            reason += f"; {low} gave {state.tried[low]:.3g}"
        # Where it comes back to a number that it had left, the next window there is the one.
        settled = window if window.workers == high else None
        return replace(state, target=high, settled=settled, reason=reason)
    reason = f"{guess} workers: {high} give {state.tried[high]:.3g} batches/s; fewer may do"
    return replace(state, target=guess, reason=reason)


def _best(state: RateMatch, settings: RateMatchSettings) -> float:
    # The largest of several equal figures is the luckiest one; their mean is not.
    top = max(state.tried.values())
    alike = [rate for rate in state.tried.values() if rate >= (1 - settings.tolerance) * top]
    return max(fmean(alike), state.promised)


def _grow(state: RateMatch, window: RateWindow, settings: RateMatchSettings) -> RateMatch:
    n = window.workers
    if window.demand is None:
        target = 2 * n
        reason = f"{target} workers: the trainer always waits for {n}"
    else:
        needed = _needed(window.demand, window.rate / n, settings)
        target = min(needed, settings.most_growth * n)
        reason = (
            f"{target} workers: {n} give {window.rate:.3g} batches/s, and the trainer could take "
            f"{window.demand:.3g}"
        )
    return replace(state, target=target, reason=reason)


def _guess(state: RateMatch, high: int, best: float, settings: RateMatchSettings) -> int:
    """The number to try, below one that is enough."""
    if state.worker_rate is None:
        return max(high // 2, 1)
    return _needed(best, state.worker_rate, settings)


def _needed(rate: float, worker_rate: float, settings: RateMatchSettings) -> int:
    # A hair over a whole number is still that number.
    return max(1, math.ceil(rate / (worker_rate * (1 + settings.tolerance)) - 1e-9))
