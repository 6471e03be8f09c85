"""Taking a choice back, in virtual time."""

import random
from collections.abc import Sequence

import pytest

from cachew_core.policy.constants import AutocacheSettings
from cachew_core.policy.decisions import Environment
from cachew_core.policy.modes import END, Mode
from cachew_core.policy.review import Window, computing_s, review

HERE = Environment(device="/cache", version="1")


def _epoch(
    epoch: int,
    mode: Mode,
    batch_s: Sequence[float],
    *,
    workers: int = 1,
    waited: bool = True,
    cold: bool = False,
    point: str = END,
    beside: bool = False,
) -> list[Window]:
    return [
        Window(
            epoch=epoch,
            mode=mode,
            point=point if mode.reads else "",
            workers=workers,
            batches=100,
            seconds=seconds * 100,
            waited=waited,
            cold=cold,
            beside=beside,
        )
        for seconds in batch_s
    ]


def _steady(epoch: int, mode: Mode, batch_s: float, **rest) -> list[Window]:
    return _epoch(epoch, mode, [batch_s] * 5, **rest)


def test_two_epochs_that_are_worse_than_computing_take_the_choice_back() -> None:
    windows = _steady(0, Mode.COMPUTE, 0.100) + _steady(1, Mode.PUT, 0.2)
    windows += _steady(2, Mode.GET, 0.115)
    assert review(windows, END, HERE) is None
    verdict = review(windows + _steady(3, Mode.GET, 0.115), END, HERE)
    assert verdict is not None
    assert (verdict.point, verdict.environment, verdict.workers) == (END, HERE, 1)
    assert "115.0 worker-ms a batch against 100.0 of COMPUTE" in verdict.reason
    assert "warm" in verdict.reason


def test_ten_percent_worse_is_not_worse_enough() -> None:
    windows = _steady(0, Mode.COMPUTE, 0.100)
    for epoch in (1, 2, 3):
        windows += _steady(epoch, Mode.GET, 0.109)
    assert review(windows, END, HERE) is None


def test_a_good_epoch_between_bad_ones_keeps_the_choice() -> None:
    windows = _steady(0, Mode.COMPUTE, 0.100) + _steady(1, Mode.GET, 0.13)
    windows += _steady(2, Mode.GET, 0.08) + _steady(3, Mode.GET, 0.13)
    assert review(windows, END, HERE) is None


def test_more_workers_are_no_excuse_and_no_reproach() -> None:
    # 4 workers read a batch in 40 ms: 160 worker-ms, against 100 of a lone worker that computes.
    computed = _steady(0, Mode.COMPUTE, 0.100)
    wasteful = [w for e in (1, 2) for w in _steady(e, Mode.GET, 0.04, workers=4)]
    assert review(computed + wasteful, END, HERE) is not None
    # Computing with 4 workers had been no better: they share something.
    shared = _steady(0, Mode.COMPUTE, 0.042, workers=4)
    assert review(computed + shared + wasteful, END, HERE) is None


def test_cold_reads_are_not_held_against_warm_ones() -> None:
    windows = _steady(0, Mode.COMPUTE, 0.100, cold=True) + _steady(1, Mode.COMPUTE, 0.05)
    for epoch in (2, 3):
        windows += _steady(epoch, Mode.GET, 0.09, cold=True)
    assert review(windows, END, HERE) is None
    # One cold and one warm epoch that were worse are not two of a kind.
    mixed = _steady(0, Mode.COMPUTE, 0.05)
    mixed += _steady(1, Mode.GET, 0.09, cold=True) + _steady(2, Mode.GET, 0.09)
    assert review(mixed, END, HERE) is None
    assert review(mixed + _steady(3, Mode.GET, 0.09), END, HERE) is not None


def test_where_the_trainer_never_waited_worker_seconds_are_compared() -> None:
    def idle(epoch: int, mode: Mode, workers: int) -> list[Window]:
        return _steady(epoch, mode, 0.1, workers=workers, waited=False)

    # Both were scaled up to 4 at first and came down from there.
    computed = idle(0, Mode.COMPUTE, 4) + idle(1, Mode.COMPUTE, 2)
    assert review(computed + idle(2, Mode.GET, 4) + idle(3, Mode.GET, 4), END, HERE) is not None
    assert review(computed + idle(2, Mode.GET, 2) + idle(3, Mode.GET, 2), END, HERE) is None
    assert review(computed + idle(2, Mode.GET, 1) + idle(3, Mode.GET, 1), END, HERE) is None


