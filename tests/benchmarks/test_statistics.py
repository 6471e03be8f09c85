"""Ratios, their intervals and bounds; and when a comparison has enough pairs."""

import itertools
import math
import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.pairing import Comparison, Plan, Runs, Stop, compare
from benchmarks.ratios import FEWEST_PAIRS, Bound, Interval, Side, estimate

positive = st.floats(0.1, 10)


def around(ratio: float, *, spread: float, pairs: int, seed: int = 0) -> list[float]:
    """Ratios of pairs whose logarithms are normal."""
    draw = random.Random(seed)
    return [ratio * math.exp(draw.gauss(0, spread)) for _ in range(pairs)]


def test_equal_ratios_have_an_interval_without_width() -> None:
    interval = estimate([1.25] * 30)
    assert interval.ratio == pytest.approx(1.25)
    assert interval.half_width == pytest.approx(0)


def test_the_interval_is_about_as_wide_as_the_t_interval_of_normal_ratios() -> None:
    intervals = [estimate(around(1, spread=0.05, pairs=40, seed=seed)) for seed in range(50)]
    widths = [math.log(interval.high / interval.low) for interval in intervals]
    t_width = 2 * 2.0227 * 0.05 / math.sqrt(40)
    assert sum(widths) / 50 == pytest.approx(t_width, rel=0.1)


@pytest.mark.parametrize("pairs", [FEWEST_PAIRS, 10, 30])
def test_nineteen_of_twenty_intervals_hold_the_true_ratio(pairs: int) -> None:
    intervals = [estimate(around(0.9, spread=0.1, pairs=pairs, seed=seed)) for seed in range(1000)]
    assert sum(interval.low <= 0.9 <= interval.high for interval in intervals) >= 930


def test_hiccups_do_not_move_the_estimate() -> None:
    ratios = around(1, spread=0.02, pairs=40)
    spoilt = estimate([*ratios[:36], *(ratio * 5 for ratio in ratios[36:])])
    assert spoilt.ratio == pytest.approx(estimate(ratios).ratio, rel=0.01)


@given(st.lists(positive, min_size=FEWEST_PAIRS, max_size=40))
def test_swapped_sides_give_the_inverse(ratios: list[float]) -> None:
    there, back = estimate(ratios), estimate([1 / ratio for ratio in ratios])
    assert back.ratio == pytest.approx(1 / there.ratio)
    assert back.low == pytest.approx(1 / there.high)
    assert back.high == pytest.approx(1 / there.low)


@given(st.lists(positive, min_size=FEWEST_PAIRS, max_size=40))
def test_the_interval_holds_the_estimate_and_lies_within_the_ratios(ratios: list[float]) -> None:
    interval = estimate(ratios)
    slack = 1 + 1e-9
    assert min(ratios) / slack <= interval.low <= interval.ratio * slack
    assert interval.ratio / slack <= interval.high <= max(ratios) * slack


def test_too_few_pairs_are_refused() -> None:
    with pytest.raises(ValueError, match="5 pairs"):
        estimate([1.0] * (FEWEST_PAIRS - 1))


@pytest.mark.parametrize(
    ("low", "high", "side", "holds"),
    [
        (0.95, 0.98, Side.AT_LEAST, True),
        (0.98, 0.99, Side.AT_LEAST, True),
        (0.90, 0.96, Side.AT_LEAST, False),
        (0.96, 0.99, Side.AT_MOST, True),
        (0.90, 0.96, Side.AT_MOST, True),
        (0.98, 0.99, Side.AT_MOST, False),
    ],
)
def test_a_bound_fails_only_if_the_whole_interval_is_beyond_it(
    low: float, high: float, side: Side, holds: bool
) -> None:
    bound = Bound(side=side, limit=0.97)
    assert bound.holds(Interval(ratio=(low + high) / 2, low=low, high=high)) is holds


def compared(
    ours: Callable[[], float],
    stock: Callable[[], float],
    plan: Plan,
    *,
    tell: Callable[[Runs, float], None] = lambda runs, seconds: None,
) -> Comparison:
    """Compares with a clock that moves by a second whenever it is asked."""
    ticks = itertools.count()
    return compare(
        ours, stock, plan, shuffled=random.Random(0), tell=tell, clock=lambda: float(next(ticks))
    )


def test_a_comparison_ends_once_its_interval_is_narrow_but_not_before_the_least_pairs() -> None:
    comparison = compared(lambda: 3.0, lambda: 2.0, Plan(least_pairs=30, max_seconds=1e9))
    assert comparison.stop is Stop.PRECISE
    assert comparison.runs.pairs == 30
    assert comparison.runs.ratio().ratio == pytest.approx(1.5)
    assert comparison.runs.noise().ratio == pytest.approx(1)


def test_a_noisy_comparison_goes_on_until_its_interval_is_narrow() -> None:
    draw = random.Random(1)
    plan = Plan(least_pairs=30, max_seconds=1e9)
    comparison = compared(lambda: math.exp(draw.gauss(0, 0.15)), lambda: 1.0, plan)
    assert comparison.stop is Stop.PRECISE
    assert comparison.runs.pairs > 30
    assert comparison.runs.ratio().half_width <= plan.half_width


def test_a_comparison_ends_when_its_time_is_up() -> None:
    draw = random.Random(1)
    noisy = compared(lambda: math.exp(draw.gauss(0, 1)), lambda: 1.0, Plan(max_seconds=50))
    assert noisy.stop is Stop.TIME
    assert noisy.runs.pairs == 2 * 50


def test_a_comparison_without_time_has_its_least_pairs() -> None:
    draw = random.Random(1)
    noisy = compared(lambda: math.exp(draw.gauss(0, 1)), lambda: 1.0, Plan(max_seconds=0))
    assert noisy.stop is Stop.TIME
    assert noisy.runs.pairs == 30


def test_the_sides_of_a_round_run_in_changing_order() -> None:
    runs: list[str] = []

    def run(side: str) -> float:
        runs.append(side)
        return 1.0

    compared(lambda: run("ours"), lambda: run("stock"), Plan(max_seconds=1e9))
    rounds = {tuple(runs[start : start + 4]) for start in range(0, len(runs), 4)}
    assert all(turns.count("ours") == turns.count("stock") == 2 for turns in rounds)
    assert len(rounds) > 1


def test_each_round_is_told() -> None:
    told: list[int] = []
    compared(
        lambda: 1.0, lambda: 1.0, Plan(least_pairs=12), tell=lambda runs, _: told.append(runs.pairs)
    )
    assert told == [2, 4, 6, 8, 10, 12]
