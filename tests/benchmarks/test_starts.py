"""From which batch on a job is steady, for known times."""

import itertools

import pytest

from benchmarks.scaling.starts import steady_from


def came(*gaps: float) -> list[float]:
    return list(itertools.accumulate(gaps, initial=1.0))


def test_what_is_steady_from_the_start_is_steady_at_its_first_batch() -> None:
    batch, at_s, steady_s = steady_from(came(*[0.01] * 40))
    assert (batch, at_s) == (1, 1.0)
    assert steady_s == pytest.approx(0.01)


def test_a_slow_start_is_over_where_batches_come_as_in_the_end() -> None:
    batch, at_s, steady_s = steady_from(came(*[0.04] * 20, *[0.01] * 60))
    assert batch == 21
    assert at_s == pytest.approx(1.8)
    assert steady_s == pytest.approx(0.01)


def test_what_never_is_steady_is_steady_at_its_end() -> None:
    gaps = [0.3 if number % 5 == 0 else 0.01 for number in range(40)]
    assert steady_from(came(*gaps))[0] == 41
