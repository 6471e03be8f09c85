"""What is chosen to be stored, and why."""

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cachew_core.policy.autocache import choose
from cachew_core.policy.constants import AutocacheSettings, CostModel, Objective, Prices
from cachew_core.policy.costs import (
    BatchCost,
    Measurement,
    PointProfile,
    Profile,
    batch_s,
    compute_cost,
    epoch_s,
    get_cost,
)
from cachew_core.policy.decisions import Decision, Environment, Situation, Verdict
from cachew_core.policy.modes import END, Mode

HERE = Environment(device="/cache", version="1")
SITUATION = Situation(workers=1, environment=HERE)
MARK = Measurement(
    per_batch=32, active_s=0.001, bytes_per_element=50_000, get_s=0.0005, suffix_s=0.02, put_s=1e-5
)
WHOLE = Measurement(per_batch=1, active_s=0.06, bytes_per_element=4e6, get_s=0.01, put_s=0.001)
PROFILE = Profile(
    compute_s=0.06,
    batches=100,
    points=(PointProfile(name="raw", measured=MARK), PointProfile(name=END, measured=WHOLE)),
)
COST = AutocacheSettings(objective=Objective.COST)

_TIMES = st.floats(1e-4, 1.0)
_MEASUREMENTS = st.builds(
    Measurement,
    per_batch=st.sampled_from([0.5, 1.0, 32.0]),
    active_s=_TIMES,
    bytes_per_element=st.floats(1.0, 1e7),
    get_s=_TIMES,
    put_s=_TIMES,
    suffix_s=_TIMES,
)


def _profile(compute_s: float, measured: Iterable[Measurement]) -> Profile:
    names = ["a", "b", END]
    points = [PointProfile(name=n, measured=m) for n, m in zip(names, measured, strict=False)]
    return Profile(compute_s=compute_s, batches=100, points=tuple(points), cache_bandwidth=1e8)


_PROFILES = st.builds(_profile, _TIMES, st.lists(_MEASUREMENTS, max_size=3))
_SITUATIONS = st.builds(
    Situation,
    workers=st.integers(1, 12),
    environment=st.just(HERE),
    demand=st.none() | st.floats(0.5, 1000.0),
    expected_reads=st.floats(0.1, 20.0),
    entries=st.frozensets(st.sampled_from(["a", "b", END])),
)
_SETTINGS = st.builds(
    AutocacheSettings, cost_model=st.sampled_from(CostModel), margin=st.floats(0.0, 0.2)
)


def _assume_all_may_be_written(decision: Decision) -> None:
    """Leaves out cases in which another entry would not earn the epoch that writes it."""
    assume(not any("an epoch that writes it" in c.left_out for c in decision.candidates))


def _times_of_all(
    profile: Profile, situation: Situation, settings: AutocacheSettings
) -> dict[str, list[float]]:
    costs = {"": compute_cost(profile)}
    for point in profile.points:
        assert point.measured is not None
        costs[point.name] = get_cost(profile, point.name, point.measured, settings.cost_model)
    return {
        name: [batch_s(cost, n, situation.demand) for n in range(1, situation.workers + 1)]
        for name, cost in costs.items()
    }


def _chosen_figures(decision: Decision):
    (chosen,) = [c for c in decision.candidates if c.point == decision.point]
    assert chosen.figures is not None
    return chosen.figures


def _slower(profile: Profile, factor: float) -> Profile:
    def slow(measured: Measurement) -> Measurement:
        return replace(
            measured,
            active_s=measured.active_s * factor,
            get_s=measured.get_s * factor,
            put_s=measured.put_s * factor,
            suffix_s=measured.suffix_s * factor,
        )

    assert profile.cache_bandwidth is not None
    return replace(
        profile,
        compute_s=profile.compute_s * factor,
        cache_bandwidth=profile.cache_bandwidth / factor,
        points=tuple(replace(p, measured=p.measured and slow(p.measured)) for p in profile.points),
    )


@settings(deadline=None)
@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1), st.integers(1, 50), st.none() | _TIMES)
def test_an_epoch_gets_no_shorter_by_slower_work_and_no_longer_by_more_workers(
    worker_s: float, more_s: float, shared_s: float, workers: int, demand: float | None
) -> None:
    cost = BatchCost(worker_s=worker_s, shared_s=shared_s)
    slower = BatchCost(worker_s=worker_s + more_s, shared_s=shared_s)
    here = epoch_s(100, cost, workers, demand)
    assert here <= epoch_s(100, slower, workers, demand)
    assert here >= epoch_s(100, cost, workers + 1, demand)
    assert here >= 100 * shared_s
    assert demand is None or here >= 100 / demand * 0.999


