"""`python -m benchmarks starts`: how soon new workers deliver, and a known job is steady."""

from __future__ import annotations

import itertools
import os
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import mean, median
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.table import Table

from benchmarks.console import new_console
from benchmarks.record import Record, RunReport

if TYPE_CHECKING:
    import tensorflow as tf
    from matplotlib.figure import Figure

    from cachew_core.proto import cachew_pb2

WORK_MS, STEP_MS = 36.0, 10.0
MOST_WORKERS = 8

WINDOW = 10
"""Batches over which the time from batch to batch is taken."""
TOLERANCE = 0.1
"""Within this part of what it comes to, it is steady."""

STEADY_BATCHES, STEADY_S, STEP_UP_S = 50, 3.0, 1.5
"""What a known job's start and a step up should take at most."""


class StartRecord(Record):
    """One job that nobody knew, and the next one with the same pipeline."""

    step_up_s: float | None
    """From the first decision for more workers to the first batch of a new one; None: neither."""
    cold_s: list[float]
    """When each batch came, in seconds since the first was asked for."""
    warm_s: list[float]
    """The same of the second job."""


class StartsReport(RunReport):
    """One run of the study."""

    runs: list[StartRecord]


def starts(
    quick: Annotated[
        bool, typer.Option("--quick", help="Tiny epochs: shows that all works, not how well.")
    ] = False,
    runs: Annotated[int, typer.Option(min=1, help="Pairs of jobs.")] = 5,
    batches: Annotated[int, typer.Option(min=2 * WINDOW, help="Of an epoch.")] = 600,
    report: Annotated[
        Path, typer.Option(help="The JSON file to write; the plot lies beside it.")
    ] = Path("reports/starts.json"),
) -> None:
    """Measure how soon a step up delivers, and how soon a known job is steady."""
    from cachew_components import stop_signals

    if quick:
        runs, batches = 1, 60
    console = new_console()
    result = StartsReport.begun(quick=quick, runs=[])
    if warning := result.warning():
        console.print(f"[yellow]{warning}")
    with stop_signals.as_exception(), tempfile.TemporaryDirectory() as home:
        os.environ["CACHEW_HOME"] = home
        with console.status("the service starts") as shown, _a_service() as service:
            for run in range(runs):
                shown.update(f"run {run + 1} of {runs}")
                record = _measured(service, batches, run)
                result = result.model_copy(update={"runs": [*result.runs, record]})
                result.write(report)
    console.print(table_of(result))
    picture = report.with_suffix(".png")
    plot(result).savefig(picture, dpi=150)
    console.print(f"The same, with each batch, is in {report}, and the plot in {picture}.")


@contextmanager
def _a_service() -> Iterator[str]:
    """From one worker to eight, of which one more is ready than is wanted."""
    from cachew_core import cluster

    name = f"bench-{uuid.uuid4().hex[:8]}"
    try:
        cluster.up(name, min_workers=1, max_workers=MOST_WORKERS, standby=1)
        yield name
    finally:
        cluster.down(name)


def _measured(service: str, batches: int, run: int) -> StartRecord:
    from benchmarks.scaling.trial import next_first

    first = next_first()
    cold_s, step_up_s = _read(service, _dataset(first, batches), f"cold-{run}")
    warm_s, _ = _read(service, _dataset(first, batches), f"warm-{run}")
    return StartRecord(step_up_s=step_up_s, cold_s=cold_s, warm_s=warm_s)


def _dataset(first: int, batches: int) -> tf.data.Dataset:
    """Batches that say which process made them."""
    import tensorflow as tf

    import cachew_core as cachew

    numbers = tf.data.Dataset.range(first, first + batches)
    numbers = numbers.apply(cachew.sleep(round(1000 * WORK_MS)))
    return numbers.map(lambda number: (number, tf.io.read_file("/proc/self/stat")))


def _read(
    service: str, dataset: tf.data.Dataset, job_name: str
) -> tuple[list[float], float | None]:
    import cachew_core as cachew
    from benchmarks.scaling.trial import ended_job

    distribute = cachew.distribute(
        service, job_name, scaling_policy="auto", cache_policy="compute", direct_reads="never"
    )
    dataset = dataset.apply(distribute)
    began_at, came_at, makers = time.time(), [], []
    for _, stat in dataset:
        came_at.append(time.time())
        makers.append(bytes(stat.numpy()).split()[0])
        time.sleep(STEP_MS / 1000)
    job = ended_job(service, job_name)
    return [at - began_at for at in came_at], _step_up_s(job, came_at, makers)


def _step_up_s(
    job: cachew_pb2.JobStatus, came_at: Sequence[float], makers: Sequence[bytes]
) -> float | None:
    decided = itertools.pairwise(job.scaling)
    ups = [after.at_s for before, after in decided if after.workers > before.workers]
    if not ups:
        return None
    before = {maker for at, maker in zip(came_at, makers, strict=True) if at < ups[0]}
    new = [at for at, maker in zip(came_at, makers, strict=True) if maker not in before]
    return new[0] - ups[0] if new else None


def steady_from(came_s: Sequence[float]) -> tuple[int, float, float]:
    """From which batch on, and from which second on, batches come as they do in the end; and the
    seconds from batch to batch that this means.

    Args:
        came_s: when each batch came.
    """
    gaps = [after - before for before, after in itertools.pairwise(came_s)]
    steady_s = median(gaps[len(gaps) // 2 :])
    for batch in range(len(gaps) - WINDOW + 1):
        if mean(gaps[batch : batch + WINDOW]) <= (1 + TOLERANCE) * steady_s:
            return batch + 1, came_s[batch], steady_s
    return len(came_s), came_s[-1], steady_s


def table_of(report: StartsReport) -> Table:
    """A row for each run."""
    table = Table(
        title=f"({WORK_MS:g}, {STEP_MS:g}) ms, up to {MOST_WORKERS} workers, one of them standby",
        caption=(
            f"steady: within {TOLERANCE:.0%}; it should be within {STEADY_BATCHES} batches or "
            f"{STEADY_S:g} s where the pipeline is known; a step up within {STEP_UP_S:g} s"
        ),
        box=box.SIMPLE_HEAD,
    )
    table.add_column("run", justify="right")
    for heading in ("step up, s", "new: steady from batch", "at s", "known: from batch", "at s"):
        table.add_column(heading, justify="right")
    table.add_column("holds")
    for number, run in enumerate(report.runs, start=1):
        cold, warm = steady_from(run.cold_s), steady_from(run.warm_s)
        soon = warm[0] <= STEADY_BATCHES or warm[1] <= STEADY_S
        quick = run.step_up_s is not None and run.step_up_s <= STEP_UP_S
        table.add_row(
            str(number),
            "none" if run.step_up_s is None else f"{run.step_up_s:.2f}",
            str(cold[0]),
            f"{cold[1]:.2f}",
            str(warm[0]),
            f"{warm[1]:.2f}",
            "yes" if soon and quick else "no",
        )
    return table


def plot(report: StartsReport) -> Figure:
    """When batches came, in the first run."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    run = report.runs[0]
    for came_s, label in ((run.cold_s, "a new pipeline"), (run.warm_s, "a known one")):
        axes.plot(came_s, range(1, len(came_s) + 1), label=label)
    axes.set_xlabel("s")
    axes.set_ylabel("batches")
    axes.legend()
    return figure
