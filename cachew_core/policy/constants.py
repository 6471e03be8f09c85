"""The numbers that autocache's rules are made of, each with where it comes from.

`origin` in a field's metadata is "paper" (the ATC'22 paper), "code" (the original's sources or
those of its successor) or "guess" (ours, until a measurement says better).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Objective(StrEnum):
    """What a choice should make small."""

    TIME = "time"
    """Seconds of an epoch."""
    COST = "cost"
    """Money: trainer and workers for the epoch's time, and the storage."""


class CostModel(StrEnum):
    """How the time of a read is put together from its parts."""

    OVERLAPPED = "overlapped"
    """The slowest of reading and computing: stages of a pipeline run at the same time."""
    PAPER = "paper"
    """Their sum, as the original has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """What things cost, in any one currency.

    Attributes:
        trainer_hour: an hour of all trainers of the job.
        worker_hour: an hour of one worker.
        gb_month: 10^9 bytes kept in the cache store for a month.
    """

    trainer_hour: float = field(default=4.96, metadata={"origin": "code"})
    worker_hour: float = field(default=0.427319, metadata={"origin": "code"})
    gb_month: float = field(default=0.04, metadata={"origin": "guess"})


@dataclass(frozen=True, slots=True, kw_only=True)
class AutocacheSettings:
    """How choices are made and taken back.

    Attributes:
        objective: what is made small.
        cost_model: how a read's time is predicted.
        margin: figures of which one is at most this part larger than the other count as equal.
        entry_days: how long an entry is expected to be kept, for the price of storing it.
        worse_by: a choice is wrong if it needs this part more than COMPUTE did.
        worse_epochs: it is taken back after so many epochs in a row of that.
        least_windows: an epoch with fewer comparable windows is no evidence.
    """

    objective: Objective = field(default=Objective.TIME, metadata={"origin": "paper"})
    cost_model: CostModel = field(default=CostModel.OVERLAPPED, metadata={"origin": "guess"})
    margin: float = field(default=0.03, metadata={"origin": "guess"})
    entry_days: float = field(default=7.0, metadata={"origin": "guess"})
    worse_by: float = field(default=0.10, metadata={"origin": "guess"})
    worse_epochs: int = field(default=2, metadata={"origin": "guess"})
    least_windows: int = field(default=3, metadata={"origin": "guess"})
