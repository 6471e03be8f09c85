"""`python -m benchmarks autocaching`: what storing pays, and whether `auto` finds out."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from benchmarks import glusterfs
from benchmarks.console import new_console
from benchmarks.studies import (
    BATCH_BYTES,
    BATCH_SOURCE_BYTES,
    CACHE_BATCH_S,
    LAKE_BATCH_S,
    WAITS_MS,
    Study,
    all_studies,
)

QUICK_BUDGET_S = "4"
"""For measuring one pipeline."""


def autocaching(
    quick: Annotated[
        bool, typer.Option("--quick", help="One wait, tiny epochs: shows that all works.")
    ] = False,
    lake: Annotated[
        Path | None,
        typer.Option(
            help="A folder to read from, instead of a GlusterFS volume of limited speed.",
            file_okay=False,
            exists=True,
        ),
    ] = None,
    cache: Annotated[
        Path | None,
        typer.Option(
            help="A folder to store in, likewise; give both.", file_okay=False, exists=True
        ),
    ] = None,
    wait: Annotated[
        list[int] | None,
        typer.Option(min=0, help="Milliseconds of work in a batch; may be given again."),
    ] = None,
    report: Annotated[
        Path, typer.Option(help="The JSON file to write; the plot lies beside it.")
    ] = Path("reports/autocaching.json"),
) -> None:
    """Compare what is stored, in a pipeline that waits for a lake, a cache and its work."""
    if (lake is None) is not (cache is None):
        raise typer.BadParameter("give --lake and --cache, or none of them")
    waits = sorted(set(wait or (WAITS_MS[:1] if quick else WAITS_MS)))
    if lake is not None and cache is not None:
        studies = all_studies(waits)
        _measure(studies, lake, cache, report, quick=quick)
        return
    if lacking := glusterfs.missing():
        raise typer.BadParameter(
            f"{lacking}. The storage whose speed is limited is GlusterFS; give --lake and --cache "
            "to measure with other folders"
        )
    raise typer.Exit(_inside(waits, report, quick=quick))


def _inside(waits: Sequence[int], report: Path, *, quick: bool) -> int:
    """Starts the storage and this command in its namespaces; the exit code."""
    from cachew_components import stop_signals

    volumes = {
        "lake": int(BATCH_SOURCE_BYTES / LAKE_BATCH_S),
        "cache": int(BATCH_BYTES / CACHE_BATCH_S),
    }
    with stop_signals.as_exception(), glusterfs.GlusterFS(volumes) as server:
        command = [sys.executable, "-m", "benchmarks", "autocaching"]
        for volume in volumes:
            command += [f"--{volume}", str(server.path(volume))]
        for milliseconds in waits:
            command += ["--wait", str(milliseconds)]
        command += ["--report", str(report.absolute()), *["--quick"] * quick]
        environment = {**os.environ, "TMPDIR": str(server.folder)}
        return subprocess.run(server.inside(command), env=environment, check=False).returncode


def _measure(studies: Sequence[Study], lake: Path, cache: Path, path: Path, *, quick: bool) -> None:
    # These import TensorFlow, for which `--help` need not wait.
    from benchmarks.sweep import Extent, run_studies
    from benchmarks.sweep_report import SweepReport, plot, summary_of, table_of
    from cachew_components import stop_signals

    console = new_console()
    report = SweepReport.begun(quick=quick, studies=[])
    if warning := report.warning():
        console.print(f"[yellow]{warning}")
    extent = Extent()
    if quick:
        extent = Extent(batches=16, epochs=1)
        os.environ["CACHEW_PROFILE_BUDGET_S"] = QUICK_BUDGET_S
    with (
        stop_signals.as_exception(),
        tempfile.TemporaryDirectory() as home,
        console.status("") as shown,
    ):
        os.environ["CACHEW_HOME"] = home
        for study in run_studies(studies, lake, cache, extent, tell=shown.update):
            report = report.model_copy(update={"studies": [*report.studies, study]})
            report.write(path)
            console.print(
                f"{study.name}: auto {study.batch_ms('auto'):.1f} ms, best static "
                f"{study.best_ms:.1f} ms"
            )
    console.print(table_of(report))
    for line in summary_of(report):
        console.print(line)
    picture = path.with_suffix(".png")
    plot(report).savefig(picture, dpi=150)
    console.print(f"The same, with each epoch, is in {path}, and the plot in {picture}.")
