"""What the components refuse before they start anything, and what signals do to them."""

import signal
from pathlib import Path

import pytest

from cachew_components import launcher, stop_signals
from cachew_core.cluster import list_services
from cachew_core.errors import ServiceError, SettingsError


def start(*, name: str = "refused", workers: float = 1, backend: str = "local") -> None:
    """Starts a service whose time-outs don't matter."""
    launcher.start(
        name=name,
        workers=workers,
        backend=backend,
        idle_timeout_s=60.0,
        first_client_timeout_s=60.0,
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
