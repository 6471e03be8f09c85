"""Local services whose number of workers follows what jobs want, and what the next one knows."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from real_service import eventually

import cachew_core as cachew
from cachew_core import cluster
from cachew_core.errors import SettingsError
from cachew_core.proto import cachew_pb2

BATCHES, WORK_MS, STEP_S = 200, 80, 0.04


@contextmanager
def service(name: str, **options: Any) -> Iterator[str]:
    try:
        cluster.up(name, **options)
        yield name
    finally:
        cluster.down(name)


def train(service_name: str) -> cachew_pb2.JobStatus:
    """Reads an epoch whose trainer can use two workers or three; what became of the job."""
    pipeline = tf.data.Dataset.range(BATCHES).apply(cachew.sleep(1000 * WORK_MS))
    dataset = pipeline.apply(cachew.distribute(service_name, job_name="training"))
    for _ in dataset:
        time.sleep(STEP_S)
    return next(job for job in cluster.status(service_name).jobs)


def test_the_next_service_on_a_store_begins_where_the_last_one_came_to_rest(home: Path) -> None:
    with service("one", workers=5, store="weekly"):
        first = train("one")
    settled = [decision.workers for decision in first.scaling if decision.settled]
    assert settled, [decision.reason for decision in first.scaling]
    assert first.scaling[0].workers == 1
    with service("two", workers=5, store="weekly"):
        second = train("two")
    began = second.scaling[0]
    assert began.workers == settled[-1] > 1
    assert began.reason.endswith("an earlier run came to rest there")


def test_workers_come_when_a_job_wants_them_and_go_when_nobody_does(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CACHEW_SHRINK_AFTER_S", "1")
    with service("elastic", min_workers=1, max_workers=5, standby=1):

        def workers() -> int:
            return len(cluster.status("elastic").workers)

        assert workers() == 1
        job = train("elastic")
        used = max(epoch.workers for epoch in job.epochs)
        assert 1 < used < 5
        eventually(lambda: workers() == 1)
        lines = (home / "services" / "elastic" / "logs" / "events.jsonl").read_text().splitlines()
        events = [json.loads(line) for line in lines]
    kinds = [event["kind"] for event in events]
    for kind in ("service_started", "agent_connected", "trainer_came", "worker_serves"):
        assert kind in kinds
    ended = next(event for event in events if event["kind"] == "epoch_ended")
    assert (ended["job"], ended["epoch"], ended["state"]) == ("training", 1, "finished")
    assert ended["worker_seconds"] > ended["seconds"]


@pytest.mark.parametrize(
    "options",
    [
        {"min_workers": 3, "max_workers": 2},
        {"min_workers": 3},
        {"workers": 2, "max_workers": 2},
        {"max_workers": 2, "standby": -1},
        {"scaling_policy": "fastest"},
        {"max_workers": 2000},
    ],
)
def test_limits_that_make_no_sense_are_refused_before_anything_starts(
    home: Path, options: dict[str, Any]
) -> None:
    with pytest.raises(SettingsError):
        cluster.up("nonsense", **options)
    assert cluster.list_services() == []
