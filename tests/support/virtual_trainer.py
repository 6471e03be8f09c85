"""A trainer and its workers in virtual time: how fast batches come is a formula."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from cachew_core.policy.progress import Progress


@dataclass(slots=True, kw_only=True)
class VirtualTrainer:
    """Attributes may be changed between two batches.

    Attributes:
        work_s: of one worker for a batch.
        step_s: of the trainer for a batch.
        workers: that serve now.
        shared_s: what all workers together need for a batch at least, whatever their number.
        noise: half the width of the part by which a batch's work differs.
        buffered: batches that may be ready and not taken yet.
        pauses: the trainer does something else after these batches of an epoch, for so many
            seconds.
        burst: the trainer takes so many batches at once, then works for all of them.
        every: batches between two measurements.
    """

    work_s: float
    step_s: float
    workers: int = 1
    shared_s: float = 0.0
    noise: float = 0.0
    buffered: int = 4
    pauses: dict[int, float] = field(default_factory=dict)
    burst: int = 1
    every: int = 5
    seed: int = 0

    def supply_s(self) -> float:
        """From batch to batch, if the trainer took them at once."""
        return max(self.work_s / self.workers, self.shared_s)

    def epoch(self, number: int, batches: int) -> Iterator[Progress]:
        """Reads an epoch; what it measured on the way."""
        chance = random.Random(f"{self.seed}-{number}")
        first_s = wait_s = ready_s = asked_s = got_s = 0.0
        taken: deque[float] = deque([0.0] * self.buffered, maxlen=self.buffered)
        for batch in range(1, batches + 1):
            noise = 1 + self.noise * chance.uniform(-1, 1)
            ready_s = max(ready_s, taken[0]) + self.supply_s() * noise
            got_s = max(asked_s, ready_s)
            if batch == 1:
                first_s = got_s
            else:
                wait_s += got_s - asked_s
            taken.append(got_s)
            own_s = self.step_s * self.burst if batch % self.burst == 0 else 0.0
            asked_s = got_s + own_s + self.pauses.get(batch, 0.0)
            if batch % self.every == 0 or batch == batches:
                yield Progress(
                    epoch=number,
                    workers=self.workers,
                    batches=batch,
                    seconds=got_s - first_s,
                    wait_s=wait_s,
                )