@settings(deadline=None)
@given(_PROFILES, _SITUATIONS, _SETTINGS)
def test_no_mode_at_any_number_of_workers_is_faster_than_the_choice_by_more_than_the_margin(
    profile: Profile, situation: Situation, settings: AutocacheSettings
) -> None:
    times = _times_of_all(profile, situation, settings)
    least = min(min(of_one) for of_one in times.values())
    decision = choose(profile, situation, settings=settings)
    _assume_all_may_be_written(decision)
    figures = _chosen_figures(decision)
    assert figures.batch_s <= least * (1 + settings.margin) * (1 + 1e-9)
    # And fewer workers would not have been enough.
    if figures.workers > 1:
        assert times[decision.point][figures.workers - 2] > least * (1 + settings.margin)


@settings(deadline=None)
@given(_PROFILES, _SITUATIONS, _SETTINGS, st.integers(-8, 8))
def test_a_machine_so_many_times_slower_in_everything_gets_the_same_choice(
    profile: Profile, situation: Situation, settings: AutocacheSettings, power: int
) -> None:
    # A power of two, so that no rounding decides.
    factor = 2.0**power
    demand = None if situation.demand is None else situation.demand / factor
    here = choose(profile, situation, settings=settings)
    there = choose(_slower(profile, factor), replace(situation, demand=demand), settings=settings)
    assert (here.mode, here.point, here.workers) == (there.mode, there.point, there.workers)


@settings(deadline=None)
@given(_PROFILES, _SITUATIONS, st.sampled_from(Objective), st.floats(1.0, 3.0))
def test_one_more_candidate_that_is_worse_than_the_choice_in_everything_changes_nothing(
    profile: Profile, situation: Situation, objective: Objective, factor: float
) -> None:
    settings = AutocacheSettings(objective=objective)
    before = choose(profile, situation, settings=settings)
    measured = {p.name: p.measured for p in profile.points}
    base = measured.get(before.point) or Measurement(
        per_batch=1, active_s=0, bytes_per_element=1, get_s=profile.compute_s, suffix_s=0
    )
    worse = replace(
        base,
        get_s=max(base.get_s, base.suffix_s / base.per_batch) * factor,
        suffix_s=base.suffix_s * factor,
        put_s=base.put_s * factor,
        bytes_per_element=base.bytes_per_element * factor + 1,
    )
    if before.point == END:
        worse = replace(worse, suffix_s=0.0, get_s=base.get_s * factor)
    extra = PointProfile(name="worse", measured=worse)
    after = choose(replace(profile, points=(extra, *profile.points)), situation, settings=settings)
    assert (after.mode, after.point, after.workers) == (before.mode, before.point, before.workers)


@settings(deadline=None)
@given(_MEASUREMENTS, _TIMES, st.floats(1.0, 4.0), st.sampled_from(CostModel))
def test_a_read_that_is_not_chosen_is_not_chosen_when_it_is_slower_still(
    measured: Measurement, compute_s: float, factor: float, model: CostModel
) -> None:
    settings = AutocacheSettings(cost_model=model)
    slower = replace(measured, get_s=measured.get_s * factor)
    first = choose(_profile(compute_s, [measured]), SITUATION, settings=settings)
    second = choose(_profile(compute_s, [slower]), SITUATION, settings=settings)
    assume(first.mode is Mode.COMPUTE)
    assert second.mode is Mode.COMPUTE


def test_the_fastest_is_written_and_then_read() -> None:
    written = choose(PROFILE, SITUATION)
    assert (written.mode, written.point) == (Mode.PUT, END)
    read = choose(PROFILE, replace(SITUATION, entries=frozenset({END}), current=END))
    assert (read.mode, read.point) == (Mode.GET, END)


def test_the_reason_and_the_candidates_hold_the_figures_of_all() -> None:
    decision = choose(PROFILE, SITUATION)
    assert [c.mode for c in decision.candidates] == [Mode.COMPUTE, Mode.PUT_SOURCE, Mode.PUT]
    for figure in ("60.0 ms", "20.0 ms", "10.0 ms", "PUT at the pipeline's end", "mark 'raw'"):
        assert figure in decision.reason


def test_a_refused_point_is_not_chosen_and_its_reason_is_in_the_decision_s() -> None:
    refused = PointProfile(name=END, refusal="map at train.py:12 draws random numbers")
    decision = choose(replace(PROFILE, points=(PROFILE.points[0], refused)), SITUATION)
    assert (decision.mode, decision.point) == (Mode.PUT_SOURCE, "raw")
    assert "not the pipeline's end: map at train.py:12 draws random numbers" in decision.reason


