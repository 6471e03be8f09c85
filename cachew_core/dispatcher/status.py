"""What `cachew status` shows, read off the dispatcher's state."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from cachew_core.dispatcher.autoscaling import Autoscaler
from cachew_core.dispatcher.choosing import Chooser
from cachew_core.dispatcher.jobs import Epoch, EpochState, Job
from cachew_core.dispatcher.pool import Slot
from cachew_core.dispatcher.scheduler import Scheduler
from cachew_core.policy.bottleneck import Bottleneck, bottleneck
from cachew_core.policy.modes import Mode
from cachew_core.proto import cachew_pb2
from cachew_core.rpc import own_versions


def service_status(
    scheduler: Scheduler,
    chooser: Chooser,
    *,
    stored: Iterable[cachew_pb2.StoredEntry],
    name: str,
    endpoint: str,
    page: str,
    state: str,
    clock: Callable[[], float],
) -> cachew_pb2.ServiceStatus:
    """The whole service as one message."""
    now = clock()
    targets = scheduler.shares()
    return cachew_pb2.ServiceStatus(
        name=name,
        endpoint=endpoint,
        page=page,
        state=state,
        notices=scheduler.notices(),
        workers=[_worker(slot) for slot in scheduler.pool.slots()],
        jobs=[
            _job(job, chooser, scheduler.autoscaler, targets.get(job.id, 0), now)
            for job in scheduler.book.jobs.values()
        ],
        versions=own_versions(),
        stored=stored,
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


def _job(
    job: Job, chooser: Chooser, autoscaler: Autoscaler, target: int, now: float
) -> cachew_pb2.JobStatus:
    measured = next((epoch for epoch in reversed(job.epochs) if epoch.totals().elements > 1), None)
    serving = sum(len(generation.serving()) for generation in job.generations)
    return cachew_pb2.JobStatus(
        job_name=job.name,
        fingerprint=job.request.fingerprint,
        mode=job.epochs[-1].mode if job.epochs else Mode.COMPUTE,
        workers=serving,
        target_workers=target,
        batch_time_ms=_batch_time_ms(measured),
        wait_fraction=_wait_fraction(measured),
        epochs=[_epoch(epoch, now) for epoch in job.epochs],
        state=_state(job),
        clients=len(job.clients),
        processing_mode=cachew_pb2.ProcessingMode.Name(job.request.processing_mode).lower(),
        notices=job.notices,
        cache_policy=chooser.policy(job),
        decisions=chooser.decisions(job),
        scaling_policy=autoscaler.policy(job),
        wanted_workers=autoscaler.want(job) or 0,
        scaling=autoscaler.decisions(job),
        tenant=job.request.tenant,
        bottleneck=_bottleneck(job, measured, autoscaler, serving),
    )


def _bottleneck(job: Job, measured: Epoch | None, autoscaler: Autoscaler, serving: int) -> str:
    if measured is None:
        return Bottleneck.UNKNOWN
    return bottleneck(
        wait_share=_wait_fraction(measured),
        client_cpu_share=max((client.cpu_share for client in job.clients.values()), default=0.0),
        # A finished epoch's workers may be others' now.
        workers=serving if measured.live else measured.workers,
        wanted=autoscaler.wish(job),
        settled=autoscaler.settled(job),
    )


def _state(job: Job) -> str:
    live = job.live_epochs()
    if any(epoch.state is EpochState.OPEN for epoch in live):
        return "running"
    if live:
        return "queued"
    return "ended" if job.ended else "idle"


def _epoch(epoch: Epoch, now: float) -> cachew_pb2.EpochStatus:
    totals = epoch.totals()
    return cachew_pb2.EpochStatus(
        epoch=epoch.number,
        mode=epoch.mode,
        elements=totals.elements,
        seconds=epoch.seconds(now),
        workers=epoch.workers,
        state=str(epoch.state),
        ignored_errors=epoch.swallowed.errors,
        batch_time_ms=_batch_time_ms(epoch),
        wait_fraction=_wait_fraction(epoch),
        direct=epoch.direct,
        worker_seconds=epoch.worker_seconds(now),
        wait_s=totals.wait_s,
        step_s=totals.step_s,
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
