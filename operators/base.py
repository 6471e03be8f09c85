"""What the three operators share: the service they are about, and what a killed task does."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from airflow.providers.common.compat.sdk import AirflowException, BaseOperator

from cachew_core.cluster.processes import launch
from cachew_operators.names import DEFAULT_SERVICE_NAME, valid_service_name


class CachewOperator(BaseOperator):
    """Base of the operators that work on one service.

    :param service_name: the service's name; templated. The default gives every DAG run a service of
        its own. A text that can't be a service's name (run ids can't) is turned into one; the same
        text gives the same name.
    """

    template_fields: Sequence[str] = ("service_name",)
    ui_color = "#e3d7c5"

    def __init__(self, *, service_name: str = DEFAULT_SERVICE_NAME, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.service_name = service_name
        self._killed = False

    def _name(self) -> str:
        """The service's name, once the templates are rendered."""
        # Where a DAG renders templates as Python objects, a name of digits becomes a number.
        return valid_service_name(str(self.service_name))

    def _refuse_if_killed(self) -> None:
        """Raises if the task was killed.

        Airflow 3 lets `execute` go on after `on_kill`, and would call it a success.
        """
        if self._killed:
            raise AirflowException(f"task {self.task_id} was killed")

    def _take_down_in_the_background(self) -> None:
        """Ends the service from a process of its own.

        Airflow 3 kills a task's process 5 s after it asked it to end, which can be too short; and
        this is called from a signal handler, possibly in the middle of starting that very service.
        """
        launch(
            [sys.executable, "-m", "cachew_core.cli", "down", self._name()],
            environment=os.environ,
            folder=Path.cwd(),
            log=Path(os.devnull),
        )
