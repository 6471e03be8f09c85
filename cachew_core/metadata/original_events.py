"""What happened in a store, as the original Cachew's dispatcher wrote it to its `events.csv`: its
plotting scripts read that.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, fields
from datetime import datetime, timedelta
from typing import TextIO

from cachew_core.metadata.records import Decision, EpochRecord
from cachew_core.metadata.store import MetadataStore

_ALL = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class OriginalEvent:
    """A row; the fields are the columns.

    Attributes:
        time: microseconds since 1970.
        dataset_id: a number for each pipeline, from 1.
        job_id: a number for each epoch, from 1: to the original, each is a job of its own.
        additional: a mode, or a number of workers.
    """

    time: int
    fingerprint: str
    dataset_id: int
    job_name: str
    job_id: int
    event_type: str
    additional: str


def write_events(store: MetadataStore, file: TextIO) -> int:
    """Writes all of a store's events, the oldest first, below a line of headings; how many.

    Raises:
        MetadataError: the store failed.
    """
    pipelines = sorted(store.pipelines(), key=lambda pipeline: pipeline.first_seen)
    found = original_events(
        [pipeline.fingerprint for pipeline in pipelines],
        store.epochs(limit=_ALL),
        store.decisions(limit=_ALL),
    )
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(field.name for field in fields(OriginalEvent))
    writer.writerows(astuple(event) for event in found)
    return len(found)


def original_events(
    fingerprints: Sequence[str], epochs: Iterable[EpochRecord], decisions: Iterable[Decision]
) -> list[OriginalEvent]:
    """The events of epochs and decisions, the oldest first.

    Args:
        fingerprints: of all pipelines; their order numbers them.
        epochs: in any order.
        decisions: in any order.
    """
    numbers = {fingerprint: number for number, fingerprint in enumerate(fingerprints, start=1)}
    made = _Events(numbers, sorted(decisions, key=lambda decision: decision.decided_at))
    by_job: dict[str, list[EpochRecord]] = {}
    for epoch in sorted(epochs, key=_began_at):
        by_job.setdefault(epoch.job, []).append(epoch)
        made.number(epoch)
    for of_job in by_job.values():
        made.tell_epochs(of_job)
    made.tell_decisions()
    return sorted(made.events, key=lambda event: event.time)


class _Events:
    """Collects events.

    A service that starts anew counts a job's epochs from the beginning, so that a number alone is
    not one epoch; those of decisions are looked for by time.
    """

    def __init__(self, numbers: dict[str, int], decisions: Sequence[Decision]) -> None:
        self.events: list[OriginalEvent] = []
        self._numbers = numbers
        self._decisions = decisions
        self._epochs: dict[EpochRecord, int] = {}

    def number(self, epoch: EpochRecord) -> None:
        self._epochs[epoch] = len(self._epochs) + 1

    def tell_epochs(self, epochs: Sequence[EpochRecord]) -> None:
        workers: int | None = None
        for epoch in epochs:
            began = _began_at(epoch)
            self._add(began, epoch, "execution_mode_change", epoch.mode)
            if workers is None:
                self._add(began, epoch, "starting_worker_count", str(epoch.workers))
            elif workers != epoch.workers:
                kind = "scale_up" if epoch.workers > workers else "scale_down"
                self._add(began, epoch, kind, str(epoch.workers))
            workers = epoch.workers
        self._add(epochs[-1].ended_at, epochs[-1], "end_training", str(epochs[-1].workers))

    def tell_decisions(self) -> None:
        for decision in self._decisions:
            later = (
                number
                for epoch, number in self._epochs.items()
                if epoch.job == decision.job
                and epoch.epoch == decision.epoch
                and epoch.ended_at >= decision.decided_at
            )
            self.events.append(
                OriginalEvent(
                    time=_microseconds(decision.decided_at),
                    fingerprint=decision.fingerprint,
                    dataset_id=self._numbers.get(decision.fingerprint, 0),
                    job_name=decision.job,
                    job_id=next(later, 0),
                    event_type="execution_policy_decision",
                    additional=decision.mode,
                )
            )

    def _add(self, at: datetime, epoch: EpochRecord, kind: str, additional: str) -> None:
        fingerprint = self._fingerprint(epoch)
        self.events.append(
            OriginalEvent(
                time=_microseconds(at),
                fingerprint=fingerprint,
                dataset_id=self._numbers.get(fingerprint, 0),
                job_name=epoch.job,
                job_id=self._epochs[epoch],
                event_type=kind,
                additional=additional,
            )
        )

    def _fingerprint(self, epoch: EpochRecord) -> str:
        """Of the pipeline that the job had when something was decided for it last."""
        known = ""
        for decision in self._decisions:
            if decision.job == epoch.job and (not known or decision.decided_at <= epoch.ended_at):
                known = decision.fingerprint
        return known


def _began_at(epoch: EpochRecord) -> datetime:
    return epoch.ended_at - timedelta(seconds=epoch.duration_s)


def _microseconds(at: datetime) -> int:
    return round(at.timestamp() * 1e6)
