"""What a benchmark found: a table for people, JSON for what reads it later."""

from __future__ import annotations

import statistics

from rich import box
from rich.table import Table

from benchmarks.cases import Case
from benchmarks.pairing import Comparison, Stop
from benchmarks.ratios import Interval
from benchmarks.record import Record, RunReport

_CUT = "* the time was up before the interval was within 2 %"
_TOO_SMALL = "the epochs were too small for these numbers to mean anything"


class RatioReport(Record):
    """A ratio and its 95 % interval."""

    ratio: float
    low: float
    high: float


class CaseReport(Record):
    """One case."""

    name: str
    workers: int
    """On each side."""
    figure: str
    """The unit of what was compared."""
    stock_api: str
    """How stock's side was read."""
    ours: float
    """Median of the figure."""
    stock: float
    """The same, of stock's runs."""
    ratio: RatioReport
    """Ours / stock."""
    noise: RatioReport
    """Stock / stock."""
    pairs: int
    """Of ours and stock, and half as many of stock and stock."""
    stop: str
    """Why no further pair was measured."""
    bound: str
    """What the ratio should be."""
    holds: bool
    """False only if the whole interval lies on the wrong side of the bound."""
    seconds: float
    ours_cpu_us_per_element: float
    """Median of the CPU time of the trainer's process."""
    stock_cpu_us_per_element: float
    ours_runs: list[float]
    """The figure of each run, in the order of the rounds."""
    stock_runs: list[float]


class BenchReport(RunReport):
    """One run of the benchmarks."""

    cases: list[CaseReport]


def report_case(
    case: Case, comparison: Comparison, *, ours_cpu_us: list[float], stock_cpu_us: list[float]
) -> CaseReport:
    """A case's report.

    Args:
        case: what was compared.
        comparison: the runs.
        ours_cpu_us: CPU microseconds of the trainer's process per element, of each run of ours.
        stock_cpu_us: the same for stock.
    """
    runs = comparison.runs
    ratio = runs.ratio()
    return CaseReport(
        name=case.name,
        workers=case.workers,
        figure=case.unit,
        stock_api=case.stock_api.value,
        ours=statistics.median(runs.ours),
        stock=statistics.median(runs.stock),
        ratio=_ratio_report(ratio),
        noise=_ratio_report(runs.noise()),
        pairs=runs.pairs,
        stop=comparison.stop.value,
        bound=str(case.bound),
        holds=case.bound.holds(ratio),
        seconds=comparison.seconds,
        ours_cpu_us_per_element=statistics.median(ours_cpu_us),
        stock_cpu_us_per_element=statistics.median(stock_cpu_us),
        ours_runs=runs.ours,
        stock_runs=runs.stock,
    )


def _ratio_report(interval: Interval) -> RatioReport:
    return RatioReport(ratio=interval.ratio, low=interval.low, high=interval.high)


def table_of(report: BenchReport) -> Table:
    """A row for each case."""
    table = Table(
        title=f"Cachew beside stock tf.data service, {report.cores} cores",
        caption=_TOO_SMALL if report.quick else _CUT,
        box=box.SIMPLE_HEAD,
    )
    table.add_column("case")
    for heading in ("ours", "stock", "ours / stock", "95 % interval", "pairs"):
        table.add_column(heading, justify="right")
    table.add_column("bound")
    table.add_column("holds")
    table.add_column("stock / stock", justify="right")
    for case in report.cases:
        table.add_row(*_row(case, judged=not report.quick))
    return table


def _row(case: CaseReport, *, judged: bool) -> list[str]:
    verdict = "[green]yes" if case.holds else "[red]no"
    cut = "*" if case.stop == Stop.TIME.value else ""
    return [
        f"{case.name} ({case.figure})",
        f"{case.ours:.4g}",
        f"{case.stock:.4g}",
        f"{case.ratio.ratio:.3f}",
        f"{case.ratio.low:.3f} to {case.ratio.high:.3f}",
        f"{case.pairs}{cut}",
        case.bound,
        verdict if judged else "-",
        f"{case.noise.ratio:.3f} ({case.noise.low:.3f} to {case.noise.high:.3f})",
    ]
