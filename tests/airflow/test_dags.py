"""Whole DAG runs on real services: what runs, what it hands on, and that no service is left."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cachew_core import cluster

# Starting a service imports TensorFlow in two processes, on a machine that may be busy.
pytestmark = pytest.mark.timeout(600)


def states(run: Any) -> dict[str, str]:
    return {task.task_id: str(task.state) for task in run.get_task_instances()}


def xcom(run: Any, task_id: str) -> Any:
    (task,) = (task for task in run.get_task_instances() if task.task_id == task_id)
    return task.xcom_pull(task_ids=task_id)


def test_a_run_has_a_service_that_is_gone_at_its_end_whoever_took_it_down(
    run_dag: Callable[..., Any],
) -> None:
    run = run_dag("training_succeeds")
    assert set(states(run).values()) == {"success"}
    handle = xcom(run, "cachew_up")
    assert handle["name"].startswith("eval-manual")
    assert xcom(run, "training") == {"service": handle["name"], "workers": 2}
    assert cluster.list_services() == []


def test_a_setup_that_fails_leaves_nothing_and_no_training_starts(
    run_dag: Callable[..., Any],
) -> None:
    run = run_dag("setup_fails")
    assert states(run) == {
        "cachew_up": "failed",
        "training": "upstream_failed",
        "cachew_down": "upstream_failed",
    }
    assert cluster.list_services() == []


def test_the_example_trains_a_model_through_its_service(
    run_dag: Callable[..., Any],
    cachew_home: Path,
) -> None:
    run = run_dag("cachew_training", pictures=256, epochs=4)
    assert states(run) == {"service": "success", "training": "success", "teardown": "success"}
    handle = xcom(run, "service")
    assert handle["name"].startswith("cachew-training-manual")
    assert handle["workers"] == 2
    assert xcom(run, "training")["accuracy"] > 0.9
    assert cluster.list_services() == []
    log = cachew_home / "services" / handle["name"] / "logs" / "dispatcher.log"
    assert "squares" in log.read_text()


def test_the_example_takes_its_service_down_when_the_training_fails(
    run_dag: Callable[..., Any],
) -> None:
    run = run_dag("cachew_training", pictures=256, epochs=1, minimum_accuracy=1.1)
    assert states(run) == {"service": "success", "training": "failed", "teardown": "success"}
    assert run.state == "failed"
    assert cluster.list_services() == []
