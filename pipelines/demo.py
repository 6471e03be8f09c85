"""`make demo`: the training pipeline twice on this machine, its progress, and a table of epochs.

Each run has a service of its own. The first one stores decoded pictures, and the second one starts
with them.

A pipeline runs in a process of its own, in its own session: kfp's and TensorFlow's output goes
to a log file, and Ctrl-C reaches only this process, which then ends the pipeline and the service
in order, whatever step they were in.
"""

from __future__ import annotations

import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated
from uuid import uuid4

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from cachew_components import stop_signals
from cachew_core.cluster import down
from cachew_core.errors import CachewError
from cachew_core.service_record import service_folder, store_folder
from cachew_pipelines.step_progress import failure_in, watch
from cachew_pipelines.training_report import LOCAL_REPORTS, DemoReport, TrainingReport

BATCH_SIZE = 32
CACHE_POLICY = "source"
TITLES = (
    "First run: a service that has nothing stored yet",
    "Second run: another service on the same store",
)
STOP_DEADLINE_S = 20.0
"""How long the pipeline may take to end in order: its service takes up to 10 s."""
IDLE_TIMEOUT_S = 300.0
"""Should this process be killed outright, the service ends itself after so long without a
client."""
EXIT_INTERRUPTED = 130
"""What shells give a command that Ctrl-C ended."""

COLUMNS = (
    "run",
    "epoch",
    "mode",
    "elements",
    "seconds",
    "batch",
    "wait",
    "workers",
    "accuracy",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What one run of the pipeline does, and where."""

    name: str
    """Of the store, and the beginning of the service's name."""
    workers: int
    epochs: int
    crops: int
    files: int
    folder: Path
    """Of all runs together; gone at the end."""
    number: int
    """Of this run, from 1."""
    log: Path

    @property
    def service_name(self) -> str:
        """The name of this run's service."""
        return f"{self.name}-{self.number}"

    @property
    def outputs(self) -> Path:
        """What the pipeline's steps write."""
        return self.folder / f"outputs-{self.number}"

    @property
    def cache(self) -> Path:
        """What services store; the same for all runs."""
        return self.folder / "cache"

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
            "data-dir": self.folder / "data",
            "cache-policy": CACHE_POLICY,
            "store": self.name,
            "cache-dir": self.cache,
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
        watch(
            process,
            log=plan.log,
            service_name=plan.service_name,
            batches=plan.batches_in_all,
            console=console,
        )
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
    scratch.mkdir(exist_ok=True)
    plan.cache.mkdir(exist_ok=True)
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


def table_of(report: DemoReport) -> Table:
    """The epochs of all runs, a row each."""
    labels = ", ".join(report.runs[0].labels)
    table = Table(
        title=f"Trained on {labels} through Cachew", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0)
    )
    for heading in COLUMNS:
        table.add_column(heading, justify="left" if heading == "mode" else "right", no_wrap=True)
    for number, run in enumerate(report.runs, start=1):
        _add_rows(table, number, run)
    return table


def _add_rows(table: Table, number: int, run: TrainingReport) -> None:
    table.add_section()
    for epoch in run.epochs:
        table.add_row(
            str(number),
            str(epoch.epoch),
            epoch.mode,
            str(epoch.elements),
            f"{epoch.seconds:.2f}",
            f"{epoch.batch_time_ms:.1f} ms",
            f"{epoch.wait_share:.0%}",
            str(epoch.workers),
            f"{epoch.accuracy:.0%}",
        )


def demo(
    workers: Annotated[int, typer.Option(min=1, help="Workers of the service.")] = 2,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the photographs.")] = 3,
    crops: Annotated[int, typer.Option(min=1, help="Pictures in the data set.")] = 1600,
    files: Annotated[int, typer.Option(min=1, help="TFRecord files that hold them.")] = 16,
    report: Annotated[
        Path, typer.Option(help="The JSON file to write; the log goes beside it.")
    ] = Path("reports/demo.json"),
) -> None:
    """Train on photographs through Cachew, twice, in a Kubeflow pipeline on this machine."""
    console = Console()
    report.unlink(missing_ok=True)
    name = f"demo-{uuid4().hex[:8]}"
    with stop_signals.as_exception(), tempfile.TemporaryDirectory(prefix="cachew-demo-") as folder:
        plans = [
            Plan(
                name=name,
                workers=workers,
                epochs=epochs,
                crops=crops,
                files=files,
                folder=Path(folder),
                number=number,
                log=report.with_name(f"{report.stem}-{number}.log"),
            )
            for number in range(1, 1 + len(TITLES))
        ]
        try:
            trained = DemoReport(runs=[_one_run(plan, console) for plan in plans])
        finally:
            shutil.rmtree(store_folder(name), ignore_errors=True)
    report.write_text(trained.model_dump_json(indent=2) + "\n")
    console.print(table_of(trained))
    logs = " and ".join(str(plan.log) for plan in plans)
    console.print(f"The same is in {report}, the steps' output in {logs}.")


def _one_run(plan: Plan, console: Console) -> TrainingReport:
    console.print(TITLES[plan.number - 1])
    try:
        trained = run_pipeline(plan, console)
    except (KeyboardInterrupt, SystemExit) as stop:
        console.print("The service is down.")
        _forget(plan)
        raise typer.Exit(_exit_code(stop)) from None
    except (StepFailedError, CachewError) as error:
        _explain(error, plan.log, console)
        raise typer.Exit(1) from None
    _forget(plan)
    return trained


def _forget(plan: Plan) -> None:
    """Takes the service's logs away, which only a failure needs: every demo's has another name."""
    shutil.rmtree(service_folder(plan.service_name), ignore_errors=True)


def _exit_code(stop: BaseException) -> int:
    code = getattr(stop, "code", None)
    return code if isinstance(code, int) else EXIT_INTERRUPTED


def _explain(error: Exception, log: Path, console: Console) -> None:
    step, last_lines = failure_in(log.read_text(errors="replace"))
    console.print(last_lines, markup=False, highlight=False)
    console.print(f"[red]The demo failed[/] in {step}: {error}. All output is in {log}.")


def main() -> None:
    """Runs the demo's command line."""
    typer.run(demo)


if __name__ == "__main__":
    main()
