"""What holds a training up: so that nobody adds workers where these are not the limit."""

from __future__ import annotations

from enum import StrEnum

WAITS_OVER = 0.05
"""A trainer that waits for a smaller part of its time gets what it can use."""

CLIENT_BUSY_OVER = 0.8
"""A trainer's process that uses more of its cores receives no faster."""


class Bottleneck(StrEnum):
    """Where a training loses time."""

    UNKNOWN = ""
    """Nothing was measured yet."""
    TRAINER = "trainer"
    """Its own steps: batches are there when it asks."""
    CLIENT = "client"
    """The processor of the trainer's machine, which receives the batches, too."""
    WORKERS = "workers"
    """More of them would help: pool or job allow no more, or the search goes on."""
    SHARED = "network or source"
    """What all workers have in common, as more of them gave no more."""


def bottleneck(
    *,
    wait_share: float | None,
    client_cpu_share: float,
    workers: int,
    wanted: int | None,
    settled: bool,
) -> Bottleneck:
    """What holds a training up now.

    Args:
        wait_share: of the trainers' time, 0 to 1; None: there is none yet.
        client_cpu_share: of the cores that the busiest trainer's process may use, 0 to 1.
        workers: that serve it.
        wanted: by its policy, without the job's own limit; None: all.
        settled: the policy has come to rest: it has seen that more give no more.
    """
    if wait_share is None:
        return Bottleneck.UNKNOWN
    if wait_share <= WAITS_OVER:
        return Bottleneck.TRAINER
    if wanted is not None and workers < wanted:
        return Bottleneck.WORKERS
    if client_cpu_share > CLIENT_BUSY_OVER:
        return Bottleneck.CLIENT
    return Bottleneck.SHARED if settled and wanted is not None else Bottleneck.WORKERS
