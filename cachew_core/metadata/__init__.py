"""What outlives a run: pipelines, profiles, decisions, caches, jobs and events, by store."""

from __future__ import annotations

from cachew_core.metadata.original_events import OriginalEvent, write_events
from cachew_core.metadata.records import (
    CacheRecord,
    CacheState,
    Decision,
    EpochRecord,
    Event,
    Figures,
    Job,
    Origin,
    Pipeline,
    Profile,
    Verdict,
    WorkerCount,
)
from cachew_core.metadata.store import MetadataStore

__all__ = [
    "CacheRecord",
    "CacheState",
    "Decision",
    "EpochRecord",
    "Event",
    "Figures",
    "Job",
    "MetadataStore",
    "Origin",
    "OriginalEvent",
    "Pipeline",
    "Profile",
    "Verdict",
    "WorkerCount",
    "write_events",
]
