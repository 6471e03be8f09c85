"""What a trainer measured: how far it is, and what lies between two such measurements."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a trainer is in an epoch. All but `workers` counts from the epoch's start.

    Attributes:
        epoch: the job's epoch.
        workers: that serve the job now.
        batches: that the trainer got.
        seconds: from the first one to the last one.
        wait_s: how much of that the trainer waited for data.
        ending: no more input is left to hand out, so workers run dry one after the other.
    """

    epoch: int
    workers: int
    batches: int
    seconds: float
    wait_s: float
    ending: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Batches in a row that one number of workers delivered.

    Attributes:
        workers: that served.
        batches: how many.
        seconds: how long they took.
        wait_s: how much of that the trainer waited for data.
    """

    workers: int
    batches: int
    seconds: float
    wait_s: float

    @property
    def batch_s(self) -> float:
        """Seconds per batch; there must be one."""
        return self.seconds / self.batches


def went_back(last: Progress, now: Progress) -> bool:
    """Whether counts of the same epoch shrank, which no trainer can mean."""
    return now.batches < last.batches or now.seconds < last.seconds or now.wait_s < last.wait_s


def between(last: Progress, now: Progress) -> Stretch:
    """What lies between two measurements in one epoch, with `now`'s workers."""
    return Stretch(
        workers=now.workers,
        batches=now.batches - last.batches,
        seconds=now.seconds - last.seconds,
        wait_s=now.wait_s - last.wait_s,
    )
