"""Windows in which a job's throughput, its trainer's demand and a worker's rate can be read off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import median, stdev

from cachew_core.policy.progress import Progress, Stretch, between, went_back


@dataclass(frozen=True, slots=True, kw_only=True)
class RateSettings:
    """Which batches make a window.

    Attributes:
        least_batches: of a window.
        batches_per_worker: of a window, at least so many for each worker; and as many are passed
            over after a change of the number of workers, for the larger one.
        least_slices: measurements of which a window is made.
        least_gaps: a window lasts so many times as long as its longest gap between two batches, so
            that a trainer that takes many batches at once is seen at work, too.
        precision: a window goes on until the standard error of its batches' time, judged by its
            thirds, is less than this part of it.
        most_growth: or until it has so many times the batches that it needs at least.
        pause_over: a slice whose batches take longer than the slowest one of late by this factor is
            a pause (a checkpoint, an evaluation), and is left out; the second one in a row is not.
        remembered: windows that count as "of late".
        waits_over: a trainer waits if it does for more than this part of the time.
        hidden_under: the demand can't be told if the trainer's own part of the time is less.
    """

    least_batches: int = field(default=10, metadata={"origin": "guess"})
    batches_per_worker: int = field(default=3, metadata={"origin": "guess"})
    least_slices: int = field(default=3, metadata={"origin": "guess"})
    least_gaps: float = field(default=5.0, metadata={"origin": "guess"})
    precision: float = field(default=0.015, metadata={"origin": "guess"})
    most_growth: int = field(default=10, metadata={"origin": "guess"})
    pause_over: float = field(default=5.0, metadata={"origin": "guess"})
    remembered: int = field(default=5, metadata={"origin": "guess"})
    waits_over: float = field(default=0.02, metadata={"origin": "guess"})
    hidden_under: float = field(default=0.05, metadata={"origin": "guess"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RateWindow:
    """What one number of workers delivered.

    Attributes:
        workers: that served.
        rate: batches/s that the trainer got.
        demand: batches/s that it would take without waiting; None: its own part of the time is too
            short to tell.
        waited: it waited, from the window's first third to its last.
    """

    workers: int
    rate: float
    demand: float | None
    waited: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RateGathering:
    """A window that is not complete yet; a new one is empty."""

    last: Progress | None = None
    slices: tuple[Stretch, ...] = ()
    skip_batches: int = 0
    slowest_s: tuple[float, ...] = ()
    """Of each of the last windows, seconds per batch of its slowest slice."""
    paused: bool = False
    """The last slice was left out as a pause."""


def gather_rates(
    gathering: RateGathering, now: Progress, settings: RateSettings
) -> tuple[RateGathering, RateWindow | None]:
    """Takes in how far the trainer is. Windows run on from one epoch to the next.

    Args:
        gathering: what is known.
        now: later than all that was taken in before. Counts that went back within an epoch make
            no sense, and are passed over.
        settings: which batches count.

    Returns:
        What is known then, and a window if there is enough for one.
    """
    last = gathering.last
    if last is None:
        return replace(gathering, last=now), None
    if now.epoch == last.epoch and went_back(last, now):
        return gathering, None
    gathering = replace(gathering, last=now)
    if now.workers != last.workers:
        skip = settings.batches_per_worker * max(now.workers, last.workers)
        return replace(gathering, slices=(), skip_batches=skip), None
    piece = _since(last, now)
    if piece.batches <= 0 or now.ending:
        return gathering, None
    if gathering.skip_batches > 0:
        return replace(gathering, skip_batches=gathering.skip_batches - piece.batches), None
    ordinary_s = max(gathering.slowest_s, default=float("inf"))
    slow = piece.batch_s > settings.pause_over * ordinary_s
    if slow and not gathering.paused:
        return replace(gathering, paused=True), None
    if slow:
        # No pause: this is how it is now.
        gathering = replace(gathering, slices=(), slowest_s=())
    gathering = replace(gathering, paused=False)
    slices = (*gathering.slices, piece)
    if not _is_complete(slices, now.workers, settings):
        return replace(gathering, slices=slices), None
    slowest_s = (*gathering.slowest_s, max(each.batch_s for each in slices))
    gathering = replace(gathering, slices=(), slowest_s=slowest_s[-settings.remembered :])
    return gathering, _window(slices, now.workers, settings)


def _since(last: Progress, now: Progress) -> Stretch:
    if now.epoch == last.epoch:
        return between(last, now)
    # The clock starts with the first one.
    return Stretch(
        workers=now.workers, batches=now.batches - 1, seconds=now.seconds, wait_s=now.wait_s
    )


def _is_complete(slices: Sequence[Stretch], workers: int, settings: RateSettings) -> bool:
    if len(slices) < settings.least_slices:
        return False
    needed = max(settings.least_batches, settings.batches_per_worker * workers)
    typical_s = median(each.batch_s for each in slices)
    gap_s = max(each.seconds - (each.batches - 1) * typical_s for each in slices)
    seconds = sum(each.seconds for each in slices)
    batches = sum(each.batches for each in slices)
    if batches < needed or not seconds or seconds < settings.least_gaps * gap_s:
        return False
    # When the last batch of a slice came is known roughly, and what one slice has too much the next
    # one has too little: many slices together are better known than each of them.
    thirds = _thirds(slices)
    error_s = stdev(_batch_s(part) for part in thirds) / len(thirds) ** 0.5
    precise = error_s <= settings.precision * seconds / batches
    return precise or batches >= settings.most_growth * needed


def _window(slices: Sequence[Stretch], workers: int, settings: RateSettings) -> RateWindow:
    seconds = sum(each.seconds for each in slices)
    own_s = seconds - sum(each.wait_s for each in slices)
    batches = sum(each.batches for each in slices)
    first, *_, last = _thirds(slices)
    waited = all(_wait_share(part) > settings.waits_over for part in (first, last))
    hidden = own_s < settings.hidden_under * seconds
    return RateWindow(
        workers=workers,
        rate=batches / seconds,
        demand=None if hidden else batches / own_s,
        waited=waited,
    )


def _thirds(slices: Sequence[Stretch]) -> list[Sequence[Stretch]]:
    first, second = len(slices) // 3, len(slices) - len(slices) // 3
    return [slices[:first], slices[first:second], slices[second:]]


def _batch_s(slices: Sequence[Stretch]) -> float:
    return sum(each.seconds for each in slices) / sum(each.batches for each in slices)


def _wait_share(slices: Sequence[Stretch]) -> float:
    seconds = sum(each.seconds for each in slices)
    return sum(each.wait_s for each in slices) / seconds if seconds else 0.0
