"""What jobs did in the last hour, a sample a second: for people who want to see it."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import asdict, dataclass, field

from cachew_core.dispatcher.autoscaling import Autoscaler
from cachew_core.dispatcher.jobs import Job, JobBook
from cachew_core.proto import cachew_pb2

KEPT_SAMPLES = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One job at one moment.

    Attributes:
        at_s: Unix time.
        epoch: its newest.
        mode: of that.
        workers: that serve it.
        wanted: workers, by its policy; None: all.
        batch_ms: from batch to batch since the last sample; None: there was no batch.
        wait_share: of the trainers' time since then; None likewise.
    """

    at_s: float
    epoch: int
    mode: str
    workers: int
    wanted: int | None
    batch_ms: float | None
    wait_share: float | None


@dataclass(slots=True, kw_only=True)
class _Track:
    samples: deque[Sample] = field(default_factory=lambda: deque(maxlen=KEPT_SAMPLES))
    epoch: int = 0
    totals: cachew_pb2.EpochMetrics = field(default_factory=cachew_pb2.EpochMetrics)


class Timeline:
    """Samples of all jobs that are read.

    Args:
        book: of the jobs.
        autoscaler: says what they want.
    """

    def __init__(self, book: JobBook, autoscaler: Autoscaler) -> None:
        self._book = book
        self._autoscaler = autoscaler
        self._tracks: dict[str, _Track] = {}

    def sample(self) -> None:
        """Looks at all jobs; to be called every second."""
        for job in self._book.jobs.values():
            if not job.ended and job.epochs:
                self._look(job, self._tracks.setdefault(job.id, _Track()))
        for gone in self._tracks.keys() - self._book.jobs.keys():
            del self._tracks[gone]

    def of(self, job: Job) -> list[dict[str, object]]:
        """A job's samples as plain values, oldest first."""
        track = self._tracks.get(job.id)
        return [asdict(sample) for sample in track.samples] if track else []

    def _look(self, job: Job, track: _Track) -> None:
        epoch = job.epochs[-1]
        before = track.totals if track.epoch == epoch.number else cachew_pb2.EpochMetrics()
        now = epoch.totals()
        track.epoch, track.totals = epoch.number, now
        elements = now.elements - before.elements
        spent_s = now.wait_s + now.step_s - before.wait_s - before.step_s
        span_s = now.span_s - before.span_s
        track.samples.append(
            Sample(
                at_s=time.time(),
                epoch=epoch.number,
                mode=epoch.mode,
                workers=sum(len(generation.serving()) for generation in job.generations),
                wanted=self._autoscaler.want(job),
                batch_ms=1000 * span_s / elements if elements > 0 else None,
                wait_share=(now.wait_s - before.wait_s) / spent_s if spent_s > 0 else None,
            )
        )
