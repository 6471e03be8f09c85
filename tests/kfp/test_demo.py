"""`python -m cachew_pipelines.demo` ends with a table, or with an error, and always with nothing
left."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rich.console import Console

from cachew_core import __version__
from cachew_core.cluster import list_services
from cachew_pipelines.demo import table_of
from cachew_pipelines.step_progress import failure_in
from cachew_pipelines.training_report import DemoReport, EpochReport, TrainingReport

# A service and each step import TensorFlow: seconds on a free machine, minutes on a busy one.
pytestmark = pytest.mark.timeout(600)

TINY = ["--epochs=2", "--workers=2", "--crops=70", "--files=4"]
START_DEADLINE_S = 200.0
END_DEADLINE_S = 60.0
RUN_DEADLINE_S = 500.0


@contextmanager
def demo(folder: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """The demo with a tiny data set, its temporary files under the folder. Ended at the latest
    here."""
    scratch = folder / "tmp"
    scratch.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "cachew_pipelines.demo", *TINY, *options],
        cwd=folder,
        env={**os.environ, "TMPDIR": str(scratch), "COLUMNS": "120"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=END_DEADLINE_S)


def nothing_in(folder: Path) -> bool:
    """Whether the demo took all of its temporary files away."""
    return list((folder / "tmp").iterdir()) == []


def wait_for(condition: Callable[[], bool], what: str) -> None:
    """Polls until the condition holds."""
    deadline = time.monotonic() + START_DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"waited {START_DEADLINE_S:g} s for {what}"
        time.sleep(0.05)


def test_the_demo_ends_with_a_table_and_the_same_as_json(
    tmp_path: Path, home: Path, leftovers: Callable[[], list[str]]
) -> None:
    with demo(tmp_path) as process:
        output, _ = process.communicate(timeout=RUN_DEADLINE_S)
    assert process.returncode == 0, output
    report = DemoReport.model_validate_json((tmp_path / "reports" / "demo.json").read_text())
    for run in report.runs:
        check_run(run)
    first, second = report.runs
    assert first.service != second.service
    assert first.fingerprint == second.fingerprint
    assert [epoch.mode for epoch in first.epochs] == ["PUT_SOURCE", "GET_SOURCE"]
    # The other service reads what the first one stored, from its first epoch.
    assert [epoch.mode for epoch in second.epochs] == ["GET_SOURCE", "GET_SOURCE"]
    rows = [line.split() for line in output.splitlines() if "SOURCE" in line]
    assert rows[0][:4] == ["1", "1", "PUT_SOURCE", "3"]
    assert [row[:4] for row in rows[-2:]] == [["2", str(n), "GET_SOURCE", "3"] for n in (1, 2)]
    # kfp's and TensorFlow's own output is in the logs, not on the screen.
    assert "KFP Executor" not in output
    for number in (1, 2):
        assert "KFP Executor" in (tmp_path / "reports" / f"demo-{number}.log").read_text()
    assert leftovers() == []
    assert list(home.glob("services/*")) == []
    assert list(home.glob("stores/*")) == []
    assert nothing_in(tmp_path)


def check_run(run: TrainingReport) -> None:
    """Two epochs, each with all of the 70 pictures."""
    # In batches of 32: the last one is short, as it would be without a service.
    assert [epoch.elements for epoch in run.epochs] == [3, 3]
    for epoch in run.epochs:
        assert 1 <= epoch.workers <= 2
        assert epoch.seconds > 0
        assert 0 <= epoch.wait_share <= 1
    assert run.labels[0] == "astronaut"
    assert len(run.fingerprint) == 64
    assert run.versions["cachew"] == __version__
    assert {"python", "keras", "kfp"} <= run.versions.keys()


def test_a_failing_step_shows_its_error_and_the_demo_exits_non_zero(
    tmp_path: Path, home: Path, leftovers: Callable[[], list[str]]
) -> None:
    with demo(tmp_path, "--crops=1") as process:
        output, _ = process.communicate(timeout=RUN_DEADLINE_S)
    assert process.returncode == 1
    assert "The demo failed in make-photograph-records" in output
    assert "crops=1 can't be spread over files=4" in output
    assert not (tmp_path / "reports" / "demo.json").exists()
    assert leftovers() == []
    assert nothing_in(tmp_path)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_takes_its_service_down(
    tmp_path: Path, home: Path, leftovers: Callable[[], list[str]], number: signal.Signals
) -> None:
    # SIGINT comes while the service starts, SIGTERM when it is there.
    wanted = {"starting", "running"} if number == signal.SIGINT else {"running"}
    with demo(tmp_path) as process:
        wait_for(
            lambda: bool(wanted & {service.state for service in list_services()}),
            "the demo's service",
        )
        process.send_signal(number)
        output, _ = process.communicate(timeout=END_DEADLINE_S)
    assert process.returncode == 128 + number
    assert "The service is down." in output
    assert leftovers() == []
    assert nothing_in(tmp_path)


def test_the_words_of_a_failed_step_are_found_before_those_of_the_teardown() -> None:
    log = """
Executing task \x1b[96m'train-classifier'\x1b[0m
    ValueError: the picture is upside down

Task \x1b[96m'train-classifier'\x1b[0m finished with status \x1b[91mFAILURE\x1b[0m
Executing task \x1b[96m'cachew-teardown'\x1b[0m
Task \x1b[96m'cachew-teardown'\x1b[0m finished with status \x1b[92mSUCCESS\x1b[0m
"""
    step, words = failure_in(log)
    assert step == "train-classifier"
    assert words.splitlines()[-1].strip() == "ValueError: the picture is upside down"


def test_where_no_step_failed_the_end_of_the_log_is_shown() -> None:
    assert failure_in("kfp is broken\n\n") == ("pipeline", "kfp is broken")


def test_the_table_has_a_row_an_epoch_with_what_was_measured() -> None:
    computed = EpochReport(
        epoch=1,
        mode="COMPUTE",
        elements=50,
        seconds=1.256,
        batch_time_ms=12.34,
        wait_share=0.256,
        workers=2,
        loss=0.5,
        accuracy=0.875,
    )
    read = computed.model_copy(update={"mode": "GET_SOURCE", "seconds": 0.5})
    first, second = (
        TrainingReport(
            service=f"demo-{number}",
            job_name="photographs",
            fingerprint="0" * 64,
            labels=["cat"],
            epochs=[epoch],
        )
        for number, epoch in enumerate((computed, read), start=1)
    )
    report = DemoReport(runs=[first, second])
    table = table_of(report)
    assert [
        list(cells) for cells in zip(*(column.cells for column in table.columns), strict=True)
    ] == [
        ["1", "1", "COMPUTE", "50", "1.26", "12.3 ms", "26%", "2", "88%"],
        ["2", "1", "GET_SOURCE", "50", "0.50", "12.3 ms", "26%", "2", "88%"],
    ]
    assert json.loads(report.model_dump_json())["runs"][0]["epochs"][0]["wait_share"] == 0.256


def test_the_table_fits_into_a_terminal_of_80_columns() -> None:
    epoch = EpochReport(
        epoch=1,
        mode="PUT_SOURCE",
        elements=1000,
        seconds=123.456,
        batch_time_ms=123.45,
        wait_share=1.0,
        workers=16,
        loss=0.5,
        accuracy=1.0,
    )
    run = TrainingReport(
        service="demo", job_name="photographs", fingerprint="0" * 64, labels=["cat"], epochs=[epoch]
    )
    console = Console(width=80)
    with console.capture() as captured:
        console.print(table_of(DemoReport(runs=[run])))
    assert "…" not in captured.get()
