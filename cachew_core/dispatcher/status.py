"""What `cachew status` shows, read off the dispatcher's state."""

from __future__ import annotations

from collections.abc import Callable

from cachew_core.dispatcher.jobs import Epoch, EpochState, Job
from cachew_core.dispatcher.pool import Slot
from cachew_core.dispatcher.scheduler import Scheduler
from cachew_core.proto import cachew_pb2
from cachew_core.rpc import own_versions

MODE = "COMPUTE"


def service_status(
    scheduler: Scheduler, *, name: str, endpoint: str, state: str, clock: Callable[[], float]
) -> cachew_pb2.ServiceStatus:
    """The whole service as one message."""
    now = clock()
    targets = scheduler.shares()
    return cachew_pb2.ServiceStatus(
        name=name,
        endpoint=endpoint,
        state=state,
        workers=[_worker(slot) for slot in scheduler.pool.slots()],
        jobs=[_job(job, targets.get(job.id, 0), now) for job in scheduler.book.jobs.values()],
        versions=own_versions(),
    )


def _worker(slot: Slot) -> cachew_pb2.WorkerStatus:
    assignment = slot.assignment
    if assignment is None:
        return cachew_pb2.WorkerStatus(
            id=slot.id, state="leaving" if slot.agent.leaving else "idle"
        )
    return cachew_pb2.WorkerStatus(
        id=slot.id,
        address=assignment.address,
        pid=assignment.pid,
        state=str(assignment.state),
        job=assignment.generation.job.name,
    )


def _job(job: Job, target: int, now: float) -> cachew_pb2.JobStatus:
    measured = next((epoch for epoch in reversed(job.epochs) if epoch.totals().elements > 1), None)
    return cachew_pb2.JobStatus(
        job_name=job.name,
        fingerprint=job.request.fingerprint,
        mode=MODE,
        workers=sum(len(generation.serving()) for generation in job.generations),
        target_workers=target,
        batch_time_ms=_batch_time_ms(measured),
        wait_fraction=_wait_fraction(measured),
        epochs=[_epoch(epoch, now) for epoch in job.epochs],
        state=_state(job),
        clients=len(job.clients),
        processing_mode=cachew_pb2.ProcessingMode.Name(job.request.processing_mode).lower(),
        notices=job.notices,
    )


def _state(job: Job) -> str:
    live = job.live_epochs()
    if any(epoch.state is EpochState.OPEN for epoch in live):
        return "running"
    if live:
        return "queued"
    return "ended" if job.ended else "idle"


def _epoch(epoch: Epoch, now: float) -> cachew_pb2.EpochStatus:
    return cachew_pb2.EpochStatus(
        epoch=epoch.number,
        mode=MODE,
        elements=epoch.totals().elements,
        seconds=epoch.seconds(now),
        workers=epoch.workers,
        state=str(epoch.state),
        batch_time_ms=_batch_time_ms(epoch),
        wait_fraction=_wait_fraction(epoch),
    )


def _batch_time_ms(epoch: Epoch | None) -> float:
    """From one element's arrival to the next one's, over all readers of the epoch."""
    if epoch is None:
        return 0.0
    totals = epoch.totals()
    return 1000 * totals.span_s / (totals.elements - 1) if totals.elements > 1 else 0.0


def _wait_fraction(epoch: Epoch | None) -> float:
    """The share of the trainers' time in which they waited for the service, 0 to 1."""
    if epoch is None:
        return 0.0
    totals = epoch.totals()
    spent = totals.wait_s + totals.step_s
    return totals.wait_s / spent if spent > 0 else 0.0
