"""Reports on a job's batches: how long they took while one number of workers served it.

The start of an epoch and what follows a change of the number say nothing about that number: the
trainer still has batches of before, and new workers have none yet.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from cachew_core.policy.progress import Progress, Stretch, between, went_back


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSettings:
    """Which batches make a report.

    Attributes:
        batches: of one report, at least.
        pause_batches: passed over after a change of the number of workers.
        skip_batches: passed over at an epoch's start.
    """

    batches: int = field(default=100, metadata={"origin": "paper"})
    pause_batches: int = field(default=150, metadata={"origin": "paper"})
    skip_batches: int = field(default=200, metadata={"origin": "code"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathering:
    """A report that is not complete yet; a new one is empty."""

    last: Progress | None = None
    begun: Progress | None = None
    skipped_until: int = 0
    """Batches of the epoch."""


def gather(
    gathering: Gathering, now: Progress, settings: ReportSettings
) -> tuple[Gathering, Stretch | None]:
    """Takes in how far the trainer is.

    Args:
        gathering: what is known.
        now: later than all that was taken in before. Counts that went back within an epoch make
            no sense, and are passed over.
        settings: which batches count.

    Returns:
        What is known then, and a report if there are enough batches for one.
    """
    last = gathering.last
    if last is not None and now.epoch == last.epoch and went_back(last, now):
        return gathering, None
    begun, skipped_until = gathering.begun, gathering.skipped_until
    if last is None or now.epoch != last.epoch:
        begun, skipped_until = None, settings.skip_batches
    if last is not None and now.workers != last.workers:
        begun, skipped_until = None, max(skipped_until, now.batches + settings.pause_batches)
    report = None
    if begun is None:
        begun = now if now.batches >= max(skipped_until, 1) else None
    elif now.batches - begun.batches >= settings.batches:
        report = between(begun, now)
        begun = now
    return Gathering(last=now, begun=begun, skipped_until=skipped_until), report
