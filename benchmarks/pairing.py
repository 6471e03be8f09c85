"""Runs both sides in turn until their ratio is known.

A round is two runs of ours and two of stock, in random order: ours against stock is what is asked;
stock against itself shows what the machine and the method make of nothing.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from benchmarks import ratios
from benchmarks.ratios import Interval, estimate

FEWEST_PAIRS = 2 * ratios.FEWEST_PAIRS
"""So that stock against itself has enough."""


class Stop(Enum):
    """Why no further pair was measured."""

    PRECISE = "the interval is narrow enough"
    TIME = "the time was up"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """When a comparison is done."""

    half_width: float = 0.02
    """Of the 95 % interval, as a share of the ratio."""
    least_pairs: int = 30
    """Not below `FEWEST_PAIRS`."""
    max_seconds: float = 600
    """With the least pairs and so much time spent, it ends however wide the interval is."""


@dataclass(slots=True, kw_only=True)
class Runs:
    """What was measured, in the order of the rounds. Each side is measured twice in each."""

    ours: list[float] = field(default_factory=list)
    stock: list[float] = field(default_factory=list)

    @property
    def pairs(self) -> int:
        """Of ours and stock; two in each round."""
        return min(len(self.ours), len(self.stock))

    def ratio(self) -> Interval:
        """Ours against stock."""
        return estimate([a / b for a, b in zip(self.ours, self.stock, strict=True)])

    def noise(self) -> Interval:
        """Stock against itself; half as many pairs."""
        return estimate([a / b for a, b in zip(self.stock[::2], self.stock[1::2], strict=True)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """All runs of one case."""

    runs: Runs
    stop: Stop
    seconds: float


Measure = Callable[[], float]
"""Makes one run, and returns what was measured."""


def compare(
    ours: Measure,
    stock: Measure,
    plan: Plan,
    *,
    shuffled: random.Random,
    tell: Callable[[Runs, float], None],
    clock: Callable[[], float] = time.monotonic,
) -> Comparison:
    """Measures rounds until the plan says that it is enough.

    Args:
        ours: one run of ours.
        stock: one run of stock.
        plan: when it is enough.
        shuffled: puts the three runs of a round in order.
        tell: is told, after each round, all runs and the seconds that went by.
        clock: in seconds.
    """
    runs = Runs()
    began = clock()
    while True:
        turns = 2 * [(ours, runs.ours), (stock, runs.stock)]
        shuffled.shuffle(turns)
        for measure, results in turns:
            results.append(measure())
        seconds = clock() - began
        tell(runs, seconds)
        stop = _stop(runs, seconds, plan)
        if stop is not None:
            return Comparison(runs=runs, stop=stop, seconds=seconds)


def _stop(runs: Runs, seconds: float, plan: Plan) -> Stop | None:
    if runs.pairs < plan.least_pairs:
        return None
    if runs.ratio().half_width <= plan.half_width:
        return Stop.PRECISE
    return Stop.TIME if seconds >= plan.max_seconds else None
