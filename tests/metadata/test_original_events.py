"""The export of what happened, as the original's plotting scripts read it."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cachew_core.metadata import Decision, EpochRecord, MetadataStore, write_events

START = datetime(2026, 11, 30, 12, tzinfo=UTC)
PIPELINES = {"first": "ab" * 32, "second": "cd" * 32}


def epoch(job: str, number: int, mode: str, *, began_s: float, workers: int) -> EpochRecord:
    return EpochRecord(
        job=job,
        epoch=number,
        mode=mode,
        elements=10,
        duration_s=5.0,
        workers=workers,
        repeated=0,
        skipped=0,
        state="finished",
        ended_at=START + timedelta(seconds=began_s + 5),
    )


def decision(job: str, number: int, mode: str, *, at_s: float) -> Decision:
    return Decision(
        fingerprint=PIPELINES[job],
        job=job,
        epoch=number,
        mode=mode,
        point="end",
        reason="for the test",
        decided_at=START + timedelta(seconds=at_s),
    )


@pytest.fixture
def rows(tmp_path: Path) -> list[dict[str, Any]]:
    """The rows of a store in which two jobs ran."""
    with MetadataStore.open(f"sqlite:///{tmp_path / 'metadata.db'}", store="photos") as store:
        store.record_decision(decision("first", 0, "PUT", at_s=0))
        store.record_epoch(epoch("first", 0, "PUT", began_s=1, workers=1))
        store.record_decision(decision("first", 1, "GET", at_s=6.5))
        store.record_decision(decision("second", 0, "COMPUTE", at_s=8))
        store.record_epoch(epoch("second", 0, "COMPUTE", began_s=9, workers=2))
        store.record_epoch(epoch("first", 1, "GET", began_s=7, workers=2))
        store.record_epoch(epoch("first", 2, "GET", began_s=20, workers=1))
        file = io.StringIO()
        assert write_events(store, file) == 13
    return list(csv.DictReader(io.StringIO(file.getvalue())))


def of_job(rows: list[dict[str, Any]], job: str) -> list[tuple[str, str]]:
    return [(row["event_type"], row["additional"]) for row in rows if row["job_name"] == job]


def test_each_epoch_decision_and_change_of_workers_is_a_row_in_the_order_of_time(
    rows: list[dict[str, Any]],
) -> None:
    assert of_job(rows, "first") == [
        ("execution_policy_decision", "PUT"),
        ("execution_mode_change", "PUT"),
        ("starting_worker_count", "1"),
        ("execution_policy_decision", "GET"),
        ("execution_mode_change", "GET"),
        ("scale_up", "2"),
        ("execution_mode_change", "GET"),
        ("scale_down", "1"),
        ("end_training", "1"),
    ]
    assert of_job(rows, "second")[-1] == ("end_training", "2")
    times = [int(row["time"]) for row in rows]
    assert times == sorted(times)
    assert times[0] == int(START.timestamp() * 1e6)


def test_the_columns_are_those_of_the_original_and_numbers_tell_epochs_and_pipelines_apart(
    rows: list[dict[str, Any]],
) -> None:
    assert list(rows[0]) == [
        "time",
        "fingerprint",
        "dataset_id",
        "job_name",
        "job_id",
        "event_type",
        "additional",
    ]
    seen = {(row["job_name"], row["fingerprint"], row["dataset_id"]) for row in rows}
    assert seen == {("first", "ab" * 32, "1"), ("second", "cd" * 32, "2")}
    starts = [row for row in rows if row["event_type"] == "execution_mode_change"]
    assert [(row["job_name"], row["job_id"]) for row in starts] == [
        ("first", "1"),
        ("first", "2"),
        ("second", "3"),
        ("first", "4"),
    ]
    made_for = [row["job_id"] for row in rows if row["event_type"] == "execution_policy_decision"]
    assert made_for == ["1", "2", "3"]
