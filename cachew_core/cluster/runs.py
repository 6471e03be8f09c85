"""What one run of a local service leaves on this machine, and taking all of it away again.

A service's folder, `CACHEW_HOME/services/NAME`, holds

* `service.json`: the record, from the moment that the service can be used until its end;
* `run/`: the work folder of the dispatcher and the file in which it writes its endpoint;
* `run.json`: where the run's temporary files are, from before its first process until nothing of it
  is left;
* `logs/`: the output of the last run, kept after its end;
* `lock`, `stop`: see `locks`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from cachew_core.cluster import locks, processes
from cachew_core.errors import ServiceError, SettingsError
from cachew_core.service_record import (
    ServiceRecord,
    is_service_name,
    read_record,
    service_folder,
)
from cachew_core.settings import LocalSettings

_log = logging.getLogger(__name__)

LOGS_KEPT_S = 7 * 24 * 3600.0
"""Pipelines start services under ever new names; a week is long enough to see what went wrong."""

_LEAVING_LOCK_S = 0.2
"""The last process of a run tidies up only if no command is doing so already."""

_DYING_S = 1.0
"""A process that is killed loses its connections a little before it is gone."""

_LEAVING_GRACE_S = 10.0
"""How long a worker process may take to end by itself after its dispatcher."""


class _Run(BaseModel):
    model_config = ConfigDict(frozen=True)

    scratch: Path


def folder_of(name: str) -> Path:
    """The folder of a service, made if it is not there.

    Raises:
        SettingsError: the name can't be a service's, or nothing can be written under `CACHEW_HOME`.
    """
    folder = service_folder(name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError as error:
        raise SettingsError(
            f"local services can't be kept under CACHEW_HOME={LocalSettings.load().home}: {error}; "
            "set CACHEW_HOME to a folder that you may write to"
        ) from error


def run_id(name: str) -> str:
    """What all processes of a service carry in their environment; its folder must be there.

    The folder's path alone would also be that of a service in a container that we can see into.
    """
    folder = service_folder(name).resolve()
    found = folder.stat()
    return f"{folder}@{found.st_dev:x}:{found.st_ino:x}"


def processes_of(name: str) -> processes.RunProcesses:
    """The processes of a service; its folder must be there."""
    return processes.RunProcesses(run_id(name))


def begin(name: str) -> dict[str, str]:
    """Makes the folders of a new run.

    Returns:
        The environment that makes a process part of this run.
    """
    folder = service_folder(name)
    for part in ("run", "logs"):
        (folder / part).mkdir(exist_ok=True)
    for log in ("dispatcher", "worker"):
        log_file(name, log).write_bytes(b"")
    # In the system's folder: the sockets that processes make there allow only short paths.
    scratch = Path(tempfile.mkdtemp(prefix="cachew-"))
    (folder / "run.json").write_text(_Run(scratch=scratch).model_dump_json())
    return {processes.RUN_VARIABLE: run_id(name), "TMPDIR": str(scratch)}


def log_file(name: str, part: str) -> Path:
    """The log of the `dispatcher` or the `worker` of a service."""
    return service_folder(name) / "logs" / f"{part}.log"


def has_begun(name: str) -> bool:
    """Whether a run was begun and nobody has tidied up after it."""
    folder = service_folder(name)
    return (folder / "run.json").exists() or (folder / "service.json").exists()


def record_of(name: str) -> ServiceRecord | None:
    """The record of a service, or None where there is none that can be read."""
    try:
        return read_record(name)
    except ServiceError as error:
        _log.warning("%s; it counts as none", error)
        return None


def _is_over(record: ServiceRecord) -> bool:
    return processes.holds_within(lambda: not is_served(record), timeout_s=_DYING_S)


def is_served(record: ServiceRecord) -> bool:
    """Whether a service's dispatcher lives; yes, too, where another machine would have to tell."""
    return _is_elsewhere(record) or processes.is_alive(
        record.dispatcher_pid, record.dispatcher_started
    )


def check_is_here(record: ServiceRecord) -> None:
    """Refuses to touch what runs on another machine that shares the folder.

    Raises:
        ServiceError: it does.
    """
    if _is_elsewhere(record):
        raise ServiceError(
            f"service {record.name!r} was started on machine {record.machine!r}: use it there, "
            "take another name, or, if that machine is gone, remove "
            f"{service_folder(record.name)}"
        )


def _is_elsewhere(record: ServiceRecord) -> bool:
    here = processes.this_machine()
    # A machine may get another name while it runs, and it keeps its name over a reboot.
    return bool(record.machine) and here.name != record.machine and here.boot_id != record.boot_id


def clear(name: str, *, grace_s: float) -> None:
    """Ends what is left of a run, if anything, and removes all its files but the logs.

    Args:
        name: the service's name; the caller holds its lock.
        grace_s: how long processes may take to end after SIGTERM.

    Raises:
        ServiceError: a process could not be ended; the files are still there.
    """
    folder = service_folder(name)
    processes_of(name).end(grace_s=grace_s)
    (folder / "service.json").unlink(missing_ok=True)
    shutil.rmtree(folder / "run", ignore_errors=True)
    _remove_scratch(folder / "run.json")


def _remove_scratch(path: Path) -> None:
    try:
        run = _Run.model_validate_json(path.read_bytes())
        shutil.rmtree(run.scratch, ignore_errors=True)
        path.unlink()
    except FileNotFoundError:
        return
    except ValidationError as error:
        _log.warning("%s can't be read, so its temporary files stay: %s", path, error)
        path.unlink()


def names() -> list[str]:
    """The names under which there are, or were, services."""
    home = LocalSettings.load().home / "services"
    found = (logs.parent.name for logs in home.glob("*/logs"))
    return sorted(name for name in found if is_service_name(name))


def forget_old_logs() -> None:
    """Removes the folders of services that ended longer than `LOGS_KEPT_S` ago."""
    for name in names():
        folder = service_folder(name)
        if _is_old(folder):
            with contextlib.suppress(ServiceError), locks.held(folder, timeout_s=0):
                if not has_begun(name):
                    shutil.rmtree(folder, ignore_errors=True)


def _is_old(folder: Path) -> bool:
    try:
        last = max(log.stat().st_mtime for log in (folder / "logs").iterdir())
    except (OSError, ValueError):
        # No logs: it is being begun, or is no service's folder.
        return False
    return time.time() - last > LOGS_KEPT_S and not has_begun(folder.name)


@contextmanager
def last_one_tidies_up() -> Iterator[None]:
    """Around a process's work: a service that ends by itself leaves nothing behind.

    Outside of local services it does nothing.
    """
    try:
        yield
    finally:
        identity = os.environ.get(processes.RUN_VARIABLE)
        if identity is not None:
            _leave(Path(identity.rpartition("@")[0]))


def _leave(folder: Path) -> None:
    name = folder.name
    try:
        with locks.held(folder, timeout_s=_LEAVING_LOCK_S):
            record = record_of(name)
            if record is not None and record.dispatcher_pid != os.getpid() and not _is_over(record):
                return
            processes_of(name).gone_within(_LEAVING_GRACE_S)
            clear(name, grace_s=1.0)
    except ServiceError as error:
        _log.debug("another command tidies up: %s", error)
