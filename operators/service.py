"""The operator that stands a service up, or adopts the one of its name."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cachew_core import cluster
from cachew_core.errors import CachewError, ServiceError, SettingsError
from cachew_core.service_record import ServiceRecord
from cachew_operators.base import CachewOperator
from cachew_operators.names import DEFAULT_SERVICE_NAME, valid_name

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
    :param workers: how many workers; the fewest of them, where there is a `max_workers`;
        templated, so a text of digits will do.
    :param max_workers: there are more than `workers` while jobs want them, up to so many;
        templated. Default: always `workers`.
    :param standby: of these, so many more are there than jobs want; templated. Default: its
        settings.
    :param scaling_policy: what decides how many workers a job wants whose `distribute` does not
        say: ``auto``, ``rate_match``, ``hill_climb``, ``all``; templated. Default: its settings.
    :param idle_timeout_s: the service ends itself after so many seconds without a trainer. Default:
        its settings.
    :param first_client_timeout_s: the same before the first trainer came. Default: its settings.
    :param cache_policy: what is stored of pipelines whose `distribute` does not say: ``auto``,
        ``compute`` (nothing), ``full``, ``source``, ...; templated. Default: its settings.
    :param store: what the service stores outlives it under this name, and the next service that is
        given it goes on from there; templated. Default: where the service is named by its DAG run,
        one of this DAG and task, so that each run starts from what earlier ones stored (a run that
        comes while another one uses it gets an empty one); else the service's name.
    :param cache_dir: a folder for the cache instead of the store's own, which must be there, or
        `gs://bucket/prefix`. Templated. Default: its settings.
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
        "max_workers",
        "standby",
        "scaling_policy",
        "idle_timeout_s",
        "first_client_timeout_s",
        "cache_policy",
        "store",
        "cache_dir",
    )

    def __init__(
        self,
        *,
        workers: int | str = 2,
        max_workers: int | str | None = None,
        standby: int | str | None = None,
        scaling_policy: str | int | None = None,
        idle_timeout_s: float | str | None = None,
        first_client_timeout_s: float | str | None = None,
        cache_policy: str | int | None = None,
        store: str | None = None,
        cache_dir: str | None = None,
        startup_timeout_s: float = 120,
        use_if_exists: bool = True,
        delete_on_error: bool = True,
        **kwargs: Any,
    ) -> None:
        # So that `operator.output["endpoint"]` works in a DAG.
        super().__init__(multiple_outputs=True, **kwargs)
        self.workers = workers
        self.max_workers = max_workers
        self.standby = standby
        self.scaling_policy = scaling_policy
        self.idle_timeout_s = idle_timeout_s
        self.first_client_timeout_s = first_client_timeout_s
        self.cache_policy = cache_policy
        self.store = store
        self.cache_dir = cache_dir
        self.startup_timeout_s = startup_timeout_s
        self.use_if_exists = use_if_exists
        self.delete_on_error = delete_on_error
        self._starting = False
        self._named_by_run = self.service_name == DEFAULT_SERVICE_NAME

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
        workers = _whole_number("workers", self.workers)
        most = _whole_number("max_workers", self.max_workers)
        return cluster.up(
            name,
            workers=workers if most is None else None,
            min_workers=None if most is None else workers,
            max_workers=most,
            standby=_whole_number("standby", self.standby),
            scaling_policy=_text(self.scaling_policy),
            idle_timeout_s=_seconds("idle_timeout_s", self.idle_timeout_s),
            first_client_timeout_s=_seconds("first_client_timeout_s", self.first_client_timeout_s),
            cache_policy=_text(self.cache_policy),
            store=_text(self.store),
            usual_store=self._usual_store(),
            cache_dir=_text(self.cache_dir),
            ready_timeout_s=self.startup_timeout_s,
        )

    def _usual_store(self) -> str | None:
        return valid_name(f"{self.dag_id}.{self.task_id}") if self._named_by_run else None

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


def _text(value: str | int | None) -> str | None:
    # Rendered as Python objects, a policy's number is one, and a store's name may be.
    return None if _is_left_out(value) else str(value)


def _is_left_out(value: object) -> bool:
    # A template that renders None gives the text.
    return value is None or value in ("", "None")


def _whole_number(parameter: str, value: int | str | None) -> int | None:
    if value is None or _is_left_out(value):
        return None
    try:
        return int(value)
    except ValueError as error:
        raise SettingsError(f"{parameter}={value!r} is not a whole number") from error


def _seconds(parameter: str, value: float | str | None) -> float | None:
    if value is None or _is_left_out(value):
        return None
    try:
        return float(value)
    except ValueError as error:
        raise SettingsError(f"{parameter}={value!r} is not a number of seconds") from error