def test_a_refused_point_is_not_read_though_an_entry_of_it_is_there() -> None:
    refused = PointProfile(name=END, refusal="it is random", measured=WHOLE)
    decision = choose(
        replace(PROFILE, points=(refused,)), replace(SITUATION, entries=frozenset({END}))
    )
    assert decision.mode is Mode.COMPUTE


def test_a_point_that_does_not_fit_gives_way_to_one_that_does() -> None:
    decision = choose(PROFILE, replace(SITUATION, free_bytes=399_999_999))
    assert decision.point == "raw"
    assert "its 400.0 MB don't fit into the 400.0 MB" in decision.reason
    assert choose(PROFILE, replace(SITUATION, free_bytes=400_000_000)).point == END


def test_what_is_stored_already_needs_no_room() -> None:
    full = replace(SITUATION, free_bytes=0, entries=frozenset({END}))
    assert choose(PROFILE, full).mode is Mode.GET


def test_a_choice_taken_back_here_is_not_made_again_but_elsewhere_it_is() -> None:
    verdict = Verdict(point=END, environment=HERE, workers=1, reason="70 ms against 60 ms")
    here = choose(PROFILE, replace(SITUATION, verdicts=(verdict,)))
    assert here.point == "raw"
    assert "it was taken back before: 70 ms against 60 ms" in here.reason
    for other in (replace(HERE, device="/nvme"), replace(HERE, version="2")):
        there = replace(SITUATION, verdicts=(verdict,), environment=other)
        assert choose(PROFILE, there).point == END


def test_where_the_trainer_is_the_bottleneck_fewer_worker_seconds_decide() -> None:
    # 20 batches/s: computing needs 2 workers for it, reading one. Of the reads, the mark's stores
    # least.
    slow_trainer = Situation(workers=8, demand=20.0, environment=HERE)
    decision = choose(PROFILE, slow_trainer)
    assert (decision.mode, decision.point) == (Mode.PUT_SOURCE, "raw")
    assert _chosen_figures(decision).workers == 1
    assert decision.workers == 2
    # At 10 batches/s one worker does it in each mode, and nothing needs to be stored.
    assert choose(PROFILE, replace(slow_trainer, demand=10.0)).mode is Mode.COMPUTE


def test_a_read_that_workers_wait_for_in_turn_is_given_no_more_of_them_than_help() -> None:
    shared = replace(PROFILE, points=PROFILE.points[1:], cache_bandwidth=4e6 / 0.005)
    decision = choose(shared, Situation(workers=8, environment=HERE))
    # 5 ms of the shared path a batch, 10 ms of a worker; computing reaches 7.5 ms with all eight.
    assert (decision.point, _chosen_figures(decision).workers) == (END, 2)


def test_the_choice_stays_on_noise_for_twenty_epochs_and_goes_when_another_is_clearly_better() -> (
    None
):
    alike = replace(MARK, suffix_s=0.0, get_s=0.0595 / 32)
    noise = [0.97, 1.03, 0.99, 1.02, 0.98, 1.04, 0.96, 1.01, 1.0, 1.03] * 2
    current = ""
    for factor in noise:
        noisy = PointProfile(name="raw", measured=replace(alike, get_s=alike.get_s * factor))
        profile = replace(PROFILE, points=(noisy,))
        current = choose(profile, replace(SITUATION, current=current)).point
        assert current == ""
    better = PointProfile(name="raw", measured=replace(alike, get_s=alike.get_s * 0.8))
    decision = choose(replace(PROFILE, points=(better,)), replace(SITUATION, current=current))
    assert decision.point == "raw"


def test_without_anyone_to_read_it_nothing_is_written() -> None:
    last = replace(SITUATION, expected_reads=0.0, epochs_left=1)
    assert choose(PROFILE, last).mode is Mode.COMPUTE
    assert choose(PROFILE, replace(last, epochs_left=3)).mode is Mode.PUT
    assert choose(PROFILE, replace(last, entries=frozenset({END}))).mode is Mode.GET


@settings(deadline=None)
@given(st.floats(0.0, 0.99), _PROFILES)
def test_for_money_nothing_is_written_that_is_read_less_than_once(
    reads: float, profile: Profile
) -> None:
    decision = choose(profile, replace(SITUATION, expected_reads=reads), settings=COST)
    assert decision.mode is Mode.COMPUTE


def test_for_money_a_dear_store_and_a_slow_write_need_more_reads_to_pay() -> None:
    slow = replace(WHOLE, put_s=0.6)
    profile = replace(PROFILE, points=(PointProfile(name=END, measured=slow),))
    modes = [
        choose(profile, replace(SITUATION, expected_reads=reads), settings=COST).mode
        for reads in (2.0, 10.0, 30.0)
    ]
    assert modes == [Mode.COMPUTE, Mode.COMPUTE, Mode.PUT]
    there = replace(SITUATION, expected_reads=2.0, entries=frozenset({END}))
    assert choose(profile, there, settings=COST).mode is Mode.GET
    dear = Prices(gb_month=1000.0)
    assert choose(profile, replace(SITUATION, expected_reads=30.0), dear, COST).mode is Mode.COMPUTE


