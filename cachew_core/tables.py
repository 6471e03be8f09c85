"""What `cachew status` and `cachew list` show on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from cachew_core.cluster import LocalService


def services_view(services: Sequence[LocalService]) -> RenderableType:
    """A row for each local service."""
    if not services:
        return Text("no services on this machine")
    rows = [
        [service.name, service.endpoint, service.state, service.workers] for service in services
    ]
    return _table("", ["name", "endpoint", "state", "workers"], rows)


def status_view(document: dict[str, Any]) -> RenderableType:
    """A service's workers and jobs, and each job's epochs.

    Args:
        document: as `status_document` makes it.
    """
    head = Text(f"{document['name']}  {document['endpoint']}  {document['state']}")
    workers = _table(
        "workers",
        ["id", "state", "job", "address", "pid"],
        [
            [row["id"], row["state"], row["job"] or "-", row["address"] or "-", row["pid"] or "-"]
            for row in document["workers"]
        ],
    )
    return Group(head, workers, *(_job_view(job) for job in document["jobs"]))


def _job_view(job: dict[str, Any]) -> RenderableType:
    state = job["state"] or job["mode"]
    title = f"job {job['job_name']}: {state}, {job['workers']} of {job['target_workers']} workers"
    return _table(
        title,
        [
            "epoch",
            "mode",
            "state",
            "elements",
            "seconds",
            "workers",
            "batch ms",
            "wait %",
            "repeated",
            "skipped",
        ],
        [_epoch_row(epoch) for epoch in job["epochs"]],
    )


def _epoch_row(epoch: dict[str, Any]) -> list[Any]:
    return [
        epoch["epoch"],
        epoch["mode"],
        epoch["state"],
        epoch["elements"],
        f"{epoch['seconds']:.2f}",
        epoch["workers"],
        f"{epoch['batch_time_ms']:.2f}",
        f"{100 * epoch['wait_fraction']:.0f}",
        epoch["repeated"],
        epoch["skipped"],
    ]


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Table:
    table = Table(*columns, title=title or None, title_justify="left")
    for row in rows:
        table.add_row(*(Text(str(cell)) for cell in row))
    return table
