"""What the metadata store takes and gives: plain values, each a row of one of its tables.

Times are aware and come back in UTC. Figures are JSON objects (text keys); numbers that JSON has no
word for, infinity and NaN, come back as they were. A cache point is the name of a mark or `end`,
and empty where a thing is about no cache point.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, TypeAlias

from pydantic import JsonValue

Figures: TypeAlias = Mapping[str, JsonValue]
Origin: TypeAlias = Literal["auto", "override"]
CacheState: TypeAlias = Literal["writing", "ready", "damaged"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """A pipeline that some job of this store had.

    Attributes:
        fingerprint: of the whole pipeline.
        description: for people; the newest that was given.
    """

    fingerprint: str
    first_seen: datetime
    last_seen: datetime
    description: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job's name, with the pipeline that it had when it was last seen.

    Attributes:
        service: name of the service that ran it.
    """

    name: str
    fingerprint: str
    service: str
    first_seen: datetime
    last_seen: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What was measured of a pipeline in one environment.

    Attributes:
        environment: machine, device and versions as text; one profile is kept for each.
    """

    fingerprint: str
    environment: str
    measured_at: datetime
    figures: Figures


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What an epoch was to do, and why.

    Attributes:
        fingerprint: of the whole pipeline.
        epoch: the job's first epoch that it holds for.
        reason: in words, for people.
        figures: the numbers behind it.
    """

    fingerprint: str
    job: str
    epoch: int
    mode: str
    point: str
    reason: str
    decided_at: datetime
    origin: Origin = "auto"
    figures: Figures = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A choice that was taken back, and what has to change before it may be tried again.

    Attributes:
        device: where the cache lay.
        version: of Cachew.
        workers: how many there were.
    """

    fingerprint: str
    mode: str
    point: str
    device: str
    version: str
    workers: int
    reason: str
    given_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheRecord:
    """A cache entry and what it is worth.

    Attributes:
        key: the entry's own fingerprint (of the pipeline up to its point).
        fingerprint: of the whole pipeline that it was written for.
        path: of the entry, relative to the cache root or whole, as its writer gave it.
        seconds_saved_per_use: an epoch's time without it, less the time with it.
        uses: epochs that read it.
    """

    key: str
    fingerprint: str
    point: str
    path: str
    size_bytes: int
    elements: int
    seconds_saved_per_use: float
    created_at: datetime
    state: CacheState
    uses: int = 0
    last_used_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerCount:
    """The number of workers at which autoscaling came to rest: the next run starts from it."""

    fingerprint: str
    mode: str
    workers: int
    measured_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochRecord:
    """An epoch that ended.

    Attributes:
        epoch: its number in its job, from 0.
        elements: that trainers got.
        workers: that it had at its end.
        repeated: splits that were handed out a second time.
        skipped: splits that were lost.
        state: as in the service's status, such as `finished` or `abandoned`.
    """

    job: str
    epoch: int
    mode: str
    elements: int
    duration_s: float
    workers: int
    repeated: int
    skipped: int
    state: str
    ended_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something worth telling later.

    Attributes:
        kind: a short word that programs can look for.
        job: empty if it is about no job.
    """

    at: datetime
    kind: str
    job: str
    text: str
    figures: Figures = field(default_factory=dict)
