"""Which batches make a report."""

import pytest

from cachew_core.policy.batch_reports import Gathering, ReportSettings, gather
from cachew_core.policy.progress import Progress, Stretch

SETTINGS = ReportSettings(batches=10, pause_batches=15, skip_batches=20)


def _progress(batches: int, *, epoch: int = 1, workers: int = 1) -> Progress:
    return Progress(
        epoch=epoch,
        workers=workers,
        batches=batches,
        seconds=batches * 0.5,
        wait_s=batches * 0.25,
    )


def _reports(*rows: Progress) -> list[Stretch | None]:
    gathering, reports = Gathering(), []
    for row in rows:
        gathering, report = gather(gathering, row, SETTINGS)
        reports.append(report)
    return reports


def test_an_epochs_first_batches_are_passed_over() -> None:
    *early, report = _reports(*(_progress(n) for n in (5, 15, 25, 30, 35)))
    assert early == [None] * 4
    assert report == Stretch(workers=1, batches=10, seconds=5.0, wait_s=2.5)
    assert report.batch_s == 0.5


def test_reports_follow_each_other_without_a_gap() -> None:
    reports = _reports(*(_progress(n) for n in (20, 30, 45, 50, 55)))
    assert [r and r.batches for r in reports] == [None, 10, 15, None, 10]


def test_after_a_change_of_workers_batches_are_passed_over_and_no_report_mixes_both() -> None:
    rows = [_progress(n) for n in (20, 25)] + [_progress(n, workers=2) for n in (28, 42, 44, 54)]
    *early, report = _reports(*rows)
    assert early == [None] * 5
    assert report is not None
    assert (report.workers, report.batches) == (2, 10)


def test_a_pause_does_not_shorten_an_epochs_start() -> None:
    rows = [_progress(1), *(_progress(n, workers=2) for n in (2, 18, 21, 31))]
    assert [r and r.batches for r in _reports(*rows)] == [None] * 4 + [10]


def test_a_new_epoch_begins_anew() -> None:
    rows = [_progress(n) for n in (20, 29)] + [_progress(n, epoch=2) for n in (12, 22, 32)]
    assert [r and r.batches for r in _reports(*rows)] == [None] * 4 + [10]


@pytest.mark.parametrize("worse", [{"batches": 24}, {"seconds": 1.0}, {"wait_s": 0.0}])
def test_counts_that_go_back_are_passed_over(worse: dict[str, float]) -> None:
    fields = {"epoch": 1, "workers": 1, "batches": 26, "seconds": 13.0, "wait_s": 6.5} | worse
    nonsense = Progress(**fields)  # type: ignore[arg-type]
    rows = [_progress(20), _progress(25), nonsense, _progress(30)]
    assert [r and r.batches for r in _reports(*rows)] == [None, None, None, 10]
