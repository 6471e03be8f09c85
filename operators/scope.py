"""The usual wiring in one line: a service around some tasks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cachew_operators.names import DEFAULT_SERVICE_NAME
from cachew_operators.service import CachewServiceOperator
from cachew_operators.teardown import CachewTeardownOperator


@contextmanager
def cachew_service(
    *,
    task_id: str = "cachew",
    service_name: str = DEFAULT_SERVICE_NAME,
    drain: bool = False,
    **service_arguments: Any,
) -> Iterator[CachewServiceOperator]:
    """Puts a service around the tasks that are made in the block.

    The service is up before the first of them starts and taken down after the last has ended,
    failed or not; clearing one of them starts a service again.

    Args:
        task_id: prefix of the two tasks, `<task_id>_up` and `<task_id>_down`.
        service_name: the service's name; templated.
        drain: see `CachewTeardownOperator`.
        **service_arguments: for `CachewServiceOperator`.

    Yields:
        The task that stands the service up; its output is the service's XCom.
    """
    up = CachewServiceOperator(
        task_id=f"{task_id}_up", service_name=service_name, **service_arguments
    )
    down = CachewTeardownOperator(task_id=f"{task_id}_down", service_name=service_name, drain=drain)
    with down.as_teardown(setups=up):
        yield up
