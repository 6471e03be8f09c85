"""`make demo`: the training pipeline on this machine, its progress, and a table of its epochs.

The pipeline runs in a process of its own, in its own session: kfp's and TensorFlow's output goes
to a log file, and Ctrl-C reaches only this process, which then ends the pipeline and the service
in order, whatever step they were in.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated
from uuid import uuid4

import typer
from rich import box
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

from cachew_components import stop_signals
from cachew_core.cluster import down, status
from cachew_core.errors import CachewError
from cachew_core.service_record import service_folder
from cachew_pipelines.training_report import LOCAL_REPORTS, TrainingReport

BATCH_SIZE = 32
LOOK_INTERVAL_S = 0.3
"""How often the progress is looked at."""
STOP_DEADLINE_S = 20.0
"""How long the pipeline may take to end in order: its service takes up to 10 s."""
IDLE_TIMEOUT_S = 300.0
"""Should this process be killed outright, the service ends itself after so long without a
client."""
FAILED_LINES = 15
"""How much of the log is shown when a step failed."""
EXIT_INTERRUPTED = 130
"""What shells give a command that Ctrl-C ended."""

TRAINING = "train-classifier"
STEPS = {
    "make-photograph-records": "Cut photographs into records",
    "cachew-service": "Start the service",
    TRAINING: "Train through it",
    "cachew-teardown": "Take the service down",
}
"""The pipeline's steps by kfp's name, in the order in which they run."""

COLUMNS = (
    "epoch",
    "mode",
    "elements",
    "seconds",
    "batch time",
    "wait share",
    "workers",
    "accuracy",
)

# What kfp logs about steps; were it to change, the bars would fill only at the end.
_STARTED = re.compile(r"Executing task '([\w-]+)'")
_SUCCEEDED = re.compile(r"Task '([\w-]+)' finished with status SUCCESS")
_FAILED = re.compile(r"^.*Task '[\w-]+' finished with status FAILURE.*$", re.MULTILINE)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What one demo does, and where."""

    service_name: str
    workers: int
    epochs: int
    crops: int
    files: int
    folder: Path
    """Gone at the end."""
    log: Path

    @property
    def outputs(self) -> Path:
        """What the pipeline's steps write."""
        return self.folder / "outputs"

    @property
    def batches_in_all(self) -> int:
        """Elements of all epochs together."""
        return self.epochs * math.ceil(self.crops / BATCH_SIZE)

    @property
    def command(self) -> list[str]:
        """What runs the pipeline."""
        options = {
            "service-name": self.service_name,
            "workers": self.workers,
            "epochs": self.epochs,
            "batch-size": BATCH_SIZE,
            "crops": self.crops,
            "files": self.files,
            "idle-timeout-s": IDLE_TIMEOUT_S,
        }
        module = "cachew_pipelines.training_pipeline"
        flags = [f"--{name}={value}" for name, value in options.items()]
        return [sys.executable, "-m", module, "run", *flags, str(self.outputs)]


class StepFailedError(Exception):
    """The pipeline ended with an error."""


def run_pipeline(plan: Plan, console: Console) -> TrainingReport:
    """Runs the pipeline with its progress on the console. No process is left, however it ends.

    Raises:
        StepFailedError: a step failed, or wrote no report.
    """
    process = _start(plan)
    try:
        _watch(process, plan, console)
    except (KeyboardInterrupt, SystemExit):
        console.print("[yellow]Interrupted: ending the pipeline and its service.")
        raise
    finally:
        with stop_signals.deferred():
            _end_session(process)
            down(plan.service_name)
    reports = list(plan.outputs.glob(LOCAL_REPORTS))
    if process.returncode != 0 or not reports:
        raise StepFailedError(f"the pipeline ended with exit code {process.returncode}")
    return TrainingReport.model_validate_json(reports[0].read_text())


def _start(plan: Plan) -> subprocess.Popen[bytes]:
    # kfp's steps leave temporary folders; here they go away with the rest.
    scratch = plan.folder / "tmp"
    scratch.mkdir()
    variables = {"TMPDIR": str(scratch), "PYTHONUNBUFFERED": "1", "TF_CPP_MIN_LOG_LEVEL": "2"}
    plan.log.parent.mkdir(parents=True, exist_ok=True)
    with plan.log.open("w") as log:
        return subprocess.Popen(
            plan.command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **variables},
            start_new_session=True,
        )


def _end_session(process: subprocess.Popen[bytes]) -> None:
    """Ends the pipeline's process with its steps: in order, and after a deadline by force."""
    if process.poll() is None:
        _signal_session(process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_DEADLINE_S)
    _signal_session(process.pid, signal.SIGKILL)
    process.wait()


