"""Starting the processes of a local service, up to the moment that it can be used."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from cachew_core.cluster import control, locks, processes, runs
from cachew_core.errors import ServiceError, ServiceUnavailableError, SettingsError
from cachew_core.gcs import is_bucket
from cachew_core.proto import cachew_pb2
from cachew_core.service_record import ServiceRecord, service_folder, write_record
from cachew_core.settings import AgentSettings, DispatcherSettings, LocalSettings, config_path

CACHEW_COMMAND = (sys.executable, "-m", "cachew_core.cli")

_ABORT_GRACE_S = 1.0
"""A service that never was ready has nothing to finish."""

_CALL_S = 2.0
_LOG_TAIL_LINES = 15

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to start."""

    dispatcher: DispatcherSettings
    workers: int
    ready_timeout_s: float
    command: Sequence[str]
    """What runs the commands `dispatcher` and `worker`."""

    @property
    def name(self) -> str:
        """The service's name."""
        return self.dispatcher.name


def start(plan: Plan) -> ServiceRecord:
    """Starts a service whose lock the caller holds, and waits until all its workers are there.

    Raises:
        ServiceError: it did not start, in time or at all, or was taken down; nothing of it is left
            but its logs.
    """
    try:
        with _reserved(plan.dispatcher) as port:
            record = _Start(plan, port).run()
        write_record(record)
        return record
    # An interrupted command must not leave a half service behind either.
    except BaseException:
        runs.clear(plan.name, grace_s=_ABORT_GRACE_S)
        raise


@contextmanager
def _reserved(settings: DispatcherSettings) -> Iterator[int]:
    """Keeps a port until the dispatcher listens on it, so that workers can be told at once.

    The socket never listens, and lets only those in that name its number; Linux gives it to nobody
    who asks for a free one.
    """
    host, port = settings.host.strip("[]"), settings.port
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        holder = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise _no_port(settings, error) from error
    with holder:
        try:
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            holder.bind(address)
        except OSError as error:
            raise _no_port(settings, error) from error
        yield holder.getsockname()[1]


def _no_port(settings: DispatcherSettings, error: OSError) -> ServiceError:
    return ServiceError(
        f"service {settings.name!r} can't listen on {settings.host}:{settings.port}: {error}; "
        "take another address or port (port 0 is a free one)"
    )


