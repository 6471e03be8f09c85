"""Kubernetes' Horizontal Pod Autoscaler, as its documentation describes it, with a clock of ours.

https://kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale: each sync the wanted
number is `ceil(current * metric / target)`; a ratio near 1 changes nothing; what is wanted less is
the largest wish of the last minutes; a step up is bounded.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class HpaSettings:
    """Kubernetes' defaults.

    Attributes:
        sync_s: between two decisions.
        tolerance: a metric within this part of its target changes nothing.
        stabilization_s: the number falls to the largest wish of so long.
        most_growth: a step up is at most to so many times the number,
        most_added: or by so many, if that is more.
    """

    sync_s: float = 15.0
    tolerance: float = 0.1
    stabilization_s: float = 300.0
    most_growth: float = 2.0
    most_added: int = 4

    def scaled(self, factor: float) -> HpaSettings:
        """The same where all times are shorter by that factor."""
        return HpaSettings(
            sync_s=self.sync_s * factor,
            tolerance=self.tolerance,
            stabilization_s=self.stabilization_s * factor,
            most_growth=self.most_growth,
            most_added=self.most_added,
        )


@dataclass(slots=True, kw_only=True)
class Hpa:
    """One autoscaler.

    Attributes:
        target: value of the metric that it steers to.
        least, most: workers.
    """

    target: float
    least: int
    most: int
    settings: HpaSettings = field(default_factory=HpaSettings)
    _wishes: deque[tuple[float, int]] = field(default_factory=deque)

    def sync(self, now_s: float, workers: int, metric: float) -> int:
        """The number of workers from now on.

        Args:
            now_s: the time.
            workers: that there are.
            metric: its mean over all of them, since the last sync.
        """
        wish = self._clipped(self._wish(workers, metric), workers)
        self._wishes.append((now_s, wish))
        while self._wishes[0][0] < now_s - self.settings.stabilization_s:
            self._wishes.popleft()
        if wish >= workers:
            return wish
        return min(workers, max(earlier for _, earlier in self._wishes))

    def _wish(self, workers: int, metric: float) -> int:
        ratio = metric / self.target
        if abs(ratio - 1) <= self.settings.tolerance:
            return workers
        return math.ceil(workers * ratio - 1e-9)

    def _clipped(self, wish: int, workers: int) -> int:
        growth = max(
            math.floor(workers * self.settings.most_growth), workers + self.settings.most_added
        )
        return max(self.least, min(wish, growth, self.most))