def _signal_session(leader: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(leader, number)


def _watch(process: subprocess.Popen[bytes], plan: Plan, console: Console) -> None:
    """Shows what the pipeline does until it ends."""
    columns = (
        SpinnerColumn(finished_text="[green]✓"),
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        bars = {
            step: progress.add_task(
                title, start=False, total=plan.batches_in_all if step == TRAINING else 1
            )
            for step, title in STEPS.items()
        }
        while True:
            ended = process.poll() is not None
            _show_steps(progress, bars, plan.log.read_text(errors="replace"))
            if ended:
                return
            _show_batches(progress, bars[TRAINING], plan.service_name)
            with suppress(subprocess.TimeoutExpired):
                process.wait(LOOK_INTERVAL_S)


def _show_steps(progress: Progress, bars: Mapping[str, TaskID], log: str) -> None:
    text = _COLOUR.sub("", log)
    for step in _STARTED.findall(text):
        if step in bars and not progress.tasks[bars[step]].started:
            progress.start_task(bars[step])
    for step in _SUCCEEDED.findall(text):
        if step in bars:
            progress.update(bars[step], completed=progress.tasks[bars[step]].total)


def _show_batches(progress: Progress, bar: TaskID, service: str) -> None:
    # Before the service stands and after its end there is nothing to ask.
    with suppress(CachewError):
        epochs = [epoch for job in status(service, timeout_s=1.0).jobs for epoch in job.epochs]
        progress.update(bar, completed=sum(epoch.elements for epoch in epochs))


def table_of(report: TrainingReport) -> Table:
    """The report's epochs, a row each."""
    table = Table(
        title=f"Trained on {', '.join(report.labels)} through Cachew", box=box.SIMPLE_HEAD
    )
    for heading in COLUMNS:
        table.add_column(heading, justify="left" if heading == "mode" else "right", no_wrap=True)
    for epoch in report.epochs:
        table.add_row(
            str(epoch.epoch),
            epoch.mode,
            str(epoch.elements),
            f"{epoch.seconds:.2f}",
            f"{epoch.batch_time_ms:.1f} ms",
            f"{epoch.wait_share:.0%}",
            str(epoch.workers),
            f"{epoch.accuracy:.0%}",
        )
    return table


def demo(
    workers: Annotated[int, typer.Option(min=1, help="Workers of the service.")] = 2,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the photographs.")] = 3,
    crops: Annotated[int, typer.Option(min=1, help="Pictures in the data set.")] = 1600,
    files: Annotated[int, typer.Option(min=1, help="TFRecord files that hold them.")] = 16,
    report: Annotated[
        Path, typer.Option(help="The JSON file to write; the log goes beside it.")
    ] = Path("reports/demo.json"),
) -> None:
    """Train on photographs through Cachew, in a Kubeflow pipeline on this machine."""
    console = Console()
    log = report.with_suffix(".log")
    report.unlink(missing_ok=True)
    with stop_signals.as_exception(), tempfile.TemporaryDirectory(prefix="cachew-demo-") as folder:
        plan = Plan(
            service_name=f"demo-{uuid4().hex[:8]}",
            workers=workers,
            epochs=epochs,
            crops=crops,
            files=files,
            folder=Path(folder),
            log=log,
        )
        try:
            trained = run_pipeline(plan, console)
        except (KeyboardInterrupt, SystemExit) as stop:
            console.print("The service is down.")
            _forget(plan)
            raise typer.Exit(_exit_code(stop)) from None
        except (StepFailedError, CachewError) as error:
            _explain(error, log, console)
            raise typer.Exit(1) from None
    _forget(plan)
    report.write_text(trained.model_dump_json(indent=2) + "\n")
    console.print(table_of(trained))
    console.print(f"The same is in {report}, the steps' output in {log}.")


def _forget(plan: Plan) -> None:
    """Takes the service's logs away, which only a failure needs: every demo's has another name."""
    shutil.rmtree(service_folder(plan.service_name), ignore_errors=True)


def _exit_code(stop: BaseException) -> int:
    code = getattr(stop, "code", None)
    return code if isinstance(code, int) else EXIT_INTERRUPTED


def _explain(error: Exception, log: Path, console: Console) -> None:
    console.print(_last_words(log.read_text(errors="replace")), markup=False, highlight=False)
    console.print(f"[red]The demo failed:[/] {error}. All of the steps' output is in {log}.")


def _last_words(log: str) -> str:
    """The end of what the failed step wrote; of everything, where none is known to have failed."""
    before_failure = _FAILED.split(_COLOUR.sub("", log), maxsplit=1)[0]
    lines = [line for line in before_failure.splitlines() if line.strip()]
    return "\n".join(lines[-FAILED_LINES:])


def main() -> None:
    """Runs the demo's command line."""
    typer.run(demo)


if __name__ == "__main__":
    main()