class _Start:
    """One start: a deadline, and the processes that must not die before it is done."""

    def __init__(self, plan: Plan, port: int) -> None:
        host = plan.dispatcher.host.strip("[]")
        self._plan = plan
        self._host = host
        self._address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._folder = service_folder(plan.name)
        self._deadline = time.monotonic() + plan.ready_timeout_s
        self._started: dict[str, tuple[int, float]] = {}

    def run(self) -> ServiceRecord:
        environment = self._environment() | runs.begin(self._plan.name)
        # Both at once: each imports TensorFlow for seconds.
        self._launch("dispatcher", self._dispatcher_flags(), environment)
        self._launch("worker", self._worker_flags(), environment)
        endpoint = self._wait_for(
            "its dispatcher did not listen", "dispatcher", self._read_endpoint
        )
        status = self._wait_for(
            f"not all of its {self._plan.workers} workers came",
            "worker",
            lambda: self._complete(endpoint),
        )
        machine, settings = processes.this_machine(), self._plan.dispatcher
        dispatcher, agent = self._started["dispatcher"], self._started["worker"]
        return ServiceRecord(
            name=self._plan.name,
            endpoint=endpoint,
            workers=self._plan.workers,
            dispatcher_pid=dispatcher[0],
            agent_pid=agent[0],
            dispatcher_started=dispatcher[1],
            agent_started=agent[1],
            store=self._plan.dispatcher.store or "",
            cache_dir=place_of(settings.cache_dir) if settings.cache_dir else "",
            cache_policy=self._plan.dispatcher.cache_policy,
            scaling_policy=self._plan.dispatcher.scaling_policy,
            page=status.page,
            machine=machine.name,
            boot_id=machine.boot_id,
        )

    def _environment(self) -> dict[str, str]:
        # The processes have a working directory of their own, so relative paths must not depend on
        # it.
        return os.environ | {
            "CACHEW_HOME": str(LocalSettings.load().home),
            "CACHEW_CONFIG": str(config_path().absolute()),
        }

    @property
    def _endpoint_file(self) -> Path:
        return self._folder / "run" / "endpoint"

    def _dispatcher_flags(self) -> list[str]:
        settings = self._plan.dispatcher
        weights = settings.tenant_weights
        flags = {
            "name": settings.name,
            "host": self._address.rpartition(":")[0],
            "port": self._address.rpartition(":")[2],
            "page-port": settings.page_port,
            "idle-timeout": settings.idle_timeout_s,
            "first-client-timeout": settings.first_client_timeout_s,
            "work-dir": self._folder / "run" / "work",
            "endpoint-file": self._endpoint_file,
            "events-file": runs.log_file(self._plan.name, "events").with_suffix(".jsonl"),
            "cache-policy": settings.cache_policy,
            "cache-dir": settings.cache_dir and place_of(settings.cache_dir),
            "cache-stage-dir": settings.cache_stage_dir and settings.cache_stage_dir.absolute(),
            "cache-capacity": settings.cache_capacity_bytes,
            "cache-objective": settings.cache_objective,
            "cache-cost-model": settings.cache_cost_model,
            "price-trainer-hour": settings.price_trainer_hour,
            "price-worker-hour": settings.price_worker_hour,
            "price-gb-month": settings.price_gb_month,
            "profile-budget": settings.profile_budget_s,
            "scaling-policy": settings.scaling_policy,
            "scaling-objective": settings.scaling_objective,
            "scaling-tolerance": settings.scaling_tolerance,
            "scaling-cost-tolerance": settings.scaling_cost_tolerance,
            "climb-threshold": settings.climb_threshold,
            "climb-batches": settings.climb_batches,
            "climb-pause-batches": settings.climb_pause_batches,
            "climb-skip-batches": settings.climb_skip_batches,
            "climb-recheck-reports": settings.climb_recheck_reports,
            "climb-slow-growth": settings.climb_slow_growth,
            "climb-idle-growth": settings.climb_idle_growth,
            "climb-outlier": settings.climb_outlier,
            "climb-history": settings.climb_history,
            "min-workers": settings.min_workers,
            "max-workers": settings.max_workers,
            "standby": settings.standby,
            "shrink-after": settings.shrink_after_s,
            "tenant-weights": ",".join(f"{name}={w}" for name, w in weights.items()) or None,
            "store": settings.store,
            "store-url": settings.store_url,
        }
        given = {flag: value for flag, value in flags.items() if value is not None}
        needs_mount = ["--cache-needs-mount"] if settings.cache_needs_mount else []
        return [f"--{flag}={value}" for flag, value in given.items()] + needs_mount

    def _worker_flags(self) -> list[str]:
        patience_s = AgentSettings.load().dispatcher_deadline_s
        return [
            f"--dispatcher=grpc://{self._address}",
            f"--slots={self._plan.workers}",
            f"--host={self._host}",
            # It comes before its dispatcher, and gives up no sooner than we do.
            f"--dispatcher-deadline={max(self._plan.ready_timeout_s, patience_s)}",
        ]

    def _launch(self, part: str, flags: list[str], environment: dict[str, str]) -> None:
        pid = processes.launch(
            [*self._plan.command, part, *flags],
            environment=environment,
            folder=self._folder,
            log=runs.log_file(self._plan.name, part),
        )
        self._started[part] = (pid, processes.start_time(pid) or time.time())

    def _read_endpoint(self) -> str | None:
        try:
            return self._endpoint_file.read_text().strip() or None
        except FileNotFoundError:
            return None

    def _complete(self, endpoint: str) -> cachew_pb2.ServiceStatus | None:
        """Its status, once all of its workers are there."""
        try:
            status = control.fetch_status(endpoint, timeout_s=_CALL_S)
        except ServiceUnavailableError:
            return None
        least = self._plan.dispatcher.min_workers
        needed = self._plan.workers if least is None else min(least, self._plan.workers)
        return status if len(status.workers) >= needed else None

    def _wait_for(self, otherwise: str, slow: str, look: Callable[[], T | None]) -> T:
        while (found := look()) is None:
            if locks.is_stop_requested(self._folder):
                raise ServiceError(f"service {self._plan.name!r} was taken down while it started")
            for part, (pid, started) in self._started.items():
                if not processes.is_alive(pid, started):
                    raise self._failed(f"its {part} process ended", part)
            if time.monotonic() >= self._deadline:
                raise self._failed(f"{otherwise} within {self._plan.ready_timeout_s:g} s", slow)
            time.sleep(processes.POLL_S)
        return found

    def _failed(self, what: str, part: str) -> ServiceError:
        path = runs.log_file(self._plan.name, part)
        tail = path.read_text(errors="replace").splitlines()[-_LOG_TAIL_LINES:]
        return ServiceError(
            "\n  ".join(
                [f"service {self._plan.name!r} did not start: {what}; {path} ends with:", *tail]
            )
        )


def place_of(cache_dir: str | Path) -> str:
    """A cache's place as it is told to processes that have another working directory."""
    return str(cache_dir) if is_bucket(str(cache_dir)) else os.path.abspath(cache_dir)


def check_host(host: str) -> None:
    """Refuses an address at which nobody can be reached.

    Raises:
        SettingsError: it means "every address of this machine".
    """
    if host in ("0.0.0.0", "::", "[::]", ""):
        raise SettingsError(
            f"host={host!r} is no address that trainers could be told: take this machine's name or "
            "one of its addresses"
        )


def check_workers(workers: int | None) -> None:
    """Refuses a count of workers that can't be started.

    Raises:
        SettingsError: it is no count from 1 to 1024.
    """
    if workers is not None and not 1 <= workers <= 1024:
        raise SettingsError(f"workers={workers} can't be started: take 1 to 1024")
