"""What `cachew status` and `cachew list` show on a terminal."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
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
    head = Text(
        f"{document['name']}  {document['endpoint']}  {document['state']}  {document['page']}"
    )
    workers = _table(
        "workers",
        ["id", "state", "job", "address", "pid"],
        [
            [row["id"], row["state"], row["job"] or "-", row["address"] or "-", row["pid"] or "-"]
            for row in document["workers"]
        ],
    )
    notices = [Text(notice, style="yellow") for notice in document["notices"]]
    jobs = [_job_view(job) for job in document["jobs"]]
    stored = [_stored_view(document["stored"])] if document["stored"] else []
    return Group(head, *notices, workers, *jobs, *stored)


def _stored_view(entries: Sequence[dict[str, Any]]) -> Table:
    rows = [
        [
            entry["job"],
            entry["point"],
            entry["elements"],
            f"{entry['bytes'] / 1e6:,.1f}",
            f"{datetime.fromtimestamp(entry['last_used_at']):%Y-%m-%d %H:%M:%S}",
            entry["key"][:12],
        ]
        for entry in sorted(entries, key=lambda entry: -entry["last_used_at"])
    ]
    columns = ["job that wrote it", "at", "elements", "MB", "last used", "key"]
    return _table("stored", columns, rows)


def _job_view(job: dict[str, Any]) -> RenderableType:
    state = job["state"] or job["mode"]
    title = f"job {job['job_name']}: {state}, {job['workers']} of {job['target_workers']} workers"
    if job["wanted_workers"] > job["target_workers"]:
        title += f" ({job['wanted_workers']} wanted)"
    if job["bottleneck"]:
        title += f", limited by {job['bottleneck']}"
    reasons = [each[-1]["reason"] for each in (job["decisions"], job["scaling"]) if each]
    epochs = _table(
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
    return Group(epochs, *(Text(f"  {reason}") for reason in reasons))


def _target(job: dict[str, Any]) -> str:
    return str(job["wanted_workers"] or "all")


def _epoch_row(epoch: dict[str, Any]) -> list[Any]:
    return [
        epoch["epoch"],
        f"{epoch['mode']} direct" if epoch["direct"] else epoch["mode"],
        epoch["state"],
        epoch["elements"],
        f"{epoch['seconds']:.2f}",
        epoch["workers"],
        f"{epoch['batch_time_ms']:.2f}",
        f"{100 * epoch['wait_fraction']:.0f}",
        epoch["repeated"],
        epoch["skipped"],
    ]


def caches_view(entries: Sequence[dict[str, Any]]) -> RenderableType:
    """A row for each entry of a store."""
    if not entries:
        return Text("nothing is stored")
    rows = [
        [
            entry["key"][:12],
            entry["facts"].get("point", "-"),
            entry["facts"].get("job", "-"),
            entry["elements"],
            f"{entry['bytes'] / 1e6:,.1f}",
            entry["files"],
            entry["created_at"],
        ]
        for entry in entries
    ]
    return _table("", ["key", "point", "job", "elements", "MB", "files", "created"], rows)


def explanation_view(job: dict[str, Any]) -> RenderableType:
    """What was decided about a job's caching, with the reasons and the numbers.

    Args:
        job: from `status_document`.
    """
    parts: list[RenderableType] = [
        Text(f"job {job['job_name']}: cache policy {job['cache_policy']}, mode {job['mode']}")
    ]
    for decision in job["decisions"]:
        parts.append(Text(f"from epoch {decision['epoch']} on: {decision['reason']}"))
        if decision["figures"]:
            parts.append(_candidates_table(json.loads(decision["figures"])))
    if not job["decisions"]:
        parts.append(Text("nothing was decided yet"))
    parts.append(Text(f"scaling policy {job['scaling_policy']}, {_target(job)} workers wanted"))
    parts += [
        Text(f"in epoch {decision['epoch']}, {decision['mode']}: {decision['reason']}")
        for decision in job["scaling"]
    ]
    parts += [Text(f"note: {notice}") for notice in job["notices"]]
    return Group(*parts)


def _candidates_table(candidates: Sequence[dict[str, Any]]) -> Table:
    rows = []
    for candidate in candidates:
        figures = candidate["figures"]
        numbers = ["-"] * 3
        if figures:
            numbers = [
                str(figures["workers"]),
                f"{1e3 * figures['batch_s']:.2f}",
                f"{1e3 * figures['worker_s']:.2f}",
            ]
        rows.append(
            [candidate["mode"], candidate["point"] or "-", *numbers, candidate["left_out"] or "-"]
        )
    columns = ["mode", "point", "workers", "batch ms", "worker ms", "left out because"]
    return _table("", columns, rows)


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Table:
    table = Table(*columns, title=title or None, title_justify="left")
    for row in rows:
        table.add_row(*(Text(str(cell)) for cell in row))
    return table
