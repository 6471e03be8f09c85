"""`python -m benchmarks autoscaling`: numbers of workers that rules come to, and what they cost."""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from benchmarks.console import new_console

if TYPE_CHECKING:
    from rich.console import Console

    from benchmarks.scaling.pipelines import Pipeline
    from benchmarks.scaling.report import PipelineReport
    from benchmarks.scaling.trial import Way

MOST_WORKERS = 8

HILL_CLIMB = {
    "CACHEW_CLIMB_BATCHES": "10",
    "CACHEW_CLIMB_PAUSE_BATCHES": "15",
    "CACHEW_CLIMB_SKIP_BATCHES": "20",
}
"""A tenth of the original's numbers of batches, as its epochs had ten times as many."""


def autoscaling(
    quick: Annotated[
        bool, typer.Option("--quick", help="Tiny epochs: shows that all works, not how well.")
    ] = False,
    work: Annotated[
        list[str] | None,
        typer.Option(help="Only pipelines of that kind: sleeping, burning or mixed."),
    ] = None,
    runs: Annotated[int, typer.Option(min=1, help="Epochs of each pipeline and way.")] = 5,
    batches: Annotated[int, typer.Option(min=1, help="Of an epoch.")] = 1500,
    pair: Annotated[
        list[str] | None,
        typer.Option(
            help="Milliseconds of a worker's and of the trainer's work in a batch (default 36,10)."
        ),
    ] = None,
    most: Annotated[int, typer.Option(min=1, help="The largest number of workers.")] = MOST_WORKERS,
    buffer: Annotated[
        int, typer.Option(min=0, help="Batches that the trainer buffers, unseen by the service.")
    ] = 0,
    way: Annotated[
        list[str] | None, typer.Option(help="Only these rules beside the static numbers.")
    ] = None,
    report: Annotated[
        Path, typer.Option(help="The JSON file to write; the plot lies beside it.")
    ] = Path("reports/autoscaling.json"),
) -> None:
    """Compare autoscaling with fixed numbers of workers and with Kubernetes' autoscaler."""
    # These import TensorFlow, for which `--help` need not wait.
    from benchmarks.scaling import rivals
    from benchmarks.scaling.pipelines import Pipeline, Work
    from benchmarks.scaling.report import ScalingReport, plot, table_of
    from cachew_components import stop_signals

    if quick:
        runs, batches, most = 1, 40, 2
    pipelines = [
        Pipeline(work=kind, work_ms=work_ms, step_ms=step_ms, batches=batches, buffer=buffer)
        for kind in ([Work(name) for name in work] if work else list(Work))
        for work_ms, step_ms in (map(float, each.split(",")) for each in pair or ["36,10"])
    ]
    console = new_console()
    result = ScalingReport.begun(quick=quick, pipelines=[])
    if warning := result.warning():
        console.print(f"[yellow]{warning}")
    with stop_signals.as_exception(), tempfile.TemporaryDirectory() as home:
        os.environ |= {"CACHEW_HOME": home, **HILL_CLIMB}
        for each in _measured(pipelines, _ways(most, way), runs, most, console):
            result = result.model_copy(update={"pipelines": [*result.pipelines, each]})
            result.write(report)
    for each, pipeline in zip(result.pipelines, pipelines, strict=True):
        console.print(table_of(each))
        if rivals.rivalries(each):
            console.print(rivals.table_of(each, bounded=pipeline.work is Work.SLEEPING))
    picture = report.with_suffix(".png")
    plot(result).savefig(picture, dpi=150)
    console.print(f"The same, with each epoch, is in {report}, and the plot in {picture}.")


def _ways(most: int, names: Sequence[str] | None) -> list[Way]:
    from benchmarks.scaling.controls import hpa_on_cpu, hpa_on_wait
    from benchmarks.scaling.trial import Way

    rules = [
        Way(name="auto", policy="auto", workers=most),
        Way(name="hill climb", policy="hill_climb", workers=most),
        Way(name="HPA on CPU", policy="all", workers=most, control=hpa_on_cpu(most)),
        Way(name="HPA on wait", policy="all", workers=most, control=hpa_on_wait(most)),
    ]
    static = [
        Way(name=f"{count} static", policy="all", workers=count) for count in range(1, most + 1)
    ]
    return static + [rule for rule in rules if not names or rule.name in names]


def _measured(
    pipelines: Sequence[Pipeline], ways: Sequence[Way], runs: int, most: int, console: Console
) -> Iterator[PipelineReport]:
    from benchmarks.scaling.report import PipelineReport, WayReport
    from benchmarks.scaling.trial import Trial, a_service, run_trial

    with console.status("the service starts") as shown, a_service(most) as name:
        for pipeline in pipelines:
            trials: dict[str, list[Trial]] = {way.name: [] for way in ways}
            for run in range(runs):
                # Side by side: whatever a minute brings, it brings to all of them.
                for way in ways:
                    shown.update(f"{pipeline.name}, run {run + 1} of {runs}: {way.name}")
                    job_name = f"{pipeline.work}-{way.name}-{run}"
                    trials[way.name].append(run_trial(name, pipeline, way, job_name))
                    gc.collect()
            yield PipelineReport(
                name=pipeline.name,
                ways=[WayReport.of(way, trials[way.name]) for way in ways],
            )