def test_for_money_dear_workers_are_fewer() -> None:
    situation = Situation(workers=8, demand=1000.0, environment=HERE)
    profile = replace(PROFILE, points=())
    cheap = choose(profile, situation, Prices(trainer_hour=10.0, worker_hour=0.1), COST)
    dear = choose(profile, situation, Prices(trainer_hour=0.1, worker_hour=10.0), COST)
    assert cheap.workers is not None
    assert dear.workers == 1
    assert cheap.workers > 4


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -0.001])
def test_a_measurement_that_makes_no_sense_is_named_and_left_out(bad: float) -> None:
    broken = PointProfile(name="raw", measured=replace(MARK, get_s=bad))
    decision = choose(replace(PROFILE, points=(broken, PROFILE.points[1])), SITUATION)
    assert decision.point == END
    assert f"get_s={bad}" in decision.reason
    whole = choose(replace(PROFILE, compute_s=bad), SITUATION)
    assert whole.mode is Mode.COMPUTE
    assert f"compute_s={bad}" in whole.reason


@settings(deadline=None)
@given(_PROFILES, _SITUATIONS, _SETTINGS, st.sampled_from(["", "a", "b", END]))
def test_what_is_done_already_stays_up_to_twice_the_margin_and_no_longer(
    profile: Profile, situation: Situation, settings: AutocacheSettings, current: str
) -> None:
    times = _times_of_all(profile, situation, settings)
    least = min(min(of_one) for of_one in times.values())
    decision = choose(profile, replace(situation, current=current), settings=settings)
    _assume_all_may_be_written(decision)
    wide = 2 if decision.point == current else 1
    bound = least * (1 + wide * settings.margin) * (1 + 1e-9)
    assert _chosen_figures(decision).batch_s <= bound
    again = choose(profile, replace(situation, current=decision.point), settings=settings)
    assert again.point == decision.point


def test_computing_is_no_faster_than_the_source_files_can_be_read() -> None:
    lake = replace(PROFILE, points=(), source_bytes_per_batch=2e6, source_bandwidth=2e6 / 0.03)
    decision = choose(lake, Situation(workers=8, environment=HERE))
    assert _chosen_figures(decision).batch_s == pytest.approx(0.03)
    assert decision.workers == 2


@pytest.mark.parametrize(
    ("model", "expected_s"), [(CostModel.OVERLAPPED, 0.06), (CostModel.PAPER, 0.1)]
)
def test_writing_overlaps_with_computing_but_for_the_paper_s_model(
    model: CostModel, expected_s: float
) -> None:
    point = PointProfile(name=END, measured=replace(WHOLE, put_s=0.04))
    settings = AutocacheSettings(cost_model=model)
    decision = choose(replace(PROFILE, points=(point,)), SITUATION, settings=settings)
    assert _chosen_figures(decision).put_batch_s == pytest.approx(expected_s)


def test_another_entry_is_not_written_for_a_gain_that_its_epoch_costs() -> None:
    points = (
        PointProfile(
            name="source",
            measured=Measurement(per_batch=1, active_s=0.02, bytes_per_element=1e3, get_s=0.0002),
        ),
        PointProfile(
            name=END,
            measured=Measurement(per_batch=1, active_s=0.02, bytes_per_element=1e3, get_s=0.0004),
        ),
    )
    profile = Profile(compute_s=0.02, points=points)
    reading = Situation(
        workers=1,
        environment=Environment(device="disk", version="1"),
        entries=frozenset({END}),
        current=END,
        expected_reads=3,
    )
    decision = choose(profile, reading)
    assert (decision.mode, decision.point) == (Mode.GET, END)
    assert "takes 19.6 ms a batch more than reading 'end'" in str(decision.candidates)
    assert choose(profile, replace(reading, expected_reads=1000)).point == "source"


def test_a_new_run_reads_what_is_stored_rather_than_write_what_is_hardly_better() -> None:
    points = tuple(
        PointProfile(
            name=name,
            measured=Measurement(per_batch=1, active_s=0.02, bytes_per_element=1e3, get_s=get_s),
        )
        for name, get_s in (("source", 0.0002), (END, 0.0004))
    )
    new = replace(SITUATION, entries=frozenset({END}), current=None)
    assert choose(Profile(compute_s=0.02, points=points), new).mode is Mode.GET
