"""`python -m benchmarks multi_tenancy`: two jobs with one pipeline share workers and a cache."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.table import Table

from benchmarks.console import new_console
from benchmarks.record import Record, RunReport
from benchmarks.scaling.autoscaling import HILL_CLIMB
from benchmarks.scaling.training_records import TrainingRecord

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from benchmarks.scaling.trainings import Training

WORKERS = 10
STEPS_MS = (20.0, 10.0)
"""Of the two trainers: the second one is twice as fast."""

JOINS_AT = 3
"""The second trainer begins with this epoch of the first one."""

EPOCHS = 4

WAIT_S = 600.0
"""For the first trainer to get there."""


class PairRecord(Record):
    """Both trainings of one run; the second one's seconds count from its own start."""

    first: TrainingRecord
    second: TrainingRecord


class ReadingRecord(Record):
    """One way to read what is stored."""

    direct_reads: str
    training: str
    batches: int
    runs: list[PairRecord]


class TenancyReport(RunReport):
    """One run of the study."""

    readings: list[ReadingRecord]


def multi_tenancy(
    quick: Annotated[
        bool, typer.Option("--quick", help="Tiny epochs: shows that all works, not how well.")
    ] = False,
    runs: Annotated[int, typer.Option(min=1, help="Runs of both trainings.")] = 5,
    batches: Annotated[int, typer.Option(min=1, help="Of an epoch.")] = 400,
    report: Annotated[
        Path, typer.Option(help="The JSON file to write; the plot lies beside it.")
    ] = Path("reports/multi_tenancy.json"),
) -> None:
    """Let two jobs share workers and a cache, as the paper's figure 11 does."""
    from benchmarks.scaling.trainings import Training
    from benchmarks.scaling.trial import a_service, next_first
    from cachew_components import stop_signals

    if quick:
        runs, batches = 1, 60
    console = new_console()
    result = TenancyReport.begun(quick=quick, readings=[])
    if warning := result.warning():
        console.print(f"[yellow]{warning}")
    with stop_signals.as_exception(), tempfile.TemporaryDirectory() as home:
        os.environ |= {"CACHEW_HOME": home, **HILL_CLIMB}
        with console.status("the service starts") as shown, a_service(WORKERS) as service:
            # Stored at the end, a batch costs a worker nothing to read here; what is behind the
            # mark takes the place of what the paper's workers need to read.
            for direct, augmented in (("never", True), ("auto", False)):
                training = Training(
                    batches=batches,
                    before_ms=20,
                    behind_ms=38,
                    steps_ms=(STEPS_MS[0],) * EPOCHS,
                    augmented=augmented,
                )
                pairs = []
                for run in range(runs):
                    shown.update(f"direct reads {direct}, run {run + 1} of {runs}")
                    pairs.append(_pair(service, training, direct, next_first(), str(run)))
                record = ReadingRecord(
                    direct_reads=direct, training=training.name, batches=batches, runs=pairs
                )
                result = result.model_copy(update={"readings": [*result.readings, record]})
                result.write(report)
    for reading in result.readings:
        console.print(table_of(reading))
    picture = report.with_suffix(".png")
    plot(result).savefig(picture, dpi=150)
    console.print(f"The same, with each epoch, is in {report}, and the plot in {picture}.")


def _pair(service: str, training: Training, direct: str, first: int, run: str) -> PairRecord:
    from benchmarks.scaling.trainings import run_training
    from benchmarks.scaling.trial import Way

    way = Way(name="auto", policy="auto", workers=WORKERS)
    joins = threading.Event()

    def train(job: str, spec: Training, waits: bool) -> TrainingRecord:
        if waits and not joins.wait(WAIT_S):
            raise TimeoutError(f"the first training took longer than {WAIT_S:g} s to be joined")
        return run_training(
            service,
            spec,
            way,
            f"{job}-{direct}-{run}",
            cache_policy="auto",
            direct_reads=direct,
            first=first,
            on_epoch=lambda epoch: joins.set() if epoch == JOINS_AT and not waits else None,
        )

    faster = replace(training, steps_ms=(STEPS_MS[1],) * EPOCHS)
    with ThreadPoolExecutor(2) as pool:
        one = pool.submit(train, "job_1", training, False)
        two = pool.submit(train, "job_2", faster, True)
        return PairRecord(first=one.result(), second=two.result())


def table_of(reading: ReadingRecord) -> Table:
    """A row for each job and epoch."""
    table = Table(
        title=f"direct reads {reading.direct_reads}: {reading.training}",
        caption=f"medians of {len(reading.runs)} runs; floor: the trainer's own time",
        box=box.SIMPLE_HEAD,
    )
    for heading in ("job", "epoch", "mode"):
        table.add_column(heading)
    for heading in ("epoch s", "over floor", "workers"):
        table.add_column(heading, justify="right")
    for job, step_ms in zip(("first", "second"), STEPS_MS, strict=True):
        trainings: list[TrainingRecord] = [getattr(pair, job) for pair in reading.runs]
        floor_s = reading.batches * step_ms / 1000
        for epochs in zip(*(training.epochs for training in trainings), strict=True):
            seconds = median(epoch.seconds for epoch in epochs)
            table.add_row(
                job,
                str(epochs[0].epoch),
                " or ".join(sorted({epoch.mode for epoch in epochs})),
                f"{seconds:.2f}",
                f"{seconds / floor_s - 1:+.0%}",
                _span([epoch.workers for epoch in epochs]),
            )
    return table


def _span(numbers: Sequence[int]) -> str:
    return "-".join(str(n) for n in sorted({min(numbers), max(numbers)}))


def plot(report: TenancyReport) -> Figure:
    """The workers of both jobs over time, in the first run of each way to read."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6 * len(report.readings), 4), layout="constrained")
    grid = figure.subplots(1, len(report.readings), squeeze=False)[0]
    for axes, reading in zip(grid, report.readings, strict=True):
        pair = reading.runs[0]
        starts = {"first": 0.0, "second": pair.first.epochs[JOINS_AT - 1].began_s}
        for job, start in starts.items():
            training: TrainingRecord = getattr(pair, job)
            times = [start + at for at, _ in training.workers]
            last = training.epochs[-1]
            times.append(start + last.began_s + last.seconds)
            wanted = [count for _, count in training.workers]
            axes.step(times, [*wanted, *wanted[-1:]], where="post", label=f"{job} job")
            for epoch in training.epochs:
                axes.axvline(start + epoch.began_s, color="grey", linewidth=0.5)
        axes.set_title(f"direct reads {reading.direct_reads}")
        axes.set_xlabel("s")
        axes.set_ylabel("workers wanted")
        axes.set_ylim(bottom=0)
        axes.legend()
    return figure
