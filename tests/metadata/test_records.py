"""What is recorded comes back, from both databases, also when the store is opened again."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cachew_core.metadata import (
    CacheRecord,
    Decision,
    EpochRecord,
    Event,
    MetadataStore,
    Profile,
    Verdict,
    WorkerCount,
)

NOON = datetime(2026, 5, 4, 12, 0, 0, 123456, tzinfo=UTC)
PROFILE = Profile(
    fingerprint="f1", environment="cpu", measured_at=NOON, figures={"tau_s": [0.1, None]}
)
DECISION = Decision(
    fingerprint="f1",
    job="train",
    epoch=1,
    mode="PUT",
    point="end",
    reason="reading is 3 times as fast",
    decided_at=NOON,
    origin="override",
    figures={"compute_s": 9.5, "get_s": 3.1},
)
VERDICT = Verdict(
    fingerprint="f1",
    mode="GET",
    point="end",
    device="/cache",
    version="0.1.0",
    workers=2,
    reason="slower in two epochs",
    given_at=NOON,
)
CACHE = CacheRecord(
    key="k1",
    fingerprint="f1",
    point="end",
    path="entries/k1",
    size_bytes=3 * 2**40,
    elements=2**33,
    seconds_saved_per_use=12.25,
    created_at=NOON,
    state="writing",
)
COUNT = WorkerCount(fingerprint="f1", mode="COMPUTE", workers=5, measured_at=NOON)
EPOCH = EpochRecord(
    job="train",
    epoch=3,
    mode="COMPUTE",
    elements=1000,
    duration_s=10.5,
    workers=2,
    repeated=1,
    skipped=0,
    state="finished",
    ended_at=NOON,
)
EVENT = Event(at=NOON, kind="decision", job="train", text="writes", figures={"n": {"deep": [1]}})


def record_one_of_each(store: MetadataStore) -> None:
    store.record_profile(PROFILE)
    store.record_decision(DECISION)
    store.record_verdict(VERDICT)
    store.record_cache(CACHE)
    store.record_worker_count(COUNT)
    store.record_epoch(EPOCH)
    store.record_event(EVENT)


def test_what_one_service_recorded_the_next_one_finds(url: str) -> None:
    with MetadataStore.open(url, store="photographs") as first:
        record_one_of_each(first)
        first.see_pipeline("f1", description="photographs", job="train", service="monday")
    with MetadataStore.open(url, store="photographs") as second:
        assert second.profile("f1") == PROFILE
        assert second.decisions() == (DECISION,)
        assert second.verdicts("f1") == (VERDICT,)
        assert second.caches() == (CACHE,)
        assert second.worker_counts("f1") == (COUNT,)
        assert second.epochs() == (EPOCH,)
        assert second.events() == (EVENT,)
        (pipeline,) = second.pipelines()
        assert (pipeline.fingerprint, pipeline.description) == ("f1", "photographs")
        (job,) = second.jobs()
        assert (job.name, job.fingerprint, job.service) == ("train", "f1", "monday")


def test_another_store_in_the_same_database_is_empty(url: str) -> None:
    with (
        MetadataStore.open(url, store="photographs") as full,
        MetadataStore.open(url, store="songs") as empty,
    ):
        record_one_of_each(full)
        record_one_of_each(empty)
        assert full.forget_cache("k1")
        assert [cache.key for cache in empty.caches()] == ["k1"]
        assert empty.cache_used("k1")
    with MetadataStore.open(url, store="new") as new:
        for found in (new.pipelines(), new.jobs(), new.decisions(), new.verdicts("f1")):
            assert found == ()
        assert (new.caches(), new.epochs(), new.events()) == ((), (), ())
        assert new.profile("f1") is None
        assert new.worker_counts("f1") == ()


def test_a_pipeline_seen_again_keeps_its_first_time_and_its_description(
    store: MetadataStore,
) -> None:
    store.see_pipeline("f1", description="photographs", job="train", service="monday")
    ((before,), (job_before,)) = store.pipelines(), store.jobs()
    store.see_pipeline("f1")
    store.see_pipeline("f2", job="train", service="tuesday")
    (newest, after) = store.pipelines()
    (job_after,) = store.jobs()
    assert newest.fingerprint == "f2"
    assert after.description == "photographs"
    assert after.first_seen == before.first_seen
    assert after.last_seen > before.last_seen
    assert (job_after.fingerprint, job_after.service) == ("f2", "tuesday")
    assert job_after.first_seen == job_before.first_seen


def test_a_newer_profile_replaces_that_of_its_environment_only(store: MetadataStore) -> None:
    store.record_profile(PROFILE)
    newer = replace(PROFILE, measured_at=NOON + timedelta(hours=1), figures={"tau_s": 2})
    other = replace(PROFILE, environment="gpu", measured_at=NOON - timedelta(hours=1))
    store.record_profile(newer)
    store.record_profile(other)
    assert store.profile("f1") == newer
    assert store.profile("f1", environment="cpu") == newer
    assert store.profile("f1", environment="gpu") == other
    assert store.profile("f1", environment="tpu") is None


@pytest.mark.parametrize("changed", ["mode", "point", "device", "version", "workers"])
def test_verdicts_are_told_apart_by_all_that_may_change(store: MetadataStore, changed: str) -> None:
    store.record_verdict(VERDICT)
    store.record_verdict(replace(VERDICT, reason="still slower"))
    other = replace(VERDICT, **{changed: 9 if changed == "workers" else "other"})  # type: ignore[arg-type]
    store.record_verdict(other)
    assert set(store.verdicts("f1")) == {replace(VERDICT, reason="still slower"), other}


def test_a_worker_count_is_kept_for_each_mode(store: MetadataStore) -> None:
    store.record_worker_count(COUNT)
    store.record_worker_count(replace(COUNT, workers=7))
    store.record_worker_count(replace(COUNT, mode="GET", workers=1))
    counts = {count.mode: count.workers for count in store.worker_counts("f1")}
    assert counts == {"COMPUTE": 7, "GET": 1}


def test_history_is_asked_for_by_job_pipeline_and_kind_and_comes_newest_first(
    store: MetadataStore,
) -> None:
    for hour in range(3):
        at = NOON + timedelta(hours=hour)
        job = f"job{hour % 2}"
        store.record_decision(replace(DECISION, job=job, fingerprint=job, decided_at=at))
        store.record_epoch(replace(EPOCH, job=job, ended_at=at))
        store.record_event(replace(EVENT, job=job, kind=job, at=at))
    hours: Callable[[Any, str], list[int]] = lambda rows, name: [  # noqa: E731
        getattr(row, name).hour - 12 for row in rows
    ]
    assert hours(store.decisions(), "decided_at") == [2, 1, 0]
    assert hours(store.decisions(job="job0"), "decided_at") == [2, 0]
    assert hours(store.decisions(fingerprint="job1"), "decided_at") == [1]
    assert hours(store.epochs(job="job0"), "ended_at") == [2, 0]
    assert hours(store.epochs(limit=1), "ended_at") == [2]
    assert hours(store.events(kind="job0"), "at") == [2, 0]
    assert hours(store.events(job="job1", limit=5), "at") == [1]


def test_an_entry_recorded_again_keeps_its_uses(store: MetadataStore) -> None:
    store.record_cache(CACHE)
    assert store.cache_used("k1")
    assert store.cache_used("k1")
    later = NOON + timedelta(hours=1)
    store.record_cache(replace(CACHE, state="ready", size_bytes=5, created_at=later))
    (cache,) = store.caches(fingerprint="f1")
    assert (cache.state, cache.size_bytes, cache.uses) == ("ready", 5, 2)
    assert cache.created_at == NOON
    assert cache.last_used_at is not None


def test_a_forgotten_entry_is_gone_until_one_with_its_key_is_recorded(
    store: MetadataStore,
) -> None:
    store.record_cache(CACHE)
    store.cache_used("k1")
    assert store.forget_cache("k1")
    assert store.caches() == ()
    assert not store.forget_cache("k1")
    assert not store.cache_used("k1")
    store.record_cache(CACHE)
    assert store.caches() == (CACHE,)


def test_reads_are_expected_as_entries_that_are_gone_had_them(store: MetadataStore) -> None:
    assert store.expected_reads("f1") == 3
    for uses in (8, 2):
        store.record_cache(CACHE)
        for _ in range(uses):
            store.cache_used("k1")
        store.forget_cache("k1")
    assert store.expected_reads("f1") == 5
    assert store.expected_reads("f2") == 3


def test_an_entry_in_use_counts_only_where_it_raises_the_expectation(store: MetadataStore) -> None:
    store.record_cache(CACHE)
    store.cache_used("k1")
    assert store.expected_reads("f1") == 3
    for _ in range(9):
        store.cache_used("k1")
    assert store.expected_reads("f1") == 10


def test_times_come_back_in_utc_whatever_zone_they_were_given_in(store: MetadataStore) -> None:
    store.record_event(replace(EVENT, at=NOON.astimezone(timezone(timedelta(hours=-7)))))
    (event,) = store.events()
    assert event.at == NOON
    assert event.at.tzinfo is UTC
    assert event.at.hour == 12


def test_text_that_a_database_can_not_hold_is_replaced(store: MetadataStore) -> None:
    store.record_event(replace(EVENT, job="a\0b", text="\ud800 naïve 🐿"))
    (event,) = store.events(job="a\0b")
    assert event.job == "a\ufffdb"
    assert event.text == "? naïve 🐿"


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(figures=st.dictionaries(st.text(), VALUES, max_size=5))
def test_figures_come_back_as_they_were(store: MetadataStore, figures: dict[str, Any]) -> None:
    store.record_event(replace(EVENT, figures=figures))
    # By its text, which tells 1 from 1.0 and True.
    assert repr(store.events(limit=1)[0].figures) == repr(figures)


def test_the_folder_of_a_new_file_is_made() -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder, "state", "50% full", "store.db")
        with MetadataStore.open(f"sqlite:///{path}", store="photographs") as store:
            store.record_event(EVENT)
        assert path.is_file()
        assert [each.name for each in path.parent.iterdir()] == ["store.db"]
