"""Several trainers of one job taken together: how far the job is, whatever each of them measured.

Trainers that share a job's epochs take batches side by side. If they work in lockstep (they
exchange gradients after each batch), one that waits for data makes all wait, and what the others
measure as their own work is waiting for it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean

from cachew_core.policy.progress import Progress, Stretch

QUIET_S = 5.0
"""A trainer that took nothing for so long, while others did, is left out until it does again."""

LOCKSTEP_WITHIN = 0.1
"""Trainers whose rates over the epoch, up to a batch, differ by no more than this part are in
lockstep."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How far one trainer is, by its own measurement.

    Attributes:
        epoch: a number that is another one in each of its epochs.
        batches: that it got in this epoch.
        seconds: from the first one to the last one.
        wait_s: how much of that it waited for data.
        at_s: when it said so first, by the service's clock.
    """

    epoch: int
    batches: int
    seconds: float
    wait_s: float
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Trainers:
    """What is known of a job's trainers; new ones are unknown.

    Attributes:
        taken: each trainer's reading that went into `total` last.
        total: how far the job is.
    """

    taken: Mapping[str, Reading] = field(default_factory=dict)
    total: Progress | None = None


def problem_of(last: Reading | None, now: Reading) -> str:
    """Why a reading makes no sense; empty if it does.

    Args:
        last: of the same trainer, before; None: there was none.
        now: the reading.
    """
    values = {"batches": now.batches, "seconds": now.seconds, "waiting": now.wait_s}
    for name, value in values.items():
        if not math.isfinite(value) or value < 0:
            return f"{name}={value}"
    if now.wait_s > now.seconds:
        return f"it waited {now.wait_s:g} s of {now.seconds:g} s"
    if last is None or last.epoch != now.epoch:
        return ""
    if now.batches < last.batches:
        return f"batches went back from {last.batches} to {now.batches}"
    if now.seconds < last.seconds:
        return f"seconds went back from {last.seconds:g} to {now.seconds:g}"
    return ""


def combine(
    state: Trainers,
    readings: Mapping[str, Reading],
    *,
    epoch: int,
    workers: int,
    ending: bool = False,
) -> tuple[Trainers, Progress | None]:
    """Takes in what a job's trainers measured.

    Args:
        state: what was known.
        readings: the latest of each trainer that reads the job now, by its name; those that make
            sense.
        epoch: the job's newest.
        workers: that serve the job now.
        ending: no more input is left to hand out.

    Returns:
        What is known then, and how far the job is; None as long as a trainer that is at work has
        not told of new batches.
    """
    fresh = {name for name, now in readings.items() if _is_fresh(state.taken.get(name), now)}
    if not fresh:
        return state, None
    latest_s = max(readings[name].at_s for name in fresh)
    if any(latest_s - now.at_s < QUIET_S for name, now in readings.items() if name not in fresh):
        return state, None
    pieces = [_since(state.taken.get(name), readings[name], workers) for name in fresh]
    lockstep = _in_lockstep([readings[name] for name in fresh])
    before = state.total
    if before is None or before.epoch != epoch:
        # The clock starts with the first batch.
        before = Progress(epoch=epoch, workers=workers, batches=1, seconds=0.0, wait_s=0.0)
    total = _added(before, pieces, workers, ending=ending, lockstep=lockstep)
    taken = {name: now for name, now in readings.items() if name in fresh or name in state.taken}
    return Trainers(taken=taken, total=total), total


def _is_fresh(last: Reading | None, now: Reading) -> bool:
    known = last.batches if last is not None and last.epoch == now.epoch else 1
    return now.batches > known


def _since(last: Reading | None, now: Reading, workers: int) -> Stretch:
    if last is None or last.epoch != now.epoch:
        last = Reading(epoch=now.epoch, batches=1, seconds=0.0, wait_s=0.0, at_s=0.0)
    return Stretch(
        workers=workers,
        batches=now.batches - last.batches,
        seconds=now.seconds - last.seconds,
        wait_s=max(now.wait_s - last.wait_s, 0.0),
    )


def _in_lockstep(readings: list[Reading]) -> bool:
    counts = [(now.batches - 1, now.seconds) for now in readings if now.seconds > 0]
    # Their rounds began together, and each may have got its last batch early or late in one.
    most = max((count - 1) / seconds for count, seconds in counts) if counts else 0.0
    least = min((count + 1) / seconds for count, seconds in counts) if counts else 0.0
    return len(counts) > 1 and most <= (1 + LOCKSTEP_WITHIN) * least


def _added(
    before: Progress, pieces: list[Stretch], workers: int, *, ending: bool, lockstep: bool
) -> Progress:
    batches = sum(piece.batches for piece in pieces)
    rate = sum(piece.batches / piece.seconds for piece in pieces if piece.seconds > 0)
    seconds = batches / rate if rate else 0.0
    demand = _demand(pieces, lockstep=lockstep)
    own_s = min(batches / demand, seconds)
    return Progress(
        epoch=before.epoch,
        workers=workers,
        batches=before.batches + batches,
        seconds=before.seconds + seconds,
        # In this order it never becomes less by rounding.
        wait_s=before.wait_s + (seconds - own_s),
        ending=ending,
    )


def _demand(pieces: list[Stretch], *, lockstep: bool) -> float:
    """Batches/s that they would take together without waiting; infinite if they only wait."""
    steps_s = [max(piece.seconds - piece.wait_s, 0.0) / piece.batches for piece in pieces]
    if lockstep:
        steps_s = [min(*steps_s, _step_in_lockstep_s(pieces))] * len(pieces)
    return sum(1 / step_s if step_s else math.inf for step_s in steps_s)


def _step_in_lockstep_s(pieces: list[Stretch]) -> float:
    """What a trainer's step takes, without its waiting for the others' data.

    Where data is scarce, batches come evenly, and those who get one early wait for the one who gets
    it last. He waits for data during all of a round but his step, the one before him for one
    batch's time less, and so on. So their mean wait says what the step is; infinite: it is too long
    to say.
    """
    number = len(pieces)
    period_s = fmean(piece.seconds / piece.batches for piece in pieces)
    waits = sum(piece.wait_s / piece.seconds for piece in pieces if piece.seconds > 0)
    for waiting in range(1, number + 1):
        # The last one's wait, as a part of the round, if so many wait at all.
        last = (waits + waiting * (waiting - 1) / (2 * number)) / waiting
        if last * number <= waiting:
            return period_s * (1 - last)
    return math.inf
