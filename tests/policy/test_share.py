"""Even shares of the pool."""

from hypothesis import given
from hypothesis import strategies as st

from cachew_core.policy.share import Demand, even_shares


def test_each_job_gets_the_same_and_the_first_ones_what_is_left_over() -> None:
    demands = [Demand(job=name) for name in "abc"]
    assert even_shares(8, demands) == {"a": 3, "b": 3, "c": 2}


def test_with_fewer_workers_than_jobs_the_first_ones_get_one_each() -> None:
    demands = [Demand(job=name) for name in "abc"]
    assert even_shares(2, demands) == {"a": 1, "b": 1, "c": 0}


def test_what_one_job_can_not_use_goes_to_the_others() -> None:
    demands = [Demand(job="a", most=1), Demand(job="b")]
    assert even_shares(5, demands) == {"a": 1, "b": 4}


def test_workers_that_can_not_be_taken_away_count_first() -> None:
    demands = [Demand(job="a", least=3), Demand(job="b")]
    assert even_shares(4, demands) == {"a": 3, "b": 1}


_DEMANDS = st.lists(st.tuples(st.none() | st.integers(1, 6), st.integers(0, 3)), max_size=6).map(
    lambda rows: [
        Demand(job=str(i), most=most, least=least if most is None else min(least, most))
        for i, (most, least) in enumerate(rows)
    ]
)


@given(st.integers(0, 30), _DEMANDS)
def test_shares_are_max_min_fair(workers: int, demands: list[Demand]) -> None:
    shares = even_shares(workers, demands)
    assert sum(shares.values()) <= workers
    hungry = [d for d in demands if d.most is None or shares[d.job] < d.most]
    if hungry:
        assert sum(shares.values()) == workers
    for demand in demands:
        assert demand.most is None or shares[demand.job] <= demand.most
        for other in hungry:
            # Nobody could be helped by taking from somebody who has more.
            assert shares[demand.job] <= max(shares[other.job] + 1, demand.least)
