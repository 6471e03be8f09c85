"""What the studies of scaling found: tables and plots for people, JSON for what reads it later."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Self

from matplotlib.figure import Figure
from pydantic import computed_field
from rich import box
from rich.table import Table

from benchmarks.record import Record, RunReport
from benchmarks.scaling.costs import cost_of
from benchmarks.scaling.trial import Trial, Way

TOLERANCE = 0.05
"""An epoch within this part of the best static one's time is as good."""


class RunRecord(Record):
    """One epoch."""

    seconds: float
    worker_s: float
    """For all workers, the time for which they were held."""
    workers: list[tuple[float, int]]
    """What was set or decided, with the seconds since the start."""

    @property
    def cost(self) -> float:
        """At the paper's prices, in dollars."""
        return cost_of(self.seconds, self.worker_s)

    @property
    def changes(self) -> int:
        """Of the number of workers."""
        pairs = zip(self.workers, self.workers[1:], strict=False)
        return sum(before != after for (_, before), (_, after) in pairs)


class WayReport(Record):
    """One way to set the number of workers."""

    name: str
    static: int | None
    """Its number, if that never changes."""
    runs: list[RunRecord]

    @classmethod
    def of(cls, way: Way, trials: Sequence[Trial]) -> Self:
        """The report of some epochs."""
        fixed = way.policy == "all" and way.control is None
        runs = [
            RunRecord(seconds=trial.seconds, worker_s=trial.worker_s, workers=trial.workers)
            for trial in trials
        ]
        return cls(name=way.name, static=way.workers if fixed else None, runs=runs)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def seconds(self) -> float:
        """Of an epoch, the median."""
        return median(run.seconds for run in self.runs)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def worker_s(self) -> float:
        """Worker-seconds of an epoch, the median."""
        return median(run.worker_s for run in self.runs)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def cost(self) -> float:
        """Dollars of an epoch, the median."""
        return median(run.cost for run in self.runs)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def settled(self) -> list[int]:
        """The last number of each run."""
        return [run.workers[-1][1] if run.workers else self.static or 0 for run in self.runs]

    @computed_field  # type: ignore[prop-decorator]
    @property
    def changes(self) -> tuple[float, int]:
        """Of the number in an epoch: the median and the most."""
        changes = [run.changes for run in self.runs]
        return median(changes), max(changes)


class PipelineReport(Record):
    """One pipeline under all ways."""

    name: str
    ways: list[WayReport]

    @property
    def static(self) -> list[WayReport]:
        """The fixed numbers, the smallest first."""
        return [way for way in self.ways if way.static is not None]

    @computed_field  # type: ignore[prop-decorator]
    @property
    def best_s(self) -> float:
        """The shortest epoch of a fixed number."""
        return min(way.seconds for way in self.static)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def fewest(self) -> int:
        """The fewest workers that are as good as any number."""
        good = [way for way in self.static if way.seconds <= (1 + TOLERANCE) * self.best_s]
        return min(way.static or 0 for way in good)


class ScalingReport(RunReport):
    """One run of the study."""

    pipelines: list[PipelineReport]


HEADINGS = ("epoch s", "over best", "worker-s", "cents", "came to", "changes, most", "runs")


def table_of(report: PipelineReport) -> Table:
    """A row for each way."""
    table = Table(
        title=f"{report.name}: n* = {report.fewest}",
        caption="medians; over best: of the epoch, against the best fixed number",
        box=box.SIMPLE_HEAD,
    )
    table.add_column("workers set by")
    for heading in HEADINGS:
        table.add_column(heading, justify="right")
    for way in report.ways:
        table.add_row(
            way.name,
            f"{way.seconds:.2f}",
            f"{way.seconds / report.best_s - 1:+.1%}",
            f"{way.worker_s:.1f}",
            f"{100 * way.cost:.3f}",
            "-".join(str(n) for n in sorted({min(way.settled), max(way.settled)})),
            "{:g}, {}".format(*way.changes),
            str(len(way.runs)),
        )
    return table


def plot(report: ScalingReport) -> Figure:
    """For each pipeline the epoch's time and cost over the number of workers; rules are marks."""
    figure = Figure(figsize=(6 * len(report.pipelines), 8), layout="constrained")
    grid = figure.subplots(2, len(report.pipelines), squeeze=False)
    for column, pipeline in enumerate(report.pipelines):
        counts = [way.static for way in pipeline.static]
        for axes, what in zip(grid[:, column], ("seconds", "cost"), strict=True):
            axes.plot(counts, [getattr(way, what) for way in pipeline.static], "o-", color="grey")
            rules = [way for way in pipeline.ways if way.static is None]
            for way, marker in zip(rules, "*^sDv", strict=False):
                x, y = median(way.settled), getattr(way, what)
                axes.plot([x], [y], marker, markersize=11, label=way.name)
            axes.set_ylim(bottom=0)
            axes.set_xlabel("workers (of rules: the last number)")
            axes.set_ylabel("epoch, s" if what == "seconds" else "epoch, dollars")
        grid[0, column].set_title(f"{pipeline.name}: n* = {pipeline.fewest}")
        grid[0, column].legend()
    return figure
