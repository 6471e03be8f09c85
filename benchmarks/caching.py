"""`python -m benchmarks caching`: what it costs to store batches, and to read them."""

from __future__ import annotations

import gc
import os
import statistics
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from benchmarks.console import new_console
from benchmarks.ratios import FEWEST_PAIRS, estimate

if TYPE_CHECKING:
    from benchmarks.stored_cases import Service, StoredCase
    from benchmarks.stored_report import RatioCaseReport

PAIRS = 10
_IDLE_TIMEOUT_S = 600.0


def caching(
    quick: Annotated[
        bool, typer.Option("--quick", help="A few tiny epochs: shows that all works.")
    ] = False,
    case: Annotated[
        list[str] | None,
        typer.Option(help="Only cases whose name contains this text; may be given again."),
    ] = None,
    pairs: Annotated[
        int, typer.Option(min=FEWEST_PAIRS, help="How often each ratio is measured.")
    ] = PAIRS,
    report: Annotated[Path, typer.Option(help="The JSON file to write.")] = Path(
        "reports/caching.json"
    ),
) -> None:
    """Measure what it costs to store batches of 4 MiB, and to read them."""
    # These import TensorFlow, for which `--help` need not wait.
    from benchmarks.stored_cases import all_cases
    from benchmarks.stored_report import CachingReport, table_of
    from cachew_components import stop_signals

    cases = [
        each for each in all_cases(small=quick) if not case or any(t in each.name for t in case)
    ]
    if not cases:
        raise typer.BadParameter(f"no case has {' or '.join(case or [])!r} in its name")
    console = new_console()
    result = CachingReport.begun(quick=quick, cases=[])
    if warning := result.warning():
        console.print(f"[yellow]{warning}")
    with stop_signals.as_exception(), console.status("") as shown:
        for each in cases:
            shown.update(each.name)
            done = _measured(each, FEWEST_PAIRS if quick else pairs)
            result = result.model_copy(update={"cases": [*result.cases, done]})
            result.write(report)
    console.print(table_of(result))
    console.print(f"The same, with each run, is in {report}.")


def _measured(case: StoredCase, pairs: int) -> RatioCaseReport:
    from benchmarks.stored_report import RatioCaseReport

    both = []
    with _service(case.workers) as service:
        # The first pair is like no other: functions are traced, files are new.
        case.pair(service)
        for _ in range(pairs):
            both.append(case.pair(service))
            # The pair's jobs end before the next one's begin.
            gc.collect()
    ratio = estimate([upper / lower for upper, lower in both])
    uppers, lowers = zip(*both, strict=True)
    return RatioCaseReport(
        name=case.name,
        sides=case.sides,
        unit=case.unit,
        medians=(statistics.median(uppers), statistics.median(lowers)),
        ratio=ratio.ratio,
        low=ratio.low,
        high=ratio.high,
        bound=str(case.bound),
        holds=case.bound.holds(ratio),
        runs=both,
    )


@contextmanager
def _service(workers: int) -> Iterator[Service]:
    """A service whose cache and all else of it are gone at the end."""
    from benchmarks.stored_cases import Service
    from cachew_core.cluster import down, up

    name = f"bench-{uuid.uuid4().hex[:8]}"
    with tempfile.TemporaryDirectory() as home:
        os.environ["CACHEW_HOME"] = home
        try:
            record = up(
                name,
                workers=workers,
                idle_timeout_s=_IDLE_TIMEOUT_S,
                first_client_timeout_s=_IDLE_TIMEOUT_S,
            )
            yield Service(name=name, endpoint=record.endpoint, folder=Path(home))
        finally:
            down(name)
