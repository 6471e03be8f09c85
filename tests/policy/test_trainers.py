"""Several trainers of one job taken together."""

import math
from dataclasses import replace

import pytest

from cachew_core.policy.progress import Progress
from cachew_core.policy.trainers import QUIET_S, Reading, Trainers, combine, problem_of


def _reading(batches: int, *, period_s: float, own_s: float, epoch: int = 1) -> Reading:
    """Of a trainer with so much time from batch to batch, and so much work of its own in it."""
    seconds = (batches - 1) * period_s
    return Reading(
        epoch=epoch,
        batches=batches,
        seconds=seconds,
        wait_s=(batches - 1) * (period_s - own_s),
        at_s=seconds,
    )


def _combined(*rounds: dict[str, Reading]) -> list[Progress]:
    state, found = Trainers(), []
    for readings in rounds:
        state, total = combine(state, readings, epoch=1, workers=3)
        found += [total] if total is not None else []
    return found


def _rate_and_demand(first: Progress, last: Progress) -> tuple[float, float]:
    batches, seconds = last.batches - first.batches, last.seconds - first.seconds
    own_s = seconds - (last.wait_s - first.wait_s)
    return batches / seconds, batches / own_s


def test_one_trainer_counts_as_it_measures() -> None:
    found = _combined(*({"a": _reading(n, period_s=0.1, own_s=0.02)} for n in (5, 10, 20)))
    assert [each.batches for each in found] == [5, 10, 20]
    assert [each.seconds for each in found] == pytest.approx([0.4, 0.9, 1.9])
    assert [each.wait_s for each in found] == pytest.approx([0.32, 0.72, 1.52])


def test_trainers_that_run_on_their_own_add_up() -> None:
    first, last = _combined(
        *(
            {
                "a": _reading(n, period_s=0.1, own_s=0.05),
                "b": _reading(2 * n, period_s=0.05, own_s=0.02),
            }
            for n in (10, 40)
        )
    )
    rate, demand = _rate_and_demand(first, last)
    assert rate == pytest.approx(10 + 20)
    assert demand == pytest.approx(20 + 50)


def test_in_lockstep_the_one_that_waits_for_data_shows_what_all_would_take() -> None:
    # The second one waits for the first one, which it takes for work of its own.
    first, last = _combined(
        *(
            {
                "a": _reading(n, period_s=0.1, own_s=0.03),
                "b": _reading(n, period_s=0.1, own_s=0.09),
            }
            for n in (10, 40)
        )
    )
    rate, demand = _rate_and_demand(first, last)
    assert rate == pytest.approx(2 * 10)
    assert demand == pytest.approx(2 / 0.03)


def test_nothing_is_said_before_all_that_are_at_work_have_told() -> None:
    a, b = _reading(10, period_s=0.1, own_s=0.05), _reading(11, period_s=0.1, own_s=0.05)
    found = _combined({"a": a, "b": b}, {"a": _reading(20, period_s=0.1, own_s=0.05), "b": b})
    assert len(found) == 1
    late = {name: _reading(20, period_s=0.1, own_s=0.05) for name in "ab"}
    assert len(_combined({"a": a, "b": b}, late)) == 2


def test_one_that_takes_nothing_for_long_is_left_out() -> None:
    quiet = _reading(10, period_s=0.1, own_s=0.05)
    later = _reading(200, period_s=0.1, own_s=0.05)
    assert later.at_s - quiet.at_s > QUIET_S
    first, last = _combined({"a": quiet, "b": quiet}, {"a": later, "b": quiet})
    rate, _ = _rate_and_demand(first, last)
    assert rate == pytest.approx(10)


def test_an_epoch_counts_from_its_own_start() -> None:
    state, _ = combine(
        Trainers(), {"a": _reading(30, period_s=0.1, own_s=0.05)}, epoch=1, workers=1
    )
    state, total = combine(
        state, {"a": _reading(5, period_s=0.1, own_s=0.05, epoch=2)}, epoch=2, workers=2
    )
    assert total is not None
    assert (total.epoch, total.workers, total.batches) == (2, 2, 5)
    assert total.seconds == pytest.approx(0.4)


def test_a_trainer_that_never_works_between_two_batches_has_no_end_to_its_demand() -> None:
    [total] = _combined({"a": _reading(10, period_s=0.1, own_s=0.0)})
    assert total.wait_s == pytest.approx(total.seconds)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"batches": -1}, "batches=-1"),
        ({"seconds": math.nan}, "seconds=nan"),
        ({"wait_s": math.inf}, "waiting=inf"),
        ({"wait_s": 99.0}, "it waited 99 s"),
        ({"batches": 3}, "went back from 10 to 3"),
        ({"seconds": 0.5, "wait_s": 0.1}, "went back from 0.9 to 0.5"),
    ],
)
def test_what_makes_no_sense_is_named(changes: dict[str, float], problem: str) -> None:
    last = _reading(10, period_s=0.1, own_s=0.05)
    assert problem_of(None, last) == problem_of(last, last) == ""
    assert problem in problem_of(last, replace(last, **changes))  # type: ignore[arg-type]


def test_a_new_epoch_may_count_from_the_start_again() -> None:
    last = _reading(10, period_s=0.1, own_s=0.05)
    assert problem_of(last, _reading(2, period_s=0.1, own_s=0.05, epoch=2)) == ""
