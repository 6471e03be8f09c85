"""The size of a pool."""

from hypothesis import given
from hypothesis import strategies as st

from cachew_core.policy.pool_size import PoolLimits, PoolSize, resize

LIMITS = PoolLimits(least=1, most=8, standby=1, shrink_after_s=30)


def test_it_is_what_jobs_want_and_the_standby() -> None:
    assert resize(PoolSize(), [2, 3], LIMITS, 0).workers == 6


def test_it_stays_within_its_limits() -> None:
    assert resize(PoolSize(), [], PoolLimits(least=2, most=8), 0).workers == 2
    assert resize(PoolSize(), [5, 6], LIMITS, 0).workers == 8
    assert resize(PoolSize(), [None], LIMITS, 0).workers == 8


def test_it_grows_at_once_and_shrinks_when_no_more_was_wanted_for_a_while() -> None:
    size = resize(PoolSize(), [1], LIMITS, 0)
    size = resize(size, [5], LIMITS, 10)
    assert size.workers == 6
    size = resize(size, [1], LIMITS, 20)
    assert size.workers == 6
    size = resize(size, [1], LIMITS, 49)
    assert size.workers == 6
    assert resize(size, [1], LIMITS, 51).workers == 2


def test_the_need_before_the_last_counts_too() -> None:
    size = PoolSize()
    for now_s, want in ((0, 7), (10, 4), (20, 1)):
        size = resize(size, [want], LIMITS, now_s)
    assert size.workers == 8
    size = resize(size, [1], LIMITS, 41)
    assert size.workers == 5
    assert resize(size, [1], LIMITS, 51).workers == 2


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 10)), max_size=30))
def test_it_is_the_largest_need_of_the_last_while(steps: list[tuple[int, int]]) -> None:
    size, now_s = PoolSize(), 0.0
    needs: list[tuple[float, int]] = []
    for pause, want in steps:
        now_s += pause
        size = resize(size, [want], LIMITS, now_s)
        needs.append((now_s, max(1, min(8, want + 1))))
        ends = [*(began for began, _ in needs[1:]), float("inf")]
        alive = [need for (_, need), end in zip(needs, ends, strict=True) if now_s - end < 30]
        assert size.workers == max(alive)
