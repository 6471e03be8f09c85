"""`python -m benchmarks`: Cachew's speed beside stock tf.data service."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from benchmarks.console import new_console
from benchmarks.pairing import FEWEST_PAIRS, Plan, Runs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from benchmarks.cases import Case
    from benchmarks.report import BenchReport


def bench(
    context: typer.Context,
    quick: Annotated[
        bool, typer.Option("--quick", help="A few tiny epochs: shows that all works, not how fast.")
    ] = False,
    case: Annotated[
        list[str] | None,
        typer.Option(help="Only cases whose name contains this text; may be given again."),
    ] = None,
    max_seconds: Annotated[
        float,
        typer.Option(
            min=0,
            help=f"Most time for one case, in seconds, once it has {Plan().least_pairs} pairs.",
        ),
    ] = Plan().max_seconds,
    report: Annotated[Path, typer.Option(help="The JSON file to write.")] = Path(
        "reports/bench.json"
    ),
) -> None:
    """Measure Cachew's speed beside stock tf.data service, on this machine."""
    if context.invoked_subcommand is not None:
        return
    # These import TensorFlow, for which `--help` need not wait.
    from benchmarks.cases import all_cases
    from benchmarks.report import BenchReport, table_of
    from cachew_components import stop_signals

    cases = [each for each in all_cases(small=quick) if _is_wanted(each.name, case)]
    if not cases:
        raise typer.BadParameter(f"no case has {' or '.join(case or [])!r} in its name")
    plan = Plan(max_seconds=max_seconds)
    if quick:
        plan = replace(plan, least_pairs=FEWEST_PAIRS, max_seconds=0)
    console = new_console()
    with stop_signals.as_exception():
        result = _measure(cases, plan, BenchReport.begun(quick=quick, cases=[]), report, console)
    console.print(table_of(result))
    console.print(f"The same, with each run, is in {report}.")


def _is_wanted(name: str, texts: list[str] | None) -> bool:
    return not texts or any(text in name for text in texts)


def _measure(
    cases: Sequence[Case], plan: Plan, result: BenchReport, path: Path, console: Console
) -> BenchReport:
    """Runs the cases with their progress on the console; the file has what is done so far."""
    from benchmarks.runner import run_cases

    if warning := result.warning():
        console.print(f"[yellow]{warning}")
    with _progress(console) as progress:
        bars = {case.name: progress.add_task(case.name, start=False, note="") for case in cases}
        waiting = iter(bars.values())
        progress.start_task(current := next(waiting))

        def tell(runs: Runs, seconds: float) -> None:
            note = f"{runs.pairs} pairs"
            if runs.pairs >= FEWEST_PAIRS:
                ratio = runs.ratio()
                note += f", {ratio.ratio:.3f} ± {100 * ratio.half_width:.1f} %"
            shares = (1, runs.pairs / plan.least_pairs, seconds / (plan.max_seconds or 1))
            progress.update(current, completed=100 * min(shares), note=note)

        def starting() -> None:
            progress.update(current, note="the services start")

        for done in run_cases(cases, plan, tell=tell, starting=starting):
            progress.update(current, completed=100)
            progress.stop_task(current)
            result = result.model_copy(update={"cases": [*result.cases, done]})
            result.write(path)
            current = next(waiting, current)
            progress.start_task(current)
    return result


def _progress(console: Console) -> Progress:
    return Progress(
        SpinnerColumn(finished_text="[green]✓"),
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}"),
        console=console,
    )
