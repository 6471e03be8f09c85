"""`CachewServiceOperator` and `CachewTeardownOperator` on real services."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import DAG, AirflowTaskTimeout, timeout

from cachew_core import cluster
from cachew_core.errors import (
    CachewError,
    ServiceError,
    ServiceUnavailableError,
    SettingsError,
)
from cachew_core.service_record import ServiceRecord
from cachew_operators import CachewServiceOperator, CachewTeardownOperator
from cachew_operators.names import DEFAULT_SERVICE_NAME

# Starting a service imports TensorFlow in two processes, on a machine that may be busy.
pytestmark = pytest.mark.timeout(600)

STARTUP_TIMEOUT_S = 240
"""No test waits so long; a busy machine may."""


def service(**arguments: Any) -> CachewServiceOperator:
    given = {
        "task_id": "service",
        "service_name": "one",
        "workers": 1,
        "startup_timeout_s": STARTUP_TIMEOUT_S,
        **arguments,
    }
    return CachewServiceOperator(**given)


def teardown(**arguments: Any) -> CachewTeardownOperator:
    return CachewTeardownOperator(**{"task_id": "teardown", "service_name": "one", **arguments})


@contextmanager
def killed_while_starting(task: CachewServiceOperator) -> Iterator[None]:
    """Kills the task, from another thread, once its service is being started."""

    def kill() -> None:
        deadline = time.monotonic() + 120
        while not cluster.list_services() and time.monotonic() < deadline:
            time.sleep(0.05)
        task.on_kill()

    killer = threading.Thread(target=kill)
    killer.start()
    yield
    killer.join()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """A service that several tests look at; what the operator returned."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CACHEW_HOME", str(tmp_path_factory.mktemp("home")))
        yield service().execute({})
        teardown().execute({})
        assert cluster.list_services() == []


def test_the_result_says_where_the_service_is(running: dict[str, Any]) -> None:
    status = cluster.status(running["endpoint"])
    assert running["name"] == status.name == "one"
    assert running["workers"] == len(status.workers) == 1
    assert running["tensorflow_version"].startswith("2.")


def test_a_retried_task_adopts_the_service_of_its_first_try(running: dict[str, Any]) -> None:
    assert service().execute({}) == running


def test_a_service_that_runs_is_refused_if_the_author_wants_a_new_one(
    running: dict[str, Any],
) -> None:
    with pytest.raises(ServiceError, match="'one' is running already"):
        service(use_if_exists=False).execute({})
    assert service().execute({}) == running


def test_a_service_with_another_number_of_workers_is_refused_and_left_alone(
    running: dict[str, Any],
) -> None:
    with pytest.raises(ServiceError, match="1 workers, not 3"):
        service(workers=3).execute({})
    assert service().execute({}) == running


def test_killing_a_task_that_adopts_leaves_the_service_alone(running: dict[str, Any]) -> None:
    task = service()
    task.on_kill()
    with pytest.raises(Exception, match="was killed"):
        task.execute({})
    assert service().execute({}) == running


def test_numbers_may_come_from_templates_as_text(running: dict[str, Any]) -> None:
    task = service(workers="1", idle_timeout_s="300.5", first_client_timeout_s="None")
    assert task.execute({}) == running


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"workers": "many"}, "workers='many' is not a whole number"),
        ({"workers": "0"}, "workers=0"),
        ({"idle_timeout_s": "soon"}, "idle_timeout_s='soon' is not a number of seconds"),
        ({"service_name": ""}, "service_name is empty"),
    ],
)
def test_an_argument_that_can_not_be_used_is_named(
    cachew_home: Path, arguments: dict[str, Any], text: str
) -> None:
    with pytest.raises(SettingsError, match=text):
        service(**arguments).execute({})
    assert cluster.list_services() == []


@pytest.mark.parametrize(
    ("given", "passed_on"),
    [
        ({}, (None, None, None)),
        # As templates give them, of texts and as Python objects.
        ({"cache_policy": "None", "store": "", "cache_dir": None}, (None, None, None)),
        (
            {"cache_policy": "source", "store": "weekly", "cache_dir": "/some/where"},
            ("source", "weekly", "/some/where"),
        ),
        ({"cache_policy": 4, "store": 7}, ("4", "7", None)),
    ],
)
def test_what_is_said_of_the_cache_reaches_the_service(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], passed_on: tuple[Any, ...]
) -> None:
    seen: dict[str, Any] = {}

    def up(name: str, **arguments: Any) -> None:
        seen.update(arguments)
        raise ServiceError("seen")

    monkeypatch.setattr(cluster, "up", up)
    with pytest.raises(ServiceError, match="seen"):
        service(**given).execute({})
    assert (seen["cache_policy"], seen["store"], seen["cache_dir"]) == passed_on


