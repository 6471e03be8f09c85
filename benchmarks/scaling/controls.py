"""The autoscalers that ours is compared with, at work on a real job."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import psutil

from benchmarks.scaling.hpa import Hpa, HpaSettings
from benchmarks.scaling.trial import Control, job_of
from cachew_core import cluster

TIME_SCALE = 1 / 30
"""Epochs here take half a minute where the paper's took a quarter of an hour."""

SETTINGS = HpaSettings().scaled(TIME_SCALE)

CPU_TARGET = 0.8
CPU_REQUEST_CORES = 7 / 8
"""Of a worker: the paper's pods asked for 7 of their machines' 8 cores, ours have one each."""

WAIT_TARGET = 0.2
"""Share of the trainer's time; a guess, no other was tried."""


def hpa_on_cpu(most: int) -> Control:
    """Steers to a share of what the workers asked for in cores."""

    def control(service: str, job_name: str, over: threading.Event) -> None:
        _steer(service, job_name, over, Hpa(target=CPU_TARGET, least=1, most=most), _CpuUse())

    return control


def hpa_on_wait(most: int) -> Control:
    """Steers to a share of time for which the trainer waits, as the service exports it."""

    def control(service: str, job_name: str, over: threading.Event) -> None:
        _steer(service, job_name, over, Hpa(target=WAIT_TARGET, least=1, most=most), _WaitShare())

    return control


Metric = Callable[[str, str], float | None]
"""Its mean since it was asked last, of the service's job; None: not known yet."""


def _steer(service: str, job_name: str, over: threading.Event, hpa: Hpa, metric: Metric) -> None:
    hpa.settings = SETTINGS
    workers = hpa.least
    while not over.wait(SETTINGS.sync_s):
        value = metric(service, job_name)
        if value is None:
            continue
        wanted = hpa.sync(time.monotonic(), workers, value)
        if wanted != workers:
            workers = wanted
            cluster.scale(service, job_name, workers)


class _CpuUse:
    """Cores that a job's workers use, as a share of what they asked for."""

    def __init__(self) -> None:
        self._seen: dict[int, float] = {}
        self._at = 0.0

    def __call__(self, service: str, job_name: str) -> float | None:
        pids = [w.pid for w in cluster.status(service).workers if w.job == job_name and w.pid]
        now, used = time.monotonic(), {pid: _cpu_s(pid) for pid in pids}
        seconds = now - self._at
        # A worker that was not there before has no rate yet.
        shares = [
            (used[pid] - self._seen[pid]) / seconds / CPU_REQUEST_CORES
            for pid in pids
            if pid in self._seen
        ]
        self._seen, self._at = used, now
        return sum(shares) / len(shares) if shares else None


def _cpu_s(pid: int) -> float:
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system)


class _WaitShare:
    """Share of the time since the last look for which a job's trainer waited."""

    def __init__(self) -> None:
        self._wait_s = self._spent_s = 0.0

    def __call__(self, service: str, job_name: str) -> float | None:
        epochs = job_of(service, job_name).epochs
        if not epochs:
            return None
        wait_s, spent_s = epochs[-1].wait_s, epochs[-1].wait_s + epochs[-1].step_s
        waited, spent = wait_s - self._wait_s, spent_s - self._spent_s
        self._wait_s, self._spent_s = wait_s, spent_s
        return waited / spent if spent > 0 else None
