"""Kubernetes' autoscaler: the examples of its documentation, and its stabilization."""

import pytest

from benchmarks.scaling.hpa import Hpa, HpaSettings


def hpa(target: float = 100.0) -> Hpa:
    return Hpa(target=target, least=1, most=100)


@pytest.mark.parametrize(
    ("workers", "metric", "wanted"),
    [(1, 200.0, 2), (4, 50.0, 2), (4, 105.0, 4), (4, 91.0, 4), (3, 134.0, 5), (4, 0.0, 1)],
)
def test_the_number_follows_the_ratio(workers: int, metric: float, wanted: int) -> None:
    assert hpa().sync(0, workers, metric) == wanted


def test_a_step_up_is_bounded() -> None:
    assert hpa().sync(0, 1, 10_000.0) == 5
    assert hpa().sync(0, 10, 10_000.0) == 20


def test_a_step_down_waits_for_the_largest_wish_to_be_old() -> None:
    scaler = hpa()
    assert scaler.sync(0, 2, 200.0) == 4
    assert scaler.sync(15, 4, 50.0) == 4
    assert scaler.sync(300, 4, 50.0) == 4
    assert scaler.sync(316, 4, 50.0) == 2


def test_limits_hold() -> None:
    scaler = Hpa(target=1.0, least=2, most=3)
    assert scaler.sync(0, 2, 5.0) == 3
    assert scaler.sync(400, 3, 0.0) == 2


def test_a_shorter_clock_changes_times_only() -> None:
    scaled = HpaSettings().scaled(0.1)
    assert (scaled.sync_s, scaled.stabilization_s) == pytest.approx((1.5, 30.0))
    assert (scaled.tolerance, scaled.most_added) == (0.1, 4)
