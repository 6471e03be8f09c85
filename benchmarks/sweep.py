"""Runs the autocaching study: for each wait the static policies and `auto` in turn, on one service.

Each policy has a path of its own to the same records, so none reads what another one has stored.
"""

from __future__ import annotations

import gc
import random
import statistics
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf

import cachew_core as cachew
from benchmarks.inflating import pipeline, write_records
from benchmarks.studies import MARK, Study
from benchmarks.sweep_report import ModelReport, PolicyReport, StudyReport
from cachew_core.cluster import down, status, up
from cachew_core.dispatcher.measuring import profile_of
from cachew_core.metadata import MetadataStore
from cachew_core.policy.autocache import choose
from cachew_core.policy.constants import AutocacheSettings, CostModel
from cachew_core.policy.costs import PointProfile
from cachew_core.policy.decisions import Environment, Situation
from cachew_core.policy.modes import END
from cachew_core.proto import cachew_pb2
from cachew_core.service_record import store_folder

STATIC = ("compute", "source", "full")
AUTO = "auto"
POLICY_OF_POINT = {"": "compute", MARK: "source", END: "full"}

_MOST_EPOCHS = 20
"""For a policy to come to the mode that it stays in."""

_IDLE_TIMEOUT_S = 600.0

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """How much is measured.

    Attributes:
        batches: of an epoch. Some are read before the first one comes: few would look fast.
        epochs: measured of each policy.
    """

    batches: int = 112
    epochs: int = 3


class UnsettledError(Exception):
    """A policy did not come to a mode that it stays in."""


def run_studies(
    studies: Sequence[Study], lake: Path, cache: Path, extent: Extent, *, tell: Tell
) -> Iterator[StudyReport]:
    """Runs study by study.

    Args:
        studies: the pipelines and their waits.
        lake: an empty folder from which they read.
        cache: an empty folder to store in.
        extent: how much is measured.
        tell: is told what is being done.

    Raises:
        UnsettledError: a policy went on and on without storing or computing for good.
        CachewError: the service failed.
    """
    name = f"bench-{uuid.uuid4().hex[:8]}"
    with ExitStack() as stack:
        tell("the service starts")
        stack.callback(down, name)
        record = up(
            name,
            workers=1,
            cache_dir=cache,
            idle_timeout_s=_IDLE_TIMEOUT_S,
            first_client_timeout_s=_IDLE_TIMEOUT_S,
        )
        for study in studies:
            tell("the records are written")
            records = lake / f"records-{study.record_bytes}"
            if not records.exists():
                write_records(records, study, extent.batches)
            jobs = [
                _Job(study, policy, records, name, record.endpoint) for policy in (*STATIC, AUTO)
            ]
            yield _Run(study, jobs, extent, tell).report()
            # The study's jobs end before the next one's begin.
            del jobs
            gc.collect()


class _Job:
    # One policy's job.

    def __init__(
        self, study: Study, policy: str, records: Path, service: str, endpoint: str
    ) -> None:
        self.policy = policy
        self.name = f"{study.name}-{policy}"
        self._service = service
        path = records.with_name(self.name)
        path.symlink_to(records.name)
        distribute = cachew.distribute(endpoint, job_name=self.name, cache_policy=policy)
        self._dataset: tf.data.Dataset = pipeline(study, path).apply(distribute)

    def batch_ms(self) -> float:
        """Reads an epoch; mean time from batch to batch, from its first to its last."""
        arrivals = [time.perf_counter() for _ in self._dataset]
        return 1e3 * (arrivals[-1] - arrivals[0]) / (len(arrivals) - 1)

    def settle(self) -> None:
        """Reads epochs until one had a mode that the policy stays in."""
        for _ in range(_MOST_EPOCHS):
            self.batch_ms()
            if self.mode() in {"GET", "GET_SOURCE"} or self._computes():
                return
        raise UnsettledError(
            f"{self.name}: after {_MOST_EPOCHS} epochs the mode is still {self.mode()}"
        )

    def _computes(self) -> bool:
        return self.mode() == "COMPUTE" and self.policy in {"compute", AUTO}

    def mode(self) -> str:
        return self.status().epochs[-1].mode

    def figures(self) -> Mapping[str, Any] | None:
        """What was measured of its pipeline; None: nothing."""
        url = f"sqlite:///{store_folder(self._service) / 'metadata.db'}"
        with MetadataStore.open(url, store=self._service, exclusive=False) as store:
            found = store.profile(self.status().fingerprint)
        return None if found is None else found.figures

    def status(self) -> cachew_pb2.JobStatus:
        jobs = status(self._service).jobs
        return next(job for job in jobs if job.job_name == self.name)


class _Run:
    # One study.

    def __init__(self, study: Study, jobs: Sequence[_Job], extent: Extent, tell: Tell) -> None:
        self._study = study
        self._jobs = jobs
        self._extent = extent
        self._tell = tell

    def report(self) -> StudyReport:
        for job in self._jobs:
            self._tell(f"{job.policy} begins")
            job.settle()
        runs: dict[str, list[float]] = {job.policy: [] for job in self._jobs}
        shuffled = random.Random(self._study.name)
        for number in range(self._extent.epochs):
            self._tell(f"round {number + 1} of {self._extent.epochs}")
            for job in shuffled.sample(self._jobs, len(self._jobs)):
                runs[job.policy].append(job.batch_ms())
        policies = [_policy_report(job, runs[job.policy]) for job in self._jobs]
        return StudyReport(
            name=self._study.name,
            sleep_ms=self._study.sleep_ms,
            expands=self._study.expands,
            policies=policies,
            models=_model_reports(self._jobs[-1], self._extent, policies),
        )


def _policy_report(job: _Job, runs: list[float]) -> PolicyReport:
    epochs = job.status().epochs
    decisions = job.status().decisions
    return PolicyReport(
        policy=job.policy,
        batch_ms=statistics.median(runs),
        runs_ms=runs,
        modes=[epoch.mode for epoch in epochs],
        reasons=[decision.reason for decision in decisions],
    )


def _model_reports(
    auto: _Job, extent: Extent, policies: Sequence[PolicyReport]
) -> list[ModelReport]:
    """What each cost model makes of what `auto` measured."""
    figures = auto.figures()
    if figures is None:
        return []
    points = [PointProfile(name=name) for name in (MARK, END)]
    profile = profile_of(figures, points, batches=extent.batches)
    situation = Situation(workers=1, environment=Environment(device="", version=""))
    reports = []
    for model in CostModel:
        decision = choose(profile, situation, settings=AutocacheSettings(cost_model=model))
        predicted = {
            POLICY_OF_POINT[candidate.point]: 1e3 * candidate.figures.batch_s
            for candidate in decision.candidates
            if candidate.figures is not None
        }
        reports.append(
            ModelReport(
                model=model.value,
                policy=POLICY_OF_POINT[decision.point],
                predicted_ms=predicted,
            )
        )
    return reports