@pytest.mark.parametrize(
    ("given", "passed_on"),
    [
        ({}, (2, None, None, None, None)),
        (
            {"max_workers": "None", "standby": "", "scaling_policy": None},
            (2, None, None, None, None),
        ),
        (
            {"workers": "1", "max_workers": "8", "standby": 1, "scaling_policy": "hill_climb"},
            (None, 1, 8, 1, "hill_climb"),
        ),
    ],
)
def test_what_is_said_of_the_number_of_workers_reaches_the_service(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], passed_on: tuple[Any, ...]
) -> None:
    seen: dict[str, Any] = {}

    def up(name: str, **arguments: Any) -> None:
        seen.update(arguments)
        raise ServiceError("seen")

    monkeypatch.setattr(cluster, "up", up)
    with pytest.raises(ServiceError, match="seen"):
        CachewServiceOperator(task_id="service", service_name="one", **given).execute({})
    names = ("workers", "min_workers", "max_workers", "standby", "scaling_policy")
    assert tuple(seen[name] for name in names) == passed_on


@pytest.mark.parametrize(
    ("service_name", "usual"),
    [("one", None), (DEFAULT_SERVICE_NAME, "weekly_training.service")],
)
def test_services_that_are_named_by_their_run_share_the_usual_store_of_dag_and_task(
    monkeypatch: pytest.MonkeyPatch, service_name: str, usual: str | None
) -> None:
    seen: dict[str, Any] = {}

    def up(name: str, **arguments: Any) -> None:
        seen.update(arguments)
        raise ServiceError("seen")

    monkeypatch.setattr(cluster, "up", up)
    with DAG("weekly_training", schedule=None):
        task = service(service_name=service_name)
    task.service_name = "as it was rendered"
    with pytest.raises(ServiceError, match="seen"):
        task.execute({})
    assert (seen["store"], seen["usual_store"]) == (None, usual)


def test_an_unknown_cache_policy_is_refused_with_those_there_are(cachew_home: Path) -> None:
    with pytest.raises(SettingsError, match=r"cache_policy='everything'.*source"):
        service(cache_policy="everything").execute({})
    assert cluster.list_services() == []


def test_the_cache_can_be_templated() -> None:
    assert {"cache_policy", "store", "cache_dir"} <= set(service().template_fields)


def test_a_service_that_does_not_come_up_in_time_is_gone_and_the_cause_is_told(
    cachew_home: Path,
) -> None:
    with pytest.raises(ServiceError, match=r"did not listen within 0\.2 s"):
        service(startup_timeout_s=0.2).execute({})
    assert cluster.list_services() == []


def test_a_service_that_is_lost_right_after_its_start_is_taken_down(
    cachew_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(name: str) -> None:
        raise ServiceUnavailableError("the dispatcher is gone")

    with monkeypatch.context() as patch:
        patch.setattr(cluster, "status", fail)
        with pytest.raises(ServiceUnavailableError, match="the dispatcher is gone"):
            service().execute({})
    assert cluster.list_services() == []


def test_a_clean_up_that_fails_does_not_hide_what_failed_before(
    cachew_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = ServiceRecord(
        name="one",
        endpoint="grpc://127.0.0.1:1",
        workers=1,
        dispatcher_pid=1,
        agent_pid=1,
        dispatcher_started=0,
        agent_started=0,
    )

    def fail(name: str) -> None:
        raise ServiceError("the disk hangs")

    monkeypatch.setattr(cluster, "up", lambda name, **arguments: lost)
    monkeypatch.setattr(cluster, "down", fail)
    with pytest.raises(ServiceError, match="there is no service 'one'") as caught:
        service().execute({})
    assert caught.value.__notes__ == [
        "service 'one' could not be taken down afterwards: the disk hangs"
    ]


def test_a_task_that_times_out_while_it_starts_a_service_leaves_nothing(cachew_home: Path) -> None:
    with pytest.raises(AirflowTaskTimeout), timeout(1):
        service().execute({})
    assert cluster.list_services() == []


def test_killing_a_task_that_starts_a_service_leaves_nothing(
    cachew_home: Path, eventually: Callable[..., None]
) -> None:
    task = service()
    with (
        killed_while_starting(task),
        pytest.raises(CachewError, match="taken down while it started"),
    ):
        task.execute({})
    eventually(lambda: cluster.list_services() == [], "the service is gone")


def test_a_teardown_of_a_service_that_never_was_is_a_success(cachew_home: Path) -> None:
    teardown().execute({})


def test_killing_a_teardown_ends_the_service_all_the_same(
    cachew_home: Path, eventually: Callable[..., None]
) -> None:
    service().execute({})
    teardown().on_kill()
    eventually(lambda: cluster.list_services() == [], "the service is gone")
