"""What is kept of a training of several epochs."""

from __future__ import annotations

from benchmarks.record import Record
from benchmarks.scaling.costs import cost_of


class EpochRecord(Record):
    """One epoch."""

    epoch: int
    mode: str
    began_s: float
    """Since the training's start."""
    seconds: float
    """From asking for the first batch to the end."""
    worker_s: float
    """For all workers, the time for which they were held."""
    workers: int
    """That were wanted last; 0: its trainer read files itself."""

    @property
    def cost(self) -> float:
        """At the paper's prices, in dollars."""
        return cost_of(self.seconds, self.worker_s)


class TrainingRecord(Record):
    """One training."""

    epochs: list[EpochRecord]
    workers: list[tuple[float, int]]
    """What was wanted, with the seconds since the training's start."""

    @property
    def modes(self) -> list[str]:
        """Of its epochs."""
        return [epoch.mode for epoch in self.epochs]
