"""Shows how far the training pipeline is under kfp.local, which has no events to listen to.

What is known comes from outside: kfp logs each step's start and end, and the service says how many
batches its trainer got.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)

from cachew_core.cluster import status
from cachew_core.errors import CachewError

LOOK_INTERVAL_S = 0.3
"""How often the progress is looked at."""
FAILED_LINES = 15
"""How much of the log is shown when a step failed."""

TRAINING = "train-classifier"
STEPS = {
    "make-photograph-records": "Cut photographs into records",
    "cachew-service": "Start the service",
    TRAINING: "Train through it",
    "cachew-teardown": "Take the service down",
}
"""The pipeline's steps by kfp's name, in the order in which they run."""

# What kfp logs about steps; were it to change, the bars would stand still.
_STARTED = re.compile(r"Executing task '([\w-]+)'")
_SUCCEEDED = re.compile(r"Task '([\w-]+)' finished with status SUCCESS")
_FAILED = re.compile(r"^.*Task '([\w-]+)' finished with status FAILURE.*$", re.MULTILINE)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def watch(
    process: subprocess.Popen[bytes],
    *,
    log: Path,
    service_name: str,
    batches: int,
    console: Console,
) -> None:
    """Shows what the pipeline does until its process ends.

    Args:
        process: runs the pipeline.
        log: gets the process's output.
        service_name: of the service that the pipeline brings up.
        batches: how many the training reads in all its epochs.
        console: where it is shown.
    """
    columns = (
        SpinnerColumn(finished_text="[green]✓"),
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        bars = {
            step: progress.add_task(title, start=False, total=batches if step == TRAINING else 1)
            for step, title in STEPS.items()
        }
        while True:
            ended = process.poll() is not None
            _show_steps(progress, bars, log.read_text(errors="replace"))
            if ended:
                return
            _show_batches(progress, bars[TRAINING], service_name)
            with suppress(subprocess.TimeoutExpired):
                process.wait(LOOK_INTERVAL_S)


def _show_steps(progress: Progress, bars: Mapping[str, TaskID], log: str) -> None:
    text = _COLOUR.sub("", log)
    for step in _STARTED.findall(text):
        if step in bars and not progress.tasks[bars[step]].started:
            progress.start_task(bars[step])
    for step in _SUCCEEDED.findall(text):
        if step in bars:
            progress.update(bars[step], completed=progress.tasks[bars[step]].total)


def _show_batches(progress: Progress, bar: TaskID, service: str) -> None:
    # Before the service stands and after its end there is nothing to ask.
    with suppress(CachewError):
        epochs = [epoch for job in status(service, timeout_s=1.0).jobs for epoch in job.epochs]
        progress.update(bar, completed=sum(epoch.elements for epoch in epochs))


def failure_in(log: str) -> tuple[str, str]:
    """What failed first, and the end of what was written until then.

    Returns:
        The step's name, or "pipeline" where no step is known to have failed; and its last lines.
    """
    text = _COLOUR.sub("", log)
    failure = _FAILED.search(text)
    until_then = text[: failure.start()] if failure else text
    lines = [line for line in until_then.splitlines() if line.strip()]
    name = failure[1] if failure else "pipeline"
    return name, "\n".join(lines[-FAILED_LINES:])
