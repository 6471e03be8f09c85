"""How much faster one side is than the other, and how sure that is.

A machine that does other things, too, has good and bad seconds. So what is compared are the two
runs of a pair, made one after the other, and what is estimated is the middle of the pairs' ratios.
One that a hiccup spoilt must not move it: the estimate is Hodges and Lehmann's, with the interval
that belongs to it (from the Wilcoxon signed-rank test). It needs no normal distribution and is
nearly as narrow as the t interval where there is one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

FEWEST_PAIRS = 6
"""With fewer, not even the whole range of the ratios is a 95 % interval."""

_NORMAL_QUANTILE = 1.959964
"""Of 97.5 %: a two-sided interval of 95 %."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """An estimated ratio and its 95 % interval."""

    ratio: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Distance of the farther end, as a share of the ratio."""
        return max(self.high / self.ratio - 1, 1 - self.low / self.ratio)


class Side(Enum):
    """On which side of its limit a ratio should lie."""

    AT_LEAST = "at least"
    AT_MOST = "at most"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """What a ratio should be."""

    side: Side
    limit: float

    def holds(self, interval: Interval) -> bool:
        """Whether the interval does not lie wholly on the wrong side."""
        if self.side is Side.AT_LEAST:
            return interval.high >= self.limit
        return interval.low <= self.limit

    def __str__(self) -> str:
        return f"{self.side.value} {self.limit:g}"


def estimate(ratios: Sequence[float]) -> Interval:
    """The middle of the pairs' ratios.

    Args:
        ratios: one for each pair, all positive.

    Raises:
        ValueError: there are fewer than `FEWEST_PAIRS`.
    """
    pairs = len(ratios)
    if pairs < FEWEST_PAIRS:
        raise ValueError(f"{pairs} pairs give no 95 % interval: measure at least {FEWEST_PAIRS}")
    logs = np.log(np.asarray(ratios))
    means = np.add.outer(logs, logs)[np.tril_indices(pairs)] / 2
    means.sort()
    outside = max(1, math.floor(_rank_outside(pairs)))
    low, middle, high = means[outside - 1], np.median(means), means[-outside]
    return Interval(ratio=math.exp(middle), low=math.exp(low), high=math.exp(high))


def _rank_outside(pairs: int) -> float:
    """Rank, from 1, of the smallest mean of two that the interval holds, by the normal
    approximation (good to one rank from 6 pairs up).
    """
    mean = pairs * (pairs + 1) / 4
    deviation = math.sqrt(pairs * (pairs + 1) * (2 * pairs + 1) / 24)
    return mean - _NORMAL_QUANTILE * deviation
