"""DAGs for the tests: tasks around a service that go one way or the other."""

from __future__ import annotations

import os
from datetime import UTC, datetime

from airflow.providers.common.compat.sdk import DAG

from cachew_operators import (
    CachewServiceOperator,
    CachewTeardownOperator,
    CachewTrainingOperator,
    cachew_service,
)


def look(*, fail: bool = False) -> dict[str, object]:
    """Stands for a training: asks the service how many workers it has."""
    from cachew_core import cluster

    status = cluster.status(os.environ["CACHEW_SERVICE"])
    if fail:
        raise RuntimeError("the loss is not a number")
    return {"service": status.name, "workers": len(status.workers)}


def dag_of(dag_id: str) -> DAG:
    return DAG(dag_id, schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC))


with dag_of("training_succeeds"), cachew_service(workers=2) as service:
    CachewTrainingOperator(task_id="training", python_callable=look)
    CachewTrainingOperator(
        task_id="command",
        command='test "$CACHEW_SERVICE" = "$FROM_XCOM"',
        env={"FROM_XCOM": service.output["endpoint"]},
    )

with dag_of("training_fails"), cachew_service(workers=1):
    first = CachewTrainingOperator(
        task_id="training", python_callable=look, op_kwargs={"fail": True}
    )
    first >> CachewTrainingOperator(task_id="after", command="true")

with dag_of("setup_fails"), cachew_service(workers="many"):
    CachewTrainingOperator(task_id="training", python_callable=look)

with dag_of("teardown_twice"):
    setup = CachewServiceOperator(task_id="service", service_name="eval/{{ run_id }}", workers=1)
    down = CachewTeardownOperator(task_id="teardown", service_name="eval/{{ run_id }}")
    again = CachewTeardownOperator(task_id="again", service_name="eval/{{ run_id }}")
    setup.as_setup() >> down >> again.as_teardown(setups=setup)
