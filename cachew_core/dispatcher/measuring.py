"""Profiles of jobs' pipelines: measured on a worker node beside the training, kept for the next
run, and put into the policy's terms.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cachew_core.dispatcher.history import History
from cachew_core.dispatcher.jobs import Job
from cachew_core.dispatcher.pool import Pool
from cachew_core.errors import CachewError
from cachew_core.pipeline.points import CachePoint
from cachew_core.pipeline.variants import worker_variant
from cachew_core.policy.costs import Measurement, PointProfile, Profile
from cachew_core.policy.decisions import Environment

log = logging.getLogger(__name__)

BATCHES = 100
"""Elements at the pipeline's end that make a figure good enough."""

CLEARLY = 1.1
"""What differs by less may be noise."""


class Measurer:
    """Measures pipelines, each once in an environment.

    Args:
        pool: its agents run the measurements.
        history: where they are kept.
        environment: of this service.
        scratch: makes the name of a folder on the cache's disk that is not there yet.
        budget_s: what one measurement may take, about.
    """

    def __init__(
        self,
        pool: Pool,
        history: History,
        environment: Environment,
        *,
        scratch: Callable[[], Path],
        budget_s: float,
    ) -> None:
        self._pool = pool
        self._history = history
        self._environment = environment
        self._scratch = scratch
        self._budget_s = budget_s
        self._figures: dict[str, Mapping[str, Any]] = {}
        self._problems: dict[str, str] = {}
        self._running: dict[str, asyncio.Task[None]] = {}

    async def find(self, job: Job) -> None:
        """Looks whether the pipeline was measured in an earlier run."""
        fingerprint = job.request.fingerprint
        if fingerprint in self._figures:
            return
        known = await asyncio.to_thread(self._history.profile, fingerprint, self._environment)
        if known is not None:
            self._figures[fingerprint] = known

    def start(self, job: Job, points: Sequence[CachePoint]) -> None:
        """Has the pipeline measured, unless that is known, under way, or did not work."""
        fingerprint = job.request.fingerprint
        if fingerprint in {*self._figures, *self._problems, *self._running}:
            return
        measuring = self._measure(job.name, fingerprint, job.request.graph, points)
        task = asyncio.ensure_future(measuring)
        self._running[fingerprint] = task
        task.add_done_callback(lambda _: self._running.pop(fingerprint, None))

    async def _measure(
        self, name: str, fingerprint: str, graph: bytes, points: Sequence[CachePoint]
    ) -> None:
        try:
            whole = await asyncio.to_thread(
                worker_variant, graph, sharded=False, single=False, epoch=0
            )
            answer = await self._pool.profile(
                whole,
                [point.node for point in points],
                str(self._scratch()),
                self._budget_s,
                BATCHES,
            )
        except CachewError as error:
            log.warning("job %s: its pipeline could not be measured: %s", name, error)
            self._problems[fingerprint] = str(error)
            return
        figures = json.loads(answer)
        figures["points"] = {
            point.name: row for point, row in zip(points, figures["points"], strict=False)
        }
        self._figures[fingerprint] = figures
        log.info("job %s: its pipeline is measured: %s", name, json.dumps(figures))
        await asyncio.to_thread(self._history.keep_profile, fingerprint, self._environment, figures)

    async def correct(self, job: Job, compute_s: float) -> None:
        """Takes what trainers saw for the whole pipeline's time, where that is clearly shorter: a
        measurement shares cores and the sources' bandwidth with the training that it runs beside.

        Args:
            job: whose trainers they are.
            compute_s: time of one worker per element at the pipeline's end, as they saw it.
        """
        fingerprint = job.request.fingerprint
        figures = self._figures.get(fingerprint)
        if figures is None or compute_s * CLEARLY >= figures["compute_s"]:
            return
        log.info(
            "job %s: computing was measured as %.1f ms an element, and its trainers see %.1f",
            job.name,
            1e3 * figures["compute_s"],
            1e3 * compute_s,
        )
        points = {
            # A part of the pipeline takes no longer than all of it.
            name: {**row, "suffix_s": min(row["suffix_s"], compute_s)}
            for name, row in figures["points"].items()
        }
        corrected = {**figures, "compute_s": compute_s, "points": points}
        self._figures[fingerprint] = corrected
        await asyncio.to_thread(
            self._history.keep_profile, fingerprint, self._environment, corrected
        )

    def is_running(self, job: Job) -> bool:
        """Whether the pipeline is being measured."""
        return job.request.fingerprint in self._running

    def problem(self, job: Job) -> str:
        """Why the pipeline could not be measured; empty if it could, or was not tried."""
        return self._problems.get(job.request.fingerprint, "")

    def profile(
        self, job: Job, points: Sequence[PointProfile], *, batches: int | None
    ) -> Profile | None:
        """The pipeline in the policy's terms; None: it is not measured.

        Args:
            job: whose pipeline it is.
            points: its cache points, without their measurements.
            batches: elements of an epoch at the pipeline's end; None: unknown.
        """
        figures = self._figures.get(job.request.fingerprint)
        return None if figures is None else profile_of(figures, points, batches=batches)

    async def stop(self) -> None:
        """Breaks off what is under way."""
        for task in list(self._running.values()):
            task.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)


def profile_of(
    figures: Mapping[str, Any], points: Sequence[PointProfile], *, batches: int | None
) -> Profile:
    """What was measured of a pipeline, as it is kept, in the policy's terms.

    Args:
        figures: from the metadata store.
        points: the pipeline's cache points, without their measurements.
        batches: elements of an epoch at the pipeline's end; None: unknown.
    """
    measured = tuple(
        replace(point, measured=_measurement(figures["points"].get(point.name))) for point in points
    )
    return Profile(compute_s=figures["compute_s"], points=measured, batches=batches)


def _measurement(row: Mapping[str, Any] | None) -> Measurement | None:
    if row is None or not row["sampled"]:
        return None
    return Measurement(
        per_batch=row["per_batch"],
        active_s=row["prefix_s"],
        bytes_per_element=row["bytes_per_element"],
        # Whether an entry stays in the kernel's memory from one epoch to the next is not known.
        get_s=row["read_cold_s"],
        put_s=row["write_s"],
        suffix_s=row["suffix_s"],
    )
