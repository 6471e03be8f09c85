"""`python -m benchmarks thresholds`: how much the rules depend on their one threshold."""

from __future__ import annotations

import gc
import itertools
import os
import tempfile
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.table import Table

from benchmarks.console import new_console
from benchmarks.record import Record, RunReport
from benchmarks.scaling.autoscaling import HILL_CLIMB, MOST_WORKERS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PERCENTS = tuple(range(1, 12))
POLICIES = ("rate_match", "hill_climb")


class ThresholdRecord(Record):
    """The epochs of one policy with one threshold."""

    policy: str
    percent: int
    seconds: list[float]
    settled: list[int]
    """The last number of workers."""


class ThresholdsReport(RunReport):
    """One run of the study."""

    pipeline: str
    records: list[ThresholdRecord]


def thresholds(
    quick: Annotated[
        bool, typer.Option("--quick", help="One threshold, tiny epochs: shows that all works.")
    ] = False,
    runs: Annotated[int, typer.Option(min=1, help="Epochs of each policy and threshold.")] = 5,
    batches: Annotated[int, typer.Option(min=1, help="Of an epoch.")] = 1500,
    percent: Annotated[
        list[int] | None, typer.Option(min=1, max=50, help="A threshold; may be given again.")
    ] = None,
    report: Annotated[
        Path, typer.Option(help="The JSON file to write; the plot lies beside it.")
    ] = Path("reports/thresholds.json"),
) -> None:
    """Vary the improvement that is worth a worker, from 1 to 11 %, as the paper's figure 7 does."""
    # These import TensorFlow, for which `--help` need not wait.
    from benchmarks.scaling.pipelines import Pipeline, Work
    from benchmarks.scaling.trial import Trial, Way, a_service, run_trial
    from cachew_components import stop_signals

    percents = percent or (PERCENTS[4:5] if quick else PERCENTS)
    if quick:
        runs, batches = 1, 40
    pipeline = Pipeline(work=Work.SLEEPING, work_ms=36, step_ms=10, batches=batches)
    console = new_console()
    result = ThresholdsReport.begun(quick=quick, pipeline=pipeline.name, records=[])
    with (
        stop_signals.as_exception(),
        tempfile.TemporaryDirectory() as home,
        console.status("") as shown,
    ):
        for value in percents:
            share = str(value / 100)
            settings = {"CACHEW_SCALING_TOLERANCE": share, "CACHEW_CLIMB_THRESHOLD": share}
            # A store of its own: no threshold starts from what another one found.
            folder = str(Path(home) / str(value))
            os.environ |= {"CACHEW_HOME": folder, **HILL_CLIMB, **settings}
            shown.update(f"{value} %: the service starts")
            with a_service(MOST_WORKERS) as service:
                trials: dict[str, list[Trial]] = {policy: [] for policy in POLICIES}
                for run, policy in itertools.product(range(runs), POLICIES):
                    shown.update(f"{value} %, run {run + 1} of {runs}: {policy}")
                    way = Way(name=policy, policy=policy, workers=MOST_WORKERS)
                    trial = run_trial(service, pipeline, way, f"{policy}-{run}")
                    trials[policy].append(trial)
                    gc.collect()
            records = [
                ThresholdRecord(
                    policy=policy,
                    percent=value,
                    seconds=[trial.seconds for trial in done],
                    settled=[trial.settled for trial in done],
                )
                for policy, done in trials.items()
            ]
            result = result.model_copy(update={"records": [*result.records, *records]})
            result.write(report)
    console.print(table_of(result))
    picture = report.with_suffix(".png")
    plot(result).savefig(picture, dpi=150)
    console.print(f"The same, with each epoch, is in {report}, and the plot in {picture}.")


def table_of(report: ThresholdsReport) -> Table:
    """A row for each threshold."""
    table = Table(title=report.pipeline, box=box.SIMPLE_HEAD)
    table.add_column("threshold", justify="right")
    for policy, heading in itertools.product(POLICIES, ("epoch s", "came to")):
        table.add_column(f"{policy}: {heading}", justify="right")
    for percent in dict.fromkeys(record.percent for record in report.records):
        cells = []
        for policy in POLICIES:
            record = next(
                each for each in report.records if (each.policy, each.percent) == (policy, percent)
            )
            ends = sorted({min(record.settled), max(record.settled)})
            cells += [f"{median(record.seconds):.2f}", "-".join(map(str, ends))]
        table.add_row(f"{percent} %", *cells)
    return table


def plot(report: ThresholdsReport) -> Figure:
    """Epoch time and number of workers over the threshold."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 7), layout="constrained")
    above, below = figure.subplots(2, sharex=True)
    for policy in POLICIES:
        records = [record for record in report.records if record.policy == policy]
        percents = [record.percent for record in records]
        above.plot(percents, [median(record.seconds) for record in records], "o-", label=policy)
        below.plot(percents, [median(record.settled) for record in records], "o-", label=policy)
    above.set_title(report.pipeline)
    above.set_ylabel("epoch, s")
    above.set_ylim(bottom=0)
    above.legend()
    below.set_ylabel("workers it came to")
    below.set_ylim(bottom=0)
    below.set_xlabel("threshold, %")
    return figure
