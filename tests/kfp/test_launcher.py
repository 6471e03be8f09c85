"""What the components refuse before they start anything, and what signals do to them."""

import signal
from pathlib import Path

import pytest

from cachew_components import launcher, stop_signals
from cachew_components.cachew_service.component import cachew_service
from cachew_core.cluster import list_services, local
from cachew_core.errors import ServiceError, SettingsError


def start(
    *,
    name: str = "refused",
    workers: float = 1,
    backend: str = "local",
    max_workers: float = 0,
    standby: float = 0,
    scaling_policy: str = "",
    cache_policy: str = "",
    store: str = "",
    cache_dir: str = "",
) -> None:
    """Starts a service whose time-outs don't matter."""
    launcher.start(
        name=name,
        workers=workers,
        backend=backend,
        idle_timeout_s=60.0,
        first_client_timeout_s=60.0,
        max_workers=max_workers,
        standby=standby,
        scaling_policy=scaling_policy,
        cache_policy=cache_policy,
        store=store,
        cache_dir=cache_dir,
    )


def test_an_unknown_backend_is_refused_with_the_names_of_those_there_are(home: Path) -> None:
    with pytest.raises(SettingsError, match=r"backend 'mainframe' is not supported.*'local'"):
        start(backend="mainframe")
    with pytest.raises(SettingsError, match=r"backend 'mainframe' is not supported.*'local'"):
        launcher.stop(name="refused", backend="mainframe", drain=False)
    assert list_services() == []


def test_a_local_service_is_refused_in_a_pod_that_ends_with_the_step(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KFP_POD_NAME", "photographs-1-impl")
    with pytest.raises(ServiceError, match=r"inside this step's pod .photographs-1-impl."):
        start()
    assert list_services() == []


@pytest.mark.parametrize("workers", [2.5, float("nan"), float("inf")])
def test_a_number_of_workers_with_a_fraction_is_refused(home: Path, workers: float) -> None:
    with pytest.raises(SettingsError, match=r"parameter workers=.* must be a whole number"):
        start(workers=workers)


@pytest.mark.parametrize(
    ("given", "passed_on"),
    [
        (("source", "weekly", "/some/where"), ("source", "weekly", "/some/where")),
        (("", "", ""), (None, None, None)),
    ],
    ids=["given", "left to the settings"],
)
def test_what_is_said_of_the_cache_reaches_the_service(
    monkeypatch: pytest.MonkeyPatch, given: tuple[str, str, str], passed_on: tuple[object, ...]
) -> None:
    seen: dict[str, object] = {}

    def up(name: str, **arguments: object) -> None:
        seen.update(arguments)

    monkeypatch.setattr(local, "up", up)
    policy, store, folder = given
    start(cache_policy=policy, store=store, cache_dir=folder)
    assert (seen["cache_policy"], seen["store"], seen["cache_dir"]) == passed_on


@pytest.mark.parametrize(
    ("given", "passed_on"),
    [
        # kfp hands integers on as floats.
        ((2.0, 8.0, 1.0, "hill_climb"), (None, 2, 8, 1, "hill_climb")),
        ((2.0, 0.0, 0.0, ""), (2, None, None, None, None)),
    ],
    ids=["given", "left to the settings"],
)
def test_what_is_said_of_the_number_of_workers_reaches_the_service(
    monkeypatch: pytest.MonkeyPatch,
    given: tuple[float, float, float, str],
    passed_on: tuple[object, ...],
) -> None:
    seen: dict[str, object] = {}

    def up(name: str, **arguments: object) -> None:
        seen.update(arguments)

    monkeypatch.setattr(local, "up", up)
    workers, most, standby, policy = given
    start(workers=workers, max_workers=most, standby=standby, scaling_policy=policy)
    names = ("workers", "min_workers", "max_workers", "standby", "scaling_policy")
    assert tuple(seen[name] for name in names) == passed_on


def test_fewer_workers_at_most_than_at_least_are_refused(home: Path) -> None:
    with pytest.raises(SettingsError, match=r"min_workers"):
        start(workers=4, max_workers=2)
    assert list_services() == []


@pytest.mark.parametrize(("name", "usual"), [("", "kubeflow-pipelines"), ("mine", "")])
def test_only_services_that_are_named_by_their_run_have_the_usual_store(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, usual: str
) -> None:
    seen: dict[str, object] = {}

    def started(**arguments: object) -> None:
        seen.update(arguments)
        raise ServiceError("seen")

    monkeypatch.setattr(launcher, "start", started)
    with pytest.raises(ServiceError, match="seen"):
        cachew_service.python_func(
            service=None, endpoint=str(tmp_path / "endpoint"), name=name, run_id="1"
        )
    assert (seen["store"], seen["usual_store"]) == ("", usual)


def test_an_unknown_cache_policy_is_refused_with_those_there_are(home: Path) -> None:
    with pytest.raises(SettingsError, match=r"cache_policy='everything'.*source"):
        start(cache_policy="everything")
    assert list_services() == []


def test_integers_that_come_as_floats_are_integers_again() -> None:
    number = launcher.whole_number("workers", 2.0)
    assert (number, type(number)) == (2, int)


def test_a_name_that_no_service_can_have_is_refused(home: Path) -> None:
    with pytest.raises(SettingsError, match="service name 'my service' can't be used"):
        start(name="my service")


def test_taking_down_what_is_not_there_is_fine_each_time(home: Path) -> None:
    for _ in range(2):
        launcher.stop(name="never-started", backend="local", drain=False)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_starting_step_with_its_clean_up(number: signal.Signals) -> None:
    cleared_away = []

    def start_a_service() -> None:
        with stop_signals.as_exception():
            try:
                signal.raise_signal(number)
            finally:
                cleared_away.append(True)

    with pytest.raises(SystemExit) as ended:
        start_a_service()
    assert cleared_away
    assert ended.value.code == 128 + number


@pytest.mark.parametrize(
    ("number", "effect"),
    [(signal.SIGTERM, SystemExit), (signal.SIGHUP, SystemExit), (signal.SIGINT, KeyboardInterrupt)],
)
def test_a_teardown_finishes_before_a_signal_takes_effect(
    number: signal.Signals, effect: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    finished = []

    def take_a_service_down() -> None:
        with stop_signals.as_exception(), stop_signals.deferred():
            # Impatience changes nothing.
            signal.raise_signal(number)
            signal.raise_signal(number)
            finished.append(True)

    with pytest.raises(effect):
        take_a_service_down()
    assert finished
    assert f"{number.name}: this ends once the service is down" in caplog.text


def test_signals_mean_what_they_meant_before_once_the_step_is_done() -> None:
    def handlers() -> list[object]:
        return [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]

    before = handlers()
    with stop_signals.as_exception(), stop_signals.deferred():
        assert handlers() != before
    assert handlers() == before
