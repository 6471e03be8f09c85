"""What the dispatcher keeps beyond its own life, and finds again: a thin, forgiving view of the
metadata store.

A store that fails in mid-life costs memory of the past, never an epoch, so here failures are logged
and nothing more. Calls wait for a database: make them in a thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeVar

from cachew_core.cache import Entry
from cachew_core.dispatcher.jobs import Epoch
from cachew_core.errors import MetadataError
from cachew_core.metadata import (
    CacheRecord,
    EpochRecord,
    Figures,
    MetadataStore,
    Profile,
    WorkerCount,
)
from cachew_core.metadata import Decision as DecisionRecord
from cachew_core.metadata import Verdict as VerdictRecord
from cachew_core.policy.decisions import Decision, Environment, Verdict
from cachew_core.policy.modes import get_mode

log = logging.getLogger(__name__)

Found = TypeVar("Found")

EXPECTED_READS = 3.0
"""Epochs that will read an entry, where there is no history to judge by."""


class History:
    """The past of a store.

    Args:
        metadata: None: there is no past, and none is kept.
    """

    def __init__(self, metadata: MetadataStore | None) -> None:
        self._metadata = metadata

    def _with(self, what: str, work: Callable[[MetadataStore], Found], otherwise: Found) -> Found:
        if self._metadata is None:
            return otherwise
        try:
            return work(self._metadata)
        except MetadataError as error:
            log.warning("the metadata store could not %s: %s", what, error)
            return otherwise

    def profile(self, fingerprint: str, environment: Environment) -> Figures | None:
        """What was measured of a pipeline in this environment; None: nothing yet."""
        found = self._with(
            "find a profile",
            lambda metadata: metadata.profile(fingerprint, environment=_text(environment)),
            None,
        )
        return found.figures if found is not None else None

    def keep_profile(self, fingerprint: str, environment: Environment, figures: Figures) -> None:
        """Keeps what was measured."""
        record = Profile(
            fingerprint=fingerprint,
            environment=_text(environment),
            measured_at=datetime.now(UTC),
            figures=figures,
        )
        self._with("keep a profile", lambda metadata: metadata.record_profile(record), None)

    def verdicts(self, fingerprint: str) -> tuple[Verdict, ...]:
        """The choices for a pipeline that were taken back."""
        found: tuple[VerdictRecord, ...] = self._with(
            "find verdicts", lambda metadata: metadata.verdicts(fingerprint), ()
        )
        return tuple(
            Verdict(
                point=record.point,
                environment=Environment(device=record.device, version=record.version),
                workers=record.workers,
                reason=record.reason,
            )
            for record in found
        )

    def keep_verdict(self, fingerprint: str, verdict: Verdict) -> None:
        """Keeps that a choice was taken back."""
        record = VerdictRecord(
            fingerprint=fingerprint,
            mode=get_mode(verdict.point),
            point=verdict.point,
            device=verdict.environment.device,
            version=verdict.environment.version,
            workers=verdict.workers,
            reason=verdict.reason,
            given_at=datetime.now(UTC),
        )
        self._with("keep a verdict", lambda metadata: metadata.record_verdict(record), None)

    def keep_decision(self, epoch: Epoch, decision: Decision, *, auto: bool) -> None:
        """Keeps what was decided for an epoch."""
        record = DecisionRecord(
            fingerprint=epoch.job.request.fingerprint,
            job=epoch.job.name,
            epoch=epoch.number,
            mode=decision.mode,
            point=decision.point,
            reason=decision.reason,
            decided_at=datetime.now(UTC),
            origin="auto" if auto else "override",
        )
        self._with("keep a decision", lambda metadata: metadata.record_decision(record), None)

    def keep_epoch(self, epoch: Epoch, now: float) -> None:
        """Keeps how an epoch went."""
        record = EpochRecord(
            job=epoch.job.name,
            epoch=epoch.number,
            mode=epoch.mode,
            elements=epoch.totals().elements,
            duration_s=epoch.seconds(now),
            workers=epoch.workers,
            repeated=0,
            skipped=0,
            state=epoch.state,
            ended_at=datetime.now(UTC),
        )
        self._with("keep an epoch", lambda metadata: metadata.record_epoch(record), None)

    def keep_entry(self, epoch: Epoch, entry: Entry, point: str, *, saves_s: float) -> None:
        """Keeps that an entry was stored.

        Args:
            epoch: that wrote it.
            entry: as it was committed.
            point: its cache point.
            saves_s: what an epoch that reads it is expected to save.
        """
        record = CacheRecord(
            key=entry.key,
            fingerprint=epoch.job.request.fingerprint,
            point=point,
            path=str(entry.path),
            size_bytes=entry.bytes,
            elements=entry.elements,
            seconds_saved_per_use=saves_s,
            created_at=entry.created_at,
            state="ready",
        )
        self._with("keep a cache", lambda metadata: metadata.record_cache(record), None)

    def entry_used(self, key: str) -> None:
        """An epoch reads an entry."""
        self._with("count a use", lambda metadata: metadata.cache_used(key), False)

    def entry_removed(self, key: str) -> None:
        """An entry is gone."""
        self._with("forget a cache", lambda metadata: metadata.forget_cache(key), False)

    def benefits(self) -> dict[str, float]:
        """What each entry is worth by its history, in seconds saved per byte, by key."""
        found: tuple[CacheRecord, ...] = self._with(
            "find caches", lambda metadata: metadata.caches(), ()
        )
        return {
            record.key: record.seconds_saved_per_use * (1 + record.uses) / max(1, record.size_bytes)
            for record in found
        }

    def workers(self, fingerprint: str) -> dict[str, int]:
        """At how many workers a pipeline came to rest, by mode; the newest first."""
        found: tuple[WorkerCount, ...] = self._with(
            "find worker counts", lambda metadata: metadata.worker_counts(fingerprint), ()
        )
        return {record.mode: record.workers for record in found}

    def keep_workers(self, fingerprint: str, mode: str, workers: int) -> None:
        """A pipeline came to rest at that number."""
        record = WorkerCount(
            fingerprint=fingerprint, mode=mode, workers=workers, measured_at=datetime.now(UTC)
        )
        self._with("keep a worker count", lambda m: m.record_worker_count(record), None)

    def expected_reads(self, fingerprint: str) -> float:
        """Epochs that will read an entry of a pipeline, judged by its earlier ones."""
        return self._with(
            "find uses", lambda metadata: metadata.expected_reads(fingerprint), EXPECTED_READS
        )

    def close(self) -> None:
        """Lets go of the store."""
        self._with("close", lambda metadata: metadata.close(), None)


def _text(environment: Environment) -> str:
    return f"{environment.device}; {environment.version}"
