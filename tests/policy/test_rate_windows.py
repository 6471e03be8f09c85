"""What is read off a trainer's batches."""

import pytest
from virtual_trainer import VirtualTrainer

from cachew_core.policy.progress import Progress
from cachew_core.policy.rate_windows import RateGathering, RateSettings, RateWindow, gather_rates

SETTINGS = RateSettings()


def _windows(rows: list[Progress]) -> list[RateWindow]:
    gathering, windows = RateGathering(), []
    for row in rows:
        gathering, window = gather_rates(gathering, row, SETTINGS)
        if window is not None:
            windows.append(window)
    return windows


def _epoch(trainer: VirtualTrainer, batches: int = 60, number: int = 1) -> list[Progress]:
    return list(trainer.epoch(number, batches))


def test_a_trainer_that_waits_shows_its_workers_rate_and_its_own_demand() -> None:
    windows = _windows(_epoch(VirtualTrainer(work_s=0.08, step_s=0.01, workers=2)))
    assert windows
    for window in windows:
        assert window.waited
        assert window.rate == pytest.approx(25)
        assert window.demand == pytest.approx(100)


def test_a_trainer_that_does_not_wait_shows_its_demand_only() -> None:
    first, *later = _windows(_epoch(VirtualTrainer(work_s=0.08, step_s=0.05, workers=2)))
    assert later
    assert not any(window.waited for window in later)
    assert later[-1].rate == pytest.approx(20)
    assert later[-1].demand == pytest.approx(20)
    assert first.workers == 2


def test_a_trainer_that_takes_all_it_gets_has_a_hidden_demand() -> None:
    windows = _windows(_epoch(VirtualTrainer(work_s=0.08, step_s=0.001)))
    assert windows
    assert {window.demand for window in windows} == {None}


def test_batches_after_a_change_of_workers_are_in_no_window() -> None:
    trainer = VirtualTrainer(work_s=0.08, step_s=0.01)
    rows = []
    for row in trainer.epoch(1, 200):
        rows.append(row)
        trainer.workers = 1 if row.batches < 52 else 4
    windows = _windows(rows)
    assert {window.workers for window in windows} == {1, 4}
    assert all(w.rate == pytest.approx(12.5 * w.workers, rel=0.02) for w in windows)


def test_pauses_are_left_out_once_it_is_known_what_is_usual() -> None:
    trainer = VirtualTrainer(work_s=0.08, step_s=0.01, pauses={100: 60.0, 170: 60.0})
    for window in _windows(_epoch(trainer, 300)):
        assert window.rate == pytest.approx(12.5, rel=0.02)


def test_the_end_of_the_input_is_left_out() -> None:
    rows = _epoch(VirtualTrainer(work_s=0.08, step_s=0.01), 30)
    ending = [
        Progress(
            epoch=1,
            workers=1,
            batches=30 + n,
            seconds=rows[-1].seconds + 5.0 * n,
            wait_s=rows[-1].wait_s + 5.0 * n,
            ending=True,
        )
        for n in range(1, 40)
    ]
    assert _windows(rows + ending) == _windows(rows)


def test_windows_run_on_from_one_epoch_to_the_next() -> None:
    trainer = VirtualTrainer(work_s=0.08, step_s=0.01, every=2)
    assert _windows(_epoch(trainer, 8)) == []
    rows = [row for number in range(1, 8) for row in _epoch(trainer, 8, number)]
    windows = _windows(rows)
    assert windows
    assert all(w.rate == pytest.approx(12.5, rel=0.02) for w in windows)


def test_a_window_takes_its_time_where_batches_differ() -> None:
    steady = _windows(_epoch(VirtualTrainer(work_s=0.08, step_s=0.01), 600))
    uneven = _windows(_epoch(VirtualTrainer(work_s=0.08, step_s=0.01, noise=0.3), 600))
    assert 1 <= len(uneven) < len(steady)
    assert all(window.rate == pytest.approx(12.5, rel=0.1) for window in uneven)


@pytest.mark.parametrize("worse", [{"batches": 1}, {"seconds": 0.0}, {"wait_s": 0.0}])
def test_counts_that_go_back_are_passed_over(worse: dict[str, float]) -> None:
    rows = _epoch(VirtualTrainer(work_s=0.08, step_s=0.01))
    last = rows[5]
    fields = {
        "epoch": 1,
        "workers": 1,
        "batches": last.batches,
        "seconds": last.seconds,
        "wait_s": last.wait_s,
    }
    nonsense = Progress(**(fields | worse))  # type: ignore[arg-type]
    assert _windows([*rows[:6], nonsense, *rows[6:]]) == _windows(rows)


def test_a_trainer_that_stays_slow_is_no_pause() -> None:
    trainer = VirtualTrainer(work_s=0.08, step_s=0.01)
    rows = _epoch(trainer, 100)
    trainer.step_s = 1.0
    rows += _epoch(trainer, 100, number=2)
    windows = _windows(rows)
    assert windows[0].rate == pytest.approx(12.5, rel=0.02)
    assert windows[-1].rate == pytest.approx(1, rel=0.02)
