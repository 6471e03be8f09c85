"""Services made of processes on this machine: started, found, and ended by name.

A service is one dispatcher and one agent whose slots are its workers. Every command that changes it
holds the lock of its name, so commands may come at the same time, be interrupted, or be killed, and
the next one starts from a clear state.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cachew_core import rpc
from cachew_core.cluster import control, locks, processes, runs, starting, stores
from cachew_core.errors import (
    CachewError,
    ServiceError,
    ServiceUnavailableError,
    SettingsError,
)
from cachew_core.gcs import is_bucket
from cachew_core.policy.autoscale import parse_scaling_policy
from cachew_core.policy.modes import parse_policy
from cachew_core.proto import cachew_pb2
from cachew_core.service_record import ServiceRecord, service_folder, store_folder
from cachew_core.settings import DispatcherSettings, LocalSettings

_log = logging.getLogger(__name__)

State = Literal["starting", "running", "stopped"]

DEFAULT_WORKERS = 2

READY_TIMEOUT_S = 180.0
"""Importing TensorFlow takes 6 s, on a busy machine half a minute; a crash is found at once."""

_REASON = "cachew down"
_CALL_S = 5.0
_DRAIN_POLL_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalService:
    """A service on this machine, as `list_services` finds it."""

    name: str
    endpoint: str
    """Empty while it starts."""
    state: State
    """`stopped`: its dispatcher was killed, or the machine rebooted, and nobody has tidied up."""
    workers: int


def up(
    name: str,
    *,
    workers: int | None = None,
    host: str | None = None,
    port: int | None = None,
    page_port: int | None = None,
    idle_timeout_s: float | None = None,
    first_client_timeout_s: float | None = None,
    cache_policy: str | None = None,
    cache_dir: Path | str | None = None,
    cache_capacity_bytes: int | None = None,
    cache_needs_mount: bool | None = None,
    scaling_policy: str | None = None,
    min_workers: int | None = None,
    max_workers: int | None = None,
    standby: int | None = None,
    store: str | None = None,
    usual_store: str | None = None,
    ready_timeout_s: float = READY_TIMEOUT_S,
    command: Sequence[str] = starting.CACHEW_COMMAND,
) -> ServiceRecord:
    """Starts a service, or adopts the running one of that name.

    What was left of an earlier service of that name, whose dispatcher was killed, is taken away
    first.

    Args:
        name: 1 to 63 letters, digits, `.`, `_` or `-`.
        workers: how many, always. None: 2 in a new service, any number in a running one.
        host: the address that the dispatcher listens on, and at which trainers reach it and the
            workers. None: the settings'.
        port: the dispatcher's port. None: the settings', where 0 means a free one.
        page_port: the port of its page and metrics; -1: none. None: the settings', where 0 means a
            free one.
        idle_timeout_s: the service ends itself after so many seconds without a client. None: the
            settings'.
        first_client_timeout_s: the same, before the first client came. None: the settings'.
        cache_policy: what is stored of pipelines whose `distribute` does not say. None: the
            settings'.
        cache_dir: the folder of the cache, or `gs://bucket/prefix`. None: the settings', or one
            below `CACHEW_HOME` that belongs to the store.
        cache_capacity_bytes: what is stored takes no more. None: the settings'.
        cache_needs_mount: refuse a `cache_dir` that is no mounted volume. None: the settings'.
        scaling_policy: what decides how many workers a job gets whose `distribute` does not say.
            None: the settings'.
        min_workers: so many are there whether jobs want them or not. None: the settings', or 1.
        max_workers: there are more when jobs want them, up to so many; instead of `workers`. None:
            the settings', or always `workers`.
        standby: so many more are there than jobs want, within the limits. None: the settings'.
        store: what outlives the service has this name, and the next service that is given it goes
            on from there. None: the usual store, or the settings', or the service's name.
        usual_store: the store where none is named, unless another service here has that one now.
        ready_timeout_s: how long the start may take, and how long to wait for another command on
            that name.
        command: what runs the commands `dispatcher` and `worker`.

    Returns:
        The record; the service answers at its `endpoint` and has all its workers.

    Raises:
        SettingsError: an argument or setting can't be used; nothing was started.
        ServiceError: it could not be started, or a running one of that name can't be adopted. The
            text says why. Nothing is left of a failed start but its logs, and a running service
            stays as it was.
    """
    starting.check_workers(workers)
    settings = DispatcherSettings.load(
        name=name,
        host=host,
        port=port,
        page_port=page_port,
        idle_timeout_s=idle_timeout_s,
        first_client_timeout_s=first_client_timeout_s,
        cache_policy=cache_policy,
        cache_dir=cache_dir,
        cache_capacity_bytes=cache_capacity_bytes,
        cache_needs_mount=cache_needs_mount,
        scaling_policy=scaling_policy,
        min_workers=min_workers,
        max_workers=max_workers,
        standby=standby,
        store=store,
    )
    starting.check_host(settings.host)
    workers, settings = _sized(workers, settings)
    asked: dict[str, str | None] = {
        "cache_policy": cache_policy and str(parse_policy(cache_policy)),
        "scaling_policy": scaling_policy and str(parse_scaling_policy(scaling_policy)),
        "cache_dir": starting.place_of(cache_dir) if cache_dir else None,
        "store": store,
    }
    folder = runs.folder_of(name)
    usual = usual_store if settings.store is None else None
    with (
        stores.reserved(usual, service=name) as free,
        locks.held(folder, timeout_s=ready_timeout_s),
    ):
        record = runs.record_of(name)
        if record is not None and runs.is_served(record):
            _check_adoptable(record, workers=workers, host=host, port=port)
            _check_same_policies(record, asked)
            return record
        settings = _with_store(settings, free)
        runs.clear(name, grace_s=1.0)
        runs.forget_old_logs()
        return starting.start(
            starting.Plan(
                dispatcher=settings,
                workers=DEFAULT_WORKERS if workers is None else workers,
                ready_timeout_s=ready_timeout_s,
                command=command,
            )
        )


def _sized(
    workers: int | None, settings: DispatcherSettings
) -> tuple[int | None, DispatcherSettings]:
    """How many workers there can be, None where nobody said, and the settings with the limits."""
    most = settings.max_workers
    if most is None:
        if settings.min_workers is not None:
            raise SettingsError(
                f"min_workers={settings.min_workers} needs max_workers: without it the number of "
                "workers is always the same"
            )
        return workers, settings
    if workers is not None:
        raise SettingsError(
            f"workers={workers} and max_workers={most} can't be given together: workers is a "
            "number that never changes"
        )
    starting.check_workers(most)
    least = 1 if settings.min_workers is None else settings.min_workers
    return most, settings.model_copy(update={"min_workers": least})


def _with_store(settings: DispatcherSettings, usual: str | None) -> DispatcherSettings:
    """The settings with places for what outlives the service, where they name none."""
    store = settings.store or usual or settings.name
    policy = str(parse_policy(settings.cache_policy))
    places: dict[str, object] = {
        "store": store,
        "cache_policy": policy,
        "scaling_policy": str(parse_scaling_policy(settings.scaling_policy)),
    }
    if settings.cache_dir is None:
        places["cache_dir"] = str(_own_cache(store))
    elif is_bucket(settings.cache_dir) and settings.cache_stage_dir is None:
        places["cache_stage_dir"] = store_folder(store) / "stage"
    if settings.store_url is None:
        places["store_url"] = f"sqlite:///{store_folder(store) / 'metadata.db'}"
    return settings.model_copy(update=places)


def _own_cache(store: str) -> Path:
    """The cache's folder of a store that has none elsewhere."""
    folder = store_folder(store) / "cache"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingsError(
            f"the cache of store {store!r} can't be kept at {folder}: {error}; set cache_dir, or "
            "CACHEW_HOME to a folder that can be written"
        ) from error
    return folder


