"""Services made of processes on this machine: started, found, and ended by name.

A service is one dispatcher and one agent whose slots are its workers. Every command that changes it
holds the lock of its name, so commands may come at the same time, be interrupted, or be killed, and
the next one starts from a clear state.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from cachew_core import rpc
from cachew_core.cluster import control, locks, processes, runs, starting
from cachew_core.errors import CachewError, ServiceError, ServiceUnavailableError
from cachew_core.proto import cachew_pb2
from cachew_core.service_record import ServiceRecord, service_folder
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
    idle_timeout_s: float | None = None,
    first_client_timeout_s: float | None = None,
    ready_timeout_s: float = READY_TIMEOUT_S,
    command: Sequence[str] = starting.CACHEW_COMMAND,
) -> ServiceRecord:
    """Starts a service, or adopts the running one of that name.

    What was left of an earlier service of that name, whose dispatcher was killed, is taken away
    first.

    Args:
        name: 1 to 63 letters, digits, `.`, `_` or `-`.
        workers: how many. None: 2 in a new service, any number in a running one.
        host: the address that the dispatcher listens on, and at which trainers reach it and the
            workers. None: the settings'.
        port: the dispatcher's port. None: the settings', where 0 means a free one.
        idle_timeout_s: the service ends itself after so many seconds without a client. None: the
            settings'.
        first_client_timeout_s: the same, before the first client came. None: the settings'.
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
        idle_timeout_s=idle_timeout_s,
        first_client_timeout_s=first_client_timeout_s,
    )
    starting.check_host(settings.host)
    folder = runs.folder_of(name)
    with locks.held(folder, timeout_s=ready_timeout_s):
        record = runs.record_of(name)
        if record is not None and runs.is_served(record):
            _check_adoptable(record, workers=workers, host=host, port=port)
            return record
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
        if _request_end(name, timeout_s=timeout_s / 5):
            processes.wait_until_gone(runs.run_id(name), timeout_s=timeout_s * 3 / 5)
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
    if rpc.is_endpoint(service):
        return control.fetch_status(service, timeout_s=timeout_s)
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
    return control.fetch_status(found.endpoint, timeout_s=timeout_s)


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