def test_reads_that_keep_up_are_not_worse_than_computing_that_did_not() -> None:
    windows = _steady(0, Mode.COMPUTE, 0.1)
    for epoch in (1, 2):
        windows += _steady(epoch, Mode.GET, 0.05, workers=4, waited=False)
    assert review(windows, END, HERE) is None


def test_reads_that_are_waited_for_are_worse_than_computing_that_kept_up() -> None:
    windows = _steady(0, Mode.COMPUTE, 0.1, waited=False)
    for epoch in (1, 2):
        windows += _steady(epoch, Mode.GET, 0.15)
    assert review(windows, END, HERE) is not None


@pytest.mark.parametrize("mode", [Mode.PROFILE, Mode.PUT, Mode.PUT_SOURCE])
def test_other_modes_and_points_are_no_evidence(mode: Mode) -> None:
    bad = [w for epoch in (1, 2) for w in _steady(epoch, Mode.GET, 0.2)]
    assert review(_steady(0, mode, 0.1) + bad, END, HERE) is None
    assert review(_steady(0, Mode.COMPUTE, 0.1) + bad, "another", HERE) is None


def test_an_epoch_of_few_windows_is_no_evidence() -> None:
    windows = _steady(0, Mode.COMPUTE, 0.1)
    for epoch in (1, 2):
        windows += _epoch(epoch, Mode.GET, [0.2, 0.2])
    assert review(windows, END, HERE) is None
    lenient = AutocacheSettings(least_windows=1)
    assert review(windows, END, HERE, lenient) is not None


def _noisy_run(seed: int, get_s: float, *, noise: float, epochs: int) -> int | None:
    # The GET epoch, from 1, after which the choice was taken back. The noise is that from window to
    # window; from epoch to epoch there are 2 % more.
    dice = random.Random(seed)
    windows: list[Window] = []
    for epoch in range(epochs + 1):
        mode, mean = (Mode.COMPUTE, 0.1) if epoch == 0 else (Mode.GET, get_s)
        level = mean * dice.lognormvariate(0, 0.02)
        windows += _epoch(epoch, mode, [level * dice.lognormvariate(0, noise) for _ in range(12)])
        if review(windows, END, HERE) is not None:
            return epoch
    return None


@pytest.mark.parametrize("noise", [0.02, 0.15, 0.4])
@pytest.mark.parametrize("get_s", [0.06, 0.1])
def test_noise_takes_nothing_back_in_twenty_epochs(get_s: float, noise: float) -> None:
    for seed in range(50):
        assert _noisy_run(seed, get_s, noise=noise, epochs=20) is None, seed


@pytest.mark.parametrize(("get_s", "noise"), [(0.13, 0.02), (0.2, 0.15)])
def test_under_noise_a_bad_choice_goes_after_two_epochs(get_s: float, noise: float) -> None:
    for seed in range(50):
        assert _noisy_run(seed, get_s, noise=noise, epochs=4) == 2, seed


def test_a_cache_that_became_slow_is_found_whenever_that_was() -> None:
    windows = _steady(0, Mode.COMPUTE, 0.1)
    windows += [w for epoch in range(1, 15) for w in _steady(epoch, Mode.GET, 0.05)]
    slow = [w for epoch in (15, 16) for w in _steady(epoch, Mode.GET, 0.14)]
    assert review(windows + slow[:5], END, HERE) is None
    assert review(windows + slow, END, HERE) is not None


def test_a_measurement_beside_computing_does_not_hide_that_reading_is_worse() -> None:
    # The measurement took half of the lake's bandwidth for most of the epoch.
    windows = _epoch(
        0, Mode.COMPUTE, [0.03, 0.06, 0.06, 0.031, 0.06, 0.03, 0.06, 0.06], beside=True
    )
    windows += _steady(1, Mode.GET, 0.043) + _steady(2, Mode.GET, 0.043)
    verdict = review(windows, END, HERE)
    assert verdict is not None
    assert "against 30.0 of COMPUTE" in verdict.reason


def test_computing_is_told_from_windows_without_a_measurement_where_there_are_some() -> None:
    beside = _epoch(0, Mode.COMPUTE, [0.02] * 8, beside=True)
    assert computing_s(beside + _epoch(1, Mode.COMPUTE, [0.05] * 6)) == pytest.approx(0.05)
    assert computing_s(beside) == pytest.approx(0.02)


def test_computing_is_not_told_from_few_windows_or_from_trainers_that_did_not_wait() -> None:
    assert computing_s(_epoch(0, Mode.COMPUTE, [0.05] * 5)) is None
    assert computing_s(_epoch(0, Mode.COMPUTE, [0.05] * 9, waited=False)) is None
    assert computing_s(_epoch(0, Mode.GET, [0.05] * 9)) is None
