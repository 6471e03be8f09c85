"""The operator that stands a service up, or adopts the one of its name."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cachew_core import cluster
from cachew_core.errors import CachewError, ServiceError, SettingsError
from cachew_core.service_record import ServiceRecord
from cachew_operators.base import CachewOperator

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

logger = logging.getLogger(__name__)


class CachewServiceOperator(CachewOperator):
    """Starts a service of local processes on the task's machine, and waits until it serves.

    The service outlives the task: end it by a :class:`CachewTeardownOperator`. If that never runs,
    the service ends itself after `idle_timeout_s`.

    Pushes ``{"name", "endpoint", "workers", "cachew_version", "tensorflow_version"}`` to XCom, as a
    whole and one by one: ``operator.output["endpoint"]``.

    :param service_name: the service's name; templated. Default: one for each DAG run.
    :param workers: how many workers; templated, so a text of digits will do.
    :param idle_timeout_s: the service ends itself after so many seconds without a trainer. Default:
        its settings.
    :param first_client_timeout_s: the same before the first trainer came. Default: its settings.
    :param startup_timeout_s: how many seconds the service may take until all workers are there.
    :param use_if_exists: adopt a running service of that name, as a retried task finds the one of
        its first try (True), or refuse (False).
    :param delete_on_error: take down what this task started if the task then fails, times out or is
        killed. A start that fails by itself leaves nothing in any case; a service that was adopted
        is left alone.
    """

    template_fields: Sequence[str] = (
        "service_name",
        "workers",
        "idle_timeout_s",
        "first_client_timeout_s",
    )

    def __init__(
        self,
        *,
        workers: int | str = 2,
        idle_timeout_s: float | str | None = None,
        first_client_timeout_s: float | str | None = None,
        startup_timeout_s: float = 120,
        use_if_exists: bool = True,
        delete_on_error: bool = True,
        **kwargs: Any,
    ) -> None:
        # So that `operator.output["endpoint"]` works in a DAG.
        super().__init__(multiple_outputs=True, **kwargs)
        self.workers = workers
        self.idle_timeout_s = idle_timeout_s
        self.first_client_timeout_s = first_client_timeout_s
        self.startup_timeout_s = startup_timeout_s
        self.use_if_exists = use_if_exists
        self.delete_on_error = delete_on_error
        self._starting = False

    def execute(self, context: Context) -> dict[str, Any]:
        """Stands the service up.

        Raises:
            AirflowException: the task was killed.
            SettingsError: an argument can't be used.
            ServiceError: the service did not start, runs with other arguments, or is there and
                `use_if_exists` is off.
        """
        name = self._name()
        adopt = _is_running(name)
        if adopt and not self.use_if_exists:
            raise ServiceError(
                f"service {name!r} is running already and use_if_exists is off: "
                "take it down or choose another name"
            )
        self._starting = not adopt
        self._refuse_if_killed()
        # Leaves nothing by itself where it fails.
        record = self._stand_up(name)
        try:
            self._refuse_if_killed()
            handle = _handle(record)
        except BaseException as error:
            if self._starting and self.delete_on_error:
                _take_down_without_hiding(error, name)
            raise
        finally:
            self._starting = False
        self.log.info("Service %(name)s serves at %(endpoint)s with %(workers)d workers", handle)
        return handle

    def _stand_up(self, name: str) -> ServiceRecord:
        return cluster.up(
            name,
            workers=_whole_number("workers", self.workers),
            idle_timeout_s=_seconds("idle_timeout_s", self.idle_timeout_s),
            first_client_timeout_s=_seconds("first_client_timeout_s", self.first_client_timeout_s),
            ready_timeout_s=self.startup_timeout_s,
        )

    def on_kill(self) -> None:
        """Takes down a service that is just being started; an adopted one is left alone."""
        self._killed = True
        if self._starting and self.delete_on_error:
            self._take_down_in_the_background()


def _is_running(name: str) -> bool:
    return any(
        service.name == name and service.state == "running" for service in cluster.list_services()
    )


def _handle(record: ServiceRecord) -> dict[str, Any]:
    # Asked anew: what `up` saw may have ended since, and a dead endpoint is no success.
    status = cluster.status(record.name)
    return {
        "name": record.name,
        "endpoint": status.endpoint,
        "workers": len(status.workers),
        "cachew_version": status.versions.cachew,
        "tensorflow_version": status.versions.tensorflow,
    }


def _take_down_without_hiding(error: BaseException, name: str) -> None:
    try:
        cluster.down(name)
    except CachewError as second:
        logger.warning("Service %s could not be taken down after a failed start: %s", name, second)
        error.add_note(f"service {name!r} could not be taken down afterwards: {second}")


def _whole_number(parameter: str, value: int | str) -> int:
    try:
        return int(value)
    except ValueError as error:
        raise SettingsError(f"{parameter}={value!r} is not a whole number") from error


def _seconds(parameter: str, value: float | str | None) -> float | None:
    # A template that renders None gives the text.
    if value is None or value in ("", "None"):
        return None
    try:
        return float(value)
    except ValueError as error:
        raise SettingsError(f"{parameter}={value!r} is not a number of seconds") from error
