"""Fair shares of the pool."""

from hypothesis import given, settings
from hypothesis import strategies as st

from cachew_core.policy.share import Demand, fair_shares


def test_jobs_that_want_all_get_the_same_and_the_first_ones_what_is_left_over() -> None:
    demands = [Demand(job=name) for name in "abc"]
    assert fair_shares(8, demands) == {"a": 3, "b": 3, "c": 2}


def test_with_fewer_workers_than_jobs_the_first_ones_get_one_each() -> None:
    demands = [Demand(job=name) for name in "abc"]
    assert fair_shares(2, demands) == {"a": 1, "b": 1, "c": 0}


def test_what_one_job_can_not_use_goes_to_the_others() -> None:
    demands = [Demand(job="a", want=1), Demand(job="b")]
    assert fair_shares(5, demands) == {"a": 1, "b": 4}


def test_workers_that_can_not_be_taken_away_count_first() -> None:
    demands = [Demand(job="a", least=3), Demand(job="b")]
    assert fair_shares(4, demands) == {"a": 3, "b": 1}


_DEMANDS = st.lists(st.tuples(st.none() | st.integers(1, 6), st.integers(0, 3)), max_size=6).map(
    lambda rows: [
        Demand(job=str(i), want=want, least=least if want is None else min(least, want))
        for i, (want, least) in enumerate(rows)
    ]
)


@settings(deadline=None)
@given(st.integers(0, 30), _DEMANDS)
def test_shares_are_max_min_fair(workers: int, demands: list[Demand]) -> None:
    shares = fair_shares(workers, demands)
    assert sum(shares.values()) <= workers
    hungry = [d for d in demands if d.want is None or shares[d.job] < d.want]
    if hungry:
        assert sum(shares.values()) == workers
    for demand in demands:
        assert demand.want is None or shares[demand.job] <= demand.want
        for other in hungry:
            # Nobody could be helped by taking from somebody who has more.
            assert shares[demand.job] <= max(shares[other.job] + 1, demand.least)


def test_shares_follow_the_weights() -> None:
    demands = [Demand(job="a", weight=2), Demand(job="b")]
    assert fair_shares(9, demands) == {"a": 6, "b": 3}
    assert fair_shares(2, demands) == {"a": 1, "b": 1}


def test_a_higher_priority_comes_first() -> None:
    demands = [Demand(job="a"), Demand(job="b", want=3, priority=1)]
    assert fair_shares(5, demands) == {"a": 2, "b": 3}
    assert fair_shares(2, demands) == {"a": 0, "b": 2}


def test_a_tenant_gains_nothing_by_starting_many_jobs() -> None:
    demands = [Demand(job=f"a{n}", tenant="a") for n in range(4)] + [Demand(job="b", tenant="b")]
    assert fair_shares(8, demands) == {"a0": 1, "a1": 1, "a2": 1, "a3": 1, "b": 4}
    weighted = fair_shares(8, demands, {"a": 3})
    assert weighted["b"] == 2
    assert sum(weighted.values()) == 8


def test_what_a_tenant_does_not_want_goes_to_the_others() -> None:
    demands = [Demand(job="a", tenant="a", want=1), Demand(job="b", tenant="b")]
    assert fair_shares(8, demands) == {"a": 1, "b": 7}


@settings(deadline=None)
@given(st.integers(0, 200), st.lists(st.sampled_from([0.5, 1.0, 2.0, 5.0]), min_size=1, max_size=5))
def test_weighted_shares_are_within_one_worker_of_proportional_or_a_first_worker(
    workers: int, weights: list[float]
) -> None:
    demands = [Demand(job=str(i), weight=weight) for i, weight in enumerate(weights)]
    shares = fair_shares(workers, demands)
    assert sum(shares.values()) == workers
    for one in demands:
        for other in demands:
            if shares[one.job] > 1 and shares[other.job] > 0:
                # Giving one worker of the first to the other would not bring them nearer.
                assert (shares[one.job] - 0.5) / one.weight <= (
                    shares[other.job] + 0.5
                ) / other.weight + 1e-9