def _check_same_policies(record: ServiceRecord, asked: Mapping[str, str | None]) -> None:
    """Refuses a running service with other policies, or another cache, than asked for."""
    for name, value in asked.items():
        running = getattr(record, name)
        if value and running and value != running:
            raise ServiceError(
                f"service {record.name!r} runs already with {name}={running!r}, not {value!r}: "
                f"take it down first (cachew down {record.name}) or take another name"
            )


def _check_adoptable(
    record: ServiceRecord, *, workers: int | None, host: str | None, port: int | None
) -> None:
    """Refuses a running service that is not the one asked for, or is not well."""
    runs.check_is_here(record)
    there = f"service {record.name!r} runs already at {record.endpoint}"
    then = f"take it down first (cachew down {record.name}) or take another name"
    running_host, _, running_port = rpc.address_of(record.endpoint).rpartition(":")
    running_host, host = running_host.strip("[]"), host and host.strip("[]")
    if workers not in (None, record.workers):
        raise ServiceError(f"{there} with {record.workers} workers, not {workers}: {then}")
    if host not in (None, running_host) or port not in (None, 0, int(running_port)):
        raise ServiceError(f"{there}, not at {host or running_host}:{port or running_port}: {then}")
    if not processes.is_alive(record.agent_pid, record.agent_started):
        raise ServiceError(f"{there}, but its worker process {record.agent_pid} is gone: {then}")
    try:
        state = control.fetch_status(record.endpoint, timeout_s=_CALL_S).state
    except CachewError as error:
        raise ServiceError(f"{there}, but does not answer: {error}; {then}") from error
    if state != "running":
        raise ServiceError(f"{there}, but is {state}: wait for its end or take another name")


