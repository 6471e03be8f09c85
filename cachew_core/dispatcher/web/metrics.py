"""The service's state as Prometheus metrics, read off it when somebody asks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from cachew_core.proto import cachew_pb2


def render(status: cachew_pb2.ServiceStatus) -> bytes:
    """The metrics of a service, as Prometheus reads them."""
    registry = CollectorRegistry()
    registry.register(_Collector(status))
    return generate_latest(registry)


# Registries keep their collectors in a dict.
@dataclass(eq=False, slots=True)
class _Collector:
    status: cachew_pb2.ServiceStatus

    def collect(self) -> Iterator[Metric]:
        workers = GaugeMetricFamily("cachew_workers", "Workers by state.", labels=["state"])
        states = [worker.state for worker in self.status.workers]
        for state in ("idle", "starting", "serving", "draining", "leaving"):
            workers.add_metric([state], states.count(state))
        yield workers
        yield GaugeMetricFamily(
            "cachew_stored_bytes", "In the cache.", sum(entry.bytes for entry in self.status.stored)
        )
        yield GaugeMetricFamily("cachew_stored_entries", "In the cache.", len(self.status.stored))
        # The name of an ended job may be another one's by now.
        jobs = {job.job_name: job for job in self.status.jobs if job.state != "ended"}
        yield from _job_gauges(jobs)
        yield from _job_counters(jobs)


def _job_gauges(jobs: dict[str, cachew_pb2.JobStatus]) -> Iterator[Metric]:
    gauges = {
        "workers": "Workers that serve a job.",
        "target_workers": "Workers that a job should have now.",
        "wanted_workers": "Workers that a job's policy wants, whatever there is; 0 is all.",
        "clients": "Trainers of a job.",
        "wait_fraction": "Share of the trainers' time for which they waited, in the last epoch.",
        "batch_time_ms": "From batch to batch in the last epoch, in milliseconds.",
    }
    for name, text in gauges.items():
        gauge = GaugeMetricFamily(f"cachew_job_{name}", text, labels=["job"])
        for job_name, job in jobs.items():
            gauge.add_metric([job_name], getattr(job, name))
        yield gauge


def _job_counters(jobs: dict[str, cachew_pb2.JobStatus]) -> Iterator[Metric]:
    counters = {
        "elements": ("elements", "Elements that trainers got."),
        "wait_seconds": ("wait_s", "Seconds for which trainers waited for data."),
        "step_seconds": ("step_s", "Seconds for which trainers did something else."),
        "worker_seconds": ("worker_seconds", "Seconds for which workers were held."),
        "repeated_splits": ("repeated", "Splits that were handed out a second time."),
        "skipped_splits": ("skipped", "Splits that were lost."),
    }
    for name, (field, text) in counters.items():
        counter = CounterMetricFamily(f"cachew_job_{name}", text, labels=["job"])
        for job_name, job in jobs.items():
            counter.add_metric([job_name], sum(getattr(epoch, field) for epoch in job.epochs))
        yield counter
    epochs = CounterMetricFamily(
        "cachew_job_epochs", "Epochs by mode and state.", labels=["job", "mode", "state"]
    )
    for job_name, job in jobs.items():
        kinds = [(epoch.mode, epoch.state) for epoch in job.epochs]
        for mode, state in sorted(set(kinds)):
            epochs.add_metric([job_name, mode, state], kinds.count((mode, state)))
    yield epochs
    decisions = CounterMetricFamily(
        "cachew_job_scaling_decisions", "Numbers of workers decided.", labels=["job"]
    )
    for job_name, job in jobs.items():
        decisions.add_metric([job_name], len(job.scaling))
    yield decisions
