"""DAGs for the tests: tasks around a service that go one way or the other."""

from __future__ import annotations

import os
from datetime import UTC, datetime

from airflow.providers.common.compat.sdk import DAG

from cachew_operators import CachewTeardownOperator, CachewTrainingOperator, cachew_service

NAME = "eval/{{ run_id }}"

# Starting a service imports TensorFlow in two processes, on a machine that may be busy.
STARTUP_TIMEOUT_S = 240


def look() -> dict[str, object]:
    """Stands for a training: asks the service how many workers it has."""
    from cachew_core import cluster

    status = cluster.status(os.environ["CACHEW_SERVICE"])
    return {"service": status.name, "workers": len(status.workers)}


def dag_of(dag_id: str) -> DAG:
    return DAG(dag_id, schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC))


with (
    dag_of("training_succeeds"),
    cachew_service(service_name=NAME, workers=2, startup_timeout_s=STARTUP_TIMEOUT_S) as service,
):
    training = CachewTrainingOperator(task_id="training", service_name=NAME, python_callable=look)
    command = CachewTrainingOperator(
        task_id="command",
        service_name=NAME,
        command='test "$CACHEW_SERVICE" = "$FROM_XCOM"',
        env={"FROM_XCOM": service.output["endpoint"]},
    )
    early = CachewTeardownOperator(task_id="early_teardown", service_name=NAME)
    [training, command] >> early

with dag_of("setup_fails"), cachew_service(workers="many"):
    CachewTrainingOperator(task_id="training", python_callable=look)
