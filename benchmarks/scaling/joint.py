"""`python -m benchmarks joint`: caching and scaling together, for a trainer whose speed changes."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.table import Table

from benchmarks.console import new_console
from benchmarks.record import RunReport
from benchmarks.scaling.autoscaling import HILL_CLIMB, MOST_WORKERS
from benchmarks.scaling.training_records import TrainingRecord

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STEPS_MS = (10.0,) * 4 + (5.0,) * 2 + (20.0,) * 2


class JointReport(RunReport):
    """One run of the study."""

    training: str
    batches: int
    steps_ms: list[float]
    runs: list[TrainingRecord]


def joint(
    quick: Annotated[
        bool, typer.Option("--quick", help="Tiny epochs: shows that all works, not how well.")
    ] = False,
    runs: Annotated[int, typer.Option(min=1, help="Trainings.")] = 1,
    batches: Annotated[int, typer.Option(min=1, help="Of an epoch.")] = 800,
    report: Annotated[
        Path, typer.Option(help="The JSON file to write; the plot lies beside it.")
    ] = Path("reports/joint.json"),
) -> None:
    """Show a training over its epochs, as the paper's figure 9 does."""
    from benchmarks.scaling.trainings import Training, run_training
    from benchmarks.scaling.trial import Way, a_service
    from cachew_components import stop_signals

    steps = (10.0, 10.0, 5.0) if quick else STEPS_MS
    if quick:
        runs, batches = 1, 60
    training = Training(batches=batches, before_ms=50, behind_ms=15, steps_ms=steps)
    console = new_console()
    result = JointReport.begun(
        quick=quick, training=training.name, batches=batches, steps_ms=list(steps), runs=[]
    )
    if warning := result.warning():
        console.print(f"[yellow]{warning}")
    way = Way(name="auto", policy="auto", workers=MOST_WORKERS)
    with stop_signals.as_exception(), tempfile.TemporaryDirectory() as home:
        os.environ |= {"CACHEW_HOME": home, **HILL_CLIMB}
        with console.status("the service starts") as shown, a_service(MOST_WORKERS) as service:
            for run in range(runs):

                def show(epoch: int, run: int = run) -> None:
                    shown.update(f"run {run + 1} of {runs}, epoch {epoch} of {len(steps)}")

                record = run_training(
                    service, training, way, f"joint-{run}", cache_policy="auto", on_epoch=show
                )
                result = result.model_copy(update={"runs": [*result.runs, record]})
                result.write(report)
    for record in result.runs:
        console.print(table_of(result, record))
    picture = report.with_suffix(".png")
    plot(result).savefig(picture, dpi=150)
    console.print(f"The same is in {report}, and the plot in {picture}.")


def table_of(report: JointReport, record: TrainingRecord) -> Table:
    """A row for each epoch."""
    table = Table(title=report.training, box=box.SIMPLE_HEAD)
    table.add_column("epoch", justify="right")
    table.add_column("mode")
    for heading in ("step ms", "batch ms", "epoch s", "worker-s", "workers", "cents"):
        table.add_column(heading, justify="right")
    for epoch, step_ms in zip(record.epochs, report.steps_ms, strict=True):
        table.add_row(
            str(epoch.epoch),
            epoch.mode,
            f"{step_ms:g}",
            f"{1000 * epoch.seconds / report.batches:.1f}",
            f"{epoch.seconds:.2f}",
            f"{epoch.worker_s:.1f}",
            str(epoch.workers),
            f"{100 * epoch.cost:.3f}",
        )
    return table


def plot(report: JointReport) -> Figure:
    """The workers over time and each epoch's time for a batch, in the first run."""
    from matplotlib.figure import Figure

    record = report.runs[0]
    figure = Figure(figsize=(9, 6), layout="constrained")
    above, below = figure.subplots(2, sharex=True)
    last = record.epochs[-1]
    times = [*(at for at, _ in record.workers), last.began_s + last.seconds]
    wanted = [count for _, count in record.workers]
    above.step(times, [*wanted, *wanted[-1:]], where="post")
    above.set_ylabel("workers wanted")
    above.set_ylim(bottom=0)
    for epoch, step_ms in zip(record.epochs, report.steps_ms, strict=True):
        end = epoch.began_s + epoch.seconds
        batch_ms = 1000 * epoch.seconds / report.batches
        below.plot([epoch.began_s, end], [batch_ms] * 2, "C0", linewidth=2)
        below.plot([epoch.began_s, end], [step_ms] * 2, "C1--")
        below.annotate(epoch.mode, (epoch.began_s, batch_ms), fontsize=7, rotation=20)
        for axes in (above, below):
            axes.axvline(epoch.began_s, color="grey", linewidth=0.5)
    below.set_ylabel("ms a batch (dashed: the trainer's step)")
    below.set_ylim(bottom=0)
    below.set_xlabel("s")
    figure.suptitle(report.training)
    return figure