def down(name: str, *, drain: bool = False, timeout_s: float = 10.0) -> None:
    """Ends a service; returns once no process, port or temporary file of it is left.

    Only its last logs stay. A service that is not there is fine. One that is just starting is
    interrupted: its `up` fails.

    Args:
        name: the service's name.
        drain: wait, as long as it takes, for the open epochs to end. Otherwise each of them gets an
            error that says why.
        timeout_s: how long ending it (after the draining) may take. Processes that don't end by
            themselves are killed well before that. Another command that ends it at the same time
            is waited for as long.

    Raises:
        SettingsError: the name can't be a service's, or its state can't be written.
        ServiceError: something could not be ended in time, or the service refused to drain.
    """
    folder = service_folder(name)
    if not folder.exists():
        return
    runs.folder_of(name)
    if drain:
        _drain(name)
    with locks.stop_requested(folder), locks.held(folder, timeout_s=timeout_s):
        there = runs.processes_of(name)
        if _request_end(name, timeout_s=timeout_s / 5):
            there.gone_within(timeout_s * 3 / 5)
        runs.clear(name, grace_s=timeout_s / 5)


def _drain(name: str) -> None:
    record = runs.record_of(name)
    if record is None:
        return
    runs.check_is_here(record)
    try:
        control.request_shutdown(record.endpoint, drain=True, reason=_REASON, timeout_s=_CALL_S)
    except ServiceUnavailableError:
        if runs.is_served(record):
            raise
    # Without the lock: a `down` that does not drain may still end it at once.
    while runs.is_served(record):
        time.sleep(_DRAIN_POLL_S)


def _request_end(name: str, *, timeout_s: float) -> bool:
    """Asks the dispatcher to end the service in order; whether there is one that will."""
    record = runs.record_of(name)
    if record is None or not runs.is_served(record):
        return False
    runs.check_is_here(record)
    try:
        control.request_shutdown(record.endpoint, drain=False, reason=_REASON, timeout_s=timeout_s)
    except CachewError as error:
        _log.warning("service %s is ended by force: %s", name, error)
        return False
    return True


def status(service: str, *, timeout_s: float = _CALL_S) -> cachew_pb2.ServiceStatus:
    """What a service says of itself.

    Args:
        service: the name of a service on this machine, or `grpc://host:port`.
        timeout_s: how long it may take to answer.

    Raises:
        SettingsError: that can be neither.
        ServiceError: there is no such service on this machine, or it does not run; or it refused.
        ServiceUnavailableError: nothing answers at the endpoint.
    """
    return control.fetch_status(_endpoint_of(service), timeout_s=timeout_s)


def scale(service: str, job_name: str, workers: int | None, *, timeout_s: float = _CALL_S) -> None:
    """Sets how many workers a job gets, as far as there are so many.

    Args:
        service: the name of a service on this machine, or `grpc://host:port`.
        job_name: of a job that is being read, as in status.
        workers: how many; None: as many as its policy says, again.
        timeout_s: how long the service may take to answer.

    Raises:
        SettingsError: `service` or `workers` can't be used.
        ServiceError: there is no such service on this machine, or it has no such job.
        ServiceUnavailableError: nothing answers at the endpoint.
    """
    starting.check_workers(workers)
    control.scale_job(_endpoint_of(service), job_name, workers, timeout_s=timeout_s)


def _endpoint_of(service: str) -> str:
    """The endpoint of a service that runs."""
    if rpc.is_endpoint(service):
        return service
    found = find(service)
    if found is None:
        raise ServiceError(
            f"there is no service {service!r} on this machine "
            f"(CACHEW_HOME={LocalSettings.load().home}): start it with cachew up {service}"
        )
    if found.state == "starting":
        raise ServiceUnavailableError(f"service {service!r} is starting: try again in a moment")
    if found.state == "stopped":
        raise ServiceError(
            f"service {service!r} does not run any more, its dispatcher is gone (see "
            f"{runs.log_file(service, 'dispatcher')}): start it anew with cachew up {service}, or "
            f"take away what is left with cachew down {service}"
        )
    return found.endpoint


def find(name: str) -> LocalService | None:
    """A service on this machine by its name, or None.

    Raises:
        SettingsError: the name can't be a service's.
    """
    record = runs.record_of(name)
    if record is not None:
        return LocalService(
            name=name,
            endpoint=record.endpoint,
            state="running" if runs.is_served(record) else "stopped",
            workers=record.workers,
        )
    if not runs.has_begun(name):
        return None
    state: State = "starting" if locks.is_held(service_folder(name)) else "stopped"
    return LocalService(name=name, endpoint="", state=state, workers=0)


def list_services() -> list[LocalService]:
    """The services on this machine, by name. One that was taken down is not listed."""
    return [service for name in runs.names() if (service := find(name)) is not None]
