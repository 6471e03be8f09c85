"""How our rule compares with another one on the same pipeline, and what it should come to."""

from __future__ import annotations

from dataclasses import dataclass

from rich import box
from rich.table import Table

from benchmarks.record import Record
from benchmarks.scaling.report import PipelineReport, WayReport

OURS = "auto"


class Rivalry(Record):
    """Another rule beside ours; each number is a ratio of medians."""

    rival: str
    seconds: float
    """Its epoch's time to ours."""
    cost: float
    """Its cost to ours, trainer and workers, at the paper's prices."""
    excess: float | None
    """Our time over the best fixed number's, to its; None: it has none."""
    worker_s: float
    """Our worker-seconds to its."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """What one ratio should come to."""

    words: str
    holds: bool


def rivalries(report: PipelineReport) -> list[Rivalry]:
    """One for each other rule; none where ours was not run."""
    rules = {way.name: way for way in report.ways if way.static is None}
    ours = rules.pop(OURS, None)
    return [] if ours is None else [_rivalry(ours, rival, report) for rival in rules.values()]


def _rivalry(ours: WayReport, rival: WayReport, report: PipelineReport) -> Rivalry:
    excess = rival.seconds - report.best_s
    return Rivalry(
        rival=rival.name,
        seconds=rival.seconds / ours.seconds,
        cost=rival.cost / ours.cost,
        excess=max(ours.seconds - report.best_s, 0.0) / excess if excess > 0 else None,
        worker_s=ours.worker_s / rival.worker_s,
    )


def bounds(rivalry: Rivalry, fewest: int) -> list[Bound]:
    """What is asked of our rule beside another one, where workers don't disturb each other.

    Args:
        rivalry: the two.
        fewest: n*.
    """
    if rivalry.rival == "HPA on CPU":
        least = 0.85 * fewest
        return [
            Bound(words=f"time >= {least:.2f}", holds=rivalry.seconds >= least),
            Bound(words="cost >= 2.8", holds=rivalry.cost >= 2.8),
        ]
    most = 0.9 if rivalry.rival == "HPA on wait" else 0.5
    excess = Bound(
        words=f"excess <= {most}", holds=rivalry.excess is not None and rivalry.excess <= most
    )
    if rivalry.rival == "HPA on wait":
        return [excess, Bound(words="worker-s <= 1", holds=rivalry.worker_s <= 1)]
    return [excess, Bound(words="cost >= 1", holds=rivalry.cost >= 1)]


def table_of(report: PipelineReport, *, bounded: bool) -> Table:
    """A row for each other rule.

    Args:
        report: of one pipeline.
        bounded: whether the bounds are for such a pipeline.
    """
    table = Table(
        title=f"{report.name}: beside {OURS}",
        caption="excess: time over the best fixed number's",
        box=box.SIMPLE_HEAD,
    )
    table.add_column("rule")
    for heading in ("time / ours", "cost / ours", "our excess / its", "our worker-s / its"):
        table.add_column(heading, justify="right")
    table.add_column("bounds")
    for each in rivalries(report):
        asked = bounds(each, report.fewest) if bounded else []
        table.add_row(
            each.rival,
            f"{each.seconds:.2f}",
            f"{each.cost:.2f}",
            "" if each.excess is None else f"{each.excess:.2f}",
            f"{each.worker_s:.2f}",
            ", ".join(f"{bound.words}: {'yes' if bound.holds else 'no'}" for bound in asked),
        )
    return table
