"""The original's rule, in virtual time."""

import pytest
from virtual_trainer import VirtualTrainer

from cachew_core.policy.batch_reports import Gathering, ReportSettings, gather
from cachew_core.policy.hill_climb import HillClimb, HillClimbSettings, climb
from cachew_core.policy.progress import Stretch

SMALL = ReportSettings(batches=10, pause_batches=15, skip_batches=20)
"""A tenth of the paper's, as the original's own small experiments have it."""


class Run:
    """A job whose workers are always as many as are wanted and there are."""

    def __init__(self, trainer: VirtualTrainer, *, most: int = 100, start: int = 1) -> None:
        self.trainer = trainer
        self.most = most
        self.state = HillClimb(target=start)
        self.counts = [start]
        self._gathering = Gathering()
        self._epoch = 0

    def epoch(self, batches: int) -> "Run":
        self._epoch += 1
        for progress in self.trainer.epoch(self._epoch, batches):
            self._gathering, report = gather(self._gathering, progress, SMALL)
            if report is not None:
                self.state = climb(self.state, report, most=self.most)
                self.trainer.workers = min(self.state.target, self.most)
                if self.counts[-1] != self.trainer.workers:
                    self.counts.append(self.trainer.workers)
        return self


@pytest.mark.parametrize(
    ("work_ms", "step_ms", "best"),
    [(360, 200, 2), (540, 200, 3), (100, 200, 1), (36, 10, 4), (40, 10, 4), (80, 10, 8)],
)
@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_it_comes_to_the_fewest_workers_that_are_as_fast_as_any(
    work_ms: float, step_ms: float, best: int, noise: float
) -> None:
    trainer = VirtualTrainer(work_s=work_ms / 1e3, step_s=step_ms / 1e3, noise=noise)
    run = Run(trainer).epoch(600)
    assert run.state.settled is not None
    assert run.state.target == best
    # It goes one too far to see that it does not pay, and comes back.
    assert run.counts == [*range(1, best + 2), best]


def test_a_limit_that_all_workers_share_ends_it() -> None:
    run = Run(VirtualTrainer(work_s=0.08, step_s=0.001, shared_s=0.02)).epoch(600)
    assert run.state.target == 4


def test_it_can_not_pass_about_one_over_its_threshold() -> None:
    run = Run(VirtualTrainer(work_s=1.0, step_s=0.01)).epoch(3000)
    assert run.state.settled is not None
    assert 30 <= run.state.target <= 35


def test_a_step_that_gets_slower_in_mid_epoch_frees_workers_after_a_while() -> None:
    run = Run(VirtualTrainer(work_s=0.036, step_s=0.010, noise=0.02)).epoch(600)
    assert run.state.target == 4
    run.trainer.step_s = 0.020
    run.epoch(1200)
    assert run.state.settled is not None
    assert run.state.target == 2


def test_work_that_gets_slower_adds_workers_after_a_while() -> None:
    run = Run(VirtualTrainer(work_s=0.036, step_s=0.010)).epoch(600)
    run.trainer.work_s = 0.072
    run.epoch(1200)
    assert run.state.settled is not None
    # The eighth would bring 2.8 %.
    assert run.state.target == 7


def test_a_start_that_is_too_high_stays_too_high() -> None:
    """The rule has no step down from there; a warm start needs another one."""
    run = Run(VirtualTrainer(work_s=0.036, step_s=0.010, workers=8), start=8).epoch(2000)
    assert run.state.target == 8


def test_it_settles_at_what_the_pool_has_and_climbs_on_when_that_is_more() -> None:
    run = Run(VirtualTrainer(work_s=0.08, step_s=0.010), most=3).epoch(400)
    assert (run.state.target, run.state.capped) == (3, True)
    assert "the pool has no more" in run.state.reason
    run.most = 20
    run.epoch(600)
    assert run.state.target == 8


def test_a_pool_that_shrinks_takes_the_target_along() -> None:
    run = Run(VirtualTrainer(work_s=0.08, step_s=0.010)).epoch(600)
    run.most = 2
    run.epoch(400)
    assert run.state.target == 2


def _report(workers: int, batch_s: float) -> Stretch:
    return Stretch(workers=workers, batches=10, seconds=10 * batch_s, wait_s=5 * batch_s)


def test_reports_of_another_number_of_workers_are_no_evidence() -> None:
    state = climb(HillClimb(target=3), _report(2, 1.0), most=9)
    assert state == HillClimb(target=3)


def test_an_outlier_is_passed_over() -> None:
    state = climb(HillClimb(), _report(1, 1.0), most=9)
    assert state.target == 2
    state = climb(state, _report(2, 5.0), most=9)
    assert (state.target, state.settled) == (2, None)
    assert climb(state, _report(2, 0.5), most=9).target == 3


def test_a_settled_job_is_looked_at_only_after_so_many_reports() -> None:
    state = climb(climb(HillClimb(), _report(1, 1.0), most=9), _report(2, 1.0), most=9)
    assert state.settled == _report(1, 1.0)
    settings = HillClimbSettings(recheck_reports=3)
    for _ in range(2):
        state = climb(state, _report(1, 4.0), most=9, settings=settings)
        assert state.target == 1
    state = climb(state, _report(1, 4.0), most=9, settings=settings)
    assert state.target == 2
