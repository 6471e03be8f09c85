"""What our rule comes to beside others, from known times."""

import pytest

from benchmarks.scaling.report import PipelineReport, RunRecord, WayReport
from benchmarks.scaling.rivals import bounds, rivalries


def way(name: str, seconds: float, worker_s: float, static: int | None = None) -> WayReport:
    run = RunRecord(seconds=seconds, worker_s=worker_s, workers=[(0.0, 1), (1.0, 4)])
    return WayReport(name=name, static=static, runs=[run])


STATIC = [way("1 static", 40, 40, static=1), way("4 static", 10, 40, static=4)]
OURS = way("auto", 11, 40)


def report(*ways: WayReport) -> PipelineReport:
    return PipelineReport(name="made up", ways=[*STATIC, *ways])


def test_each_other_rule_is_compared_with_ours() -> None:
    (found,) = rivalries(report(OURS, way("hill climb", 14, 50)))
    assert found.rival == "hill climb"
    assert found.seconds == pytest.approx(14 / 11)
    assert found.excess == pytest.approx(1 / 4)
    assert found.worker_s == pytest.approx(40 / 50)
    assert found.cost > 1


def test_without_ours_there_is_nothing_to_compare() -> None:
    assert rivalries(report(way("hill climb", 14, 50))) == []


def test_a_rule_as_fast_as_the_best_fixed_number_has_no_excess() -> None:
    (found,) = rivalries(report(OURS, way("HPA on wait", 9.9, 40)))
    assert found.excess is None
    assert not bounds(found, fewest=4)[0].holds


def test_ours_counts_as_no_faster_than_the_best_fixed_number() -> None:
    (found,) = rivalries(report(way("auto", 9, 40), way("hill climb", 12, 40)))
    assert found.excess == 0


@pytest.mark.parametrize(
    ("rival", "holds"),
    [
        (way("HPA on CPU", 40, 160), [True, True]),
        (way("HPA on CPU", 30, 60), [False, False]),
        (way("HPA on wait", 12.2, 41), [True, True]),
        (way("HPA on wait", 11.05, 39), [False, False]),
        (way("hill climb", 12.1, 45), [True, True]),
        (way("hill climb", 11.5, 20), [False, False]),
    ],
)
def test_bounds_hold_or_not(rival: WayReport, holds: list[bool]) -> None:
    (found,) = rivalries(report(OURS, rival))
    assert [bound.holds for bound in bounds(found, fewest=4)] == holds
