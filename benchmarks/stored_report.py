"""What storing and reading cost: a table for people, JSON for what reads it later."""

from __future__ import annotations

from rich import box
from rich.table import Table

from benchmarks.record import Record, RunReport


class RatioCaseReport(Record):
    """One ratio."""

    name: str
    sides: tuple[str, str]
    """What is divided by what."""
    unit: str
    medians: tuple[float, float]
    """Of the sides."""
    ratio: float
    """Of the pairs' ratios the middle, with its 95 % interval."""
    low: float
    high: float
    bound: str
    """What the ratio should be."""
    holds: bool
    """False only if the whole interval lies on the wrong side of the bound."""
    runs: list[tuple[float, float]]
    """Each pair, in order."""


class CachingReport(RunReport):
    """One run."""

    cases: list[RatioCaseReport]


def table_of(report: CachingReport) -> Table:
    """A row for each ratio."""
    table = Table(
        title=f"Stored batches of 4 MiB, {report.cores} cores",
        caption="The epochs were too small for these numbers to mean anything"
        if report.quick
        else None,
        box=box.SIMPLE_HEAD,
    )
    table.add_column("case")
    table.add_column("a / b")
    for heading in ("a", "b", "ratio", "95 % interval", "pairs"):
        table.add_column(heading, justify="right")
    table.add_column("bound")
    table.add_column("holds")
    for case in report.cases:
        verdict = "[green]yes" if case.holds else "[red]no"
        table.add_row(
            f"{case.name} ({case.unit})",
            " / ".join(case.sides),
            *(f"{median:.4g}" for median in case.medians),
            f"{case.ratio:.3f}",
            f"{case.low:.3f} to {case.high:.3f}",
            str(len(case.runs)),
            case.bound,
            "-" if report.quick else verdict,
        )
    return table
