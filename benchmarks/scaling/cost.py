"""`python -m benchmarks cost`: what a training's phases take and cost under each autoscaler."""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.table import Table

from benchmarks.console import new_console
from benchmarks.record import Record, RunReport
from benchmarks.scaling.autoscaling import HILL_CLIMB, MOST_WORKERS
from benchmarks.scaling.training_records import EpochRecord, TrainingRecord

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EPOCHS = 4


class WayRecord(Record):
    """One way to set the number of workers, and the trainings under it."""

    name: str
    runs: list[TrainingRecord]

    @property
    def phases(self) -> list[str]:
        """Modes of its epochs, each once."""
        return list(dict.fromkeys(self.runs[0].modes))

    def of(self, what: str, mode: str | None = None) -> float:
        """The median over the runs of a sum over the epochs in a mode; None: in any."""
        return float(
            median(
                sum(getattr(epoch, what) for epoch in _in(run.epochs, mode)) for run in self.runs
            )
        )

    def workers(self, mode: str) -> str:
        """What it came to in that mode: the fewest and the most of all runs."""
        ends = [_in(run.epochs, mode)[-1].workers for run in self.runs]
        return "-".join(str(n) for n in sorted({min(ends), max(ends)}))


def _in(epochs: Sequence[EpochRecord], mode: str | None) -> list[EpochRecord]:
    return [epoch for epoch in epochs if mode in (None, epoch.mode)]


class CostReport(RunReport):
    """One run of the study."""

    training: str
    ways: list[WayRecord]


def cost(
    quick: Annotated[
        bool, typer.Option("--quick", help="Tiny epochs: shows that all works, not how well.")
    ] = False,
    runs: Annotated[int, typer.Option(min=1, help="Trainings under each autoscaler.")] = 5,
    batches: Annotated[int, typer.Option(min=1, help="Of an epoch.")] = 600,
    report: Annotated[
        Path, typer.Option(help="The JSON file to write; the plot lies beside it.")
    ] = Path("reports/cost.json"),
) -> None:
    """Compare what phases cost under autoscalers, as the paper's figure 10 does."""
    from benchmarks.scaling.controls import hpa_on_cpu, hpa_on_wait
    from benchmarks.scaling.trainings import Training, run_training
    from benchmarks.scaling.trial import Way, a_service
    from cachew_components import stop_signals

    if quick:
        runs, batches = 1, 40
    most = 2 if quick else MOST_WORKERS
    training = Training(
        batches=batches, before_ms=52, behind_ms=18, steps_ms=(10.0,) * (2 if quick else EPOCHS)
    )
    ways = [
        Way(name="auto", policy="auto", workers=most),
        Way(name="hill climb", policy="hill_climb", workers=most),
        Way(name="HPA on CPU", policy="all", workers=most, control=hpa_on_cpu(most)),
        Way(name="HPA on wait", policy="all", workers=most, control=hpa_on_wait(most)),
    ]
    console = new_console()
    result = CostReport.begun(quick=quick, training=training.name, ways=[])
    if warning := result.warning():
        console.print(f"[yellow]{warning}")
    done: dict[str, list[TrainingRecord]] = {way.name: [] for way in ways}
    with stop_signals.as_exception(), tempfile.TemporaryDirectory() as home:
        os.environ |= {"CACHEW_HOME": home, **HILL_CLIMB}
        with console.status("the service starts") as shown, a_service(most) as service:
            for run in range(runs):
                # Side by side: whatever a minute brings, it brings to all of them.
                for way in ways:
                    shown.update(f"run {run + 1} of {runs}: {way.name}")
                    name = f"{way.name}-{run}"
                    done[way.name].append(
                        run_training(service, training, way, name, cache_policy="source")
                    )
                    gc.collect()
    result = result.model_copy(
        update={"ways": [WayRecord(name=name, runs=records) for name, records in done.items()]}
    )
    result.write(report)
    console.print(table_of(result))
    picture = report.with_suffix(".png")
    plot(result).savefig(picture, dpi=150)
    console.print(f"The same, with each epoch, is in {report}, and the plot in {picture}.")


def table_of(report: CostReport) -> Table:
    """A row for each way and phase, and for its sum."""
    table = Table(
        title=report.training,
        caption=f"medians of {len(report.ways[0].runs)}; cents at the paper's prices",
        box=box.SIMPLE_HEAD,
    )
    table.add_column("workers set by")
    table.add_column("phase")
    for heading in ("s", "worker-s", "cents", "came to", "s / auto's", "cents / auto's"):
        table.add_column(heading, justify="right")
    ours = report.ways[0]
    for way in report.ways:
        for mode in [*way.phases, None]:
            table.add_row(
                way.name,
                mode or "all",
                f"{way.of('seconds', mode):.2f}",
                f"{way.of('worker_s', mode):.1f}",
                f"{100 * way.of('cost', mode):.3f}",
                way.workers(mode) if mode else "",
                f"{way.of('seconds', mode) / ours.of('seconds', mode):.2f}",
                f"{way.of('cost', mode) / ours.of('cost', mode):.2f}",
                style="" if mode else "bold",
            )
    return table


def plot(report: CostReport) -> Figure:
    """Stacked bars of time and cost, a bar for each way and a part for each phase."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4.5), layout="constrained")
    names = [way.name for way in report.ways]
    for axes, what in zip(figure.subplots(1, 2), ("seconds", "cost"), strict=True):
        below = [0.0] * len(names)
        for mode in report.ways[0].phases:
            parts = [way.of(what, mode) for way in report.ways]
            axes.bar(names, parts, bottom=below, label=mode)
            below = [a + b for a, b in zip(below, parts, strict=True)]
        axes.set_ylabel("training, s" if what == "seconds" else "training, dollars")
        axes.tick_params(axis="x", rotation=20)
        axes.legend()
    figure.suptitle(report.training)
    return figure
