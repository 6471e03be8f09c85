"""What is known of a local service by its name: a small JSON file, for clients and commands."""

from __future__ import annotations

import re
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from cachew_core.errors import ServiceError, SettingsError
from cachew_core.settings import LocalSettings

_NAME = re.compile(r"[a-zA-Z0-9]([a-zA-Z0-9._-]{0,61}[a-zA-Z0-9])?")


class ServiceRecord(BaseModel):
    """A local service, as its starter left it."""

    model_config = ConfigDict(frozen=True)

    name: str
    endpoint: str
    workers: int
    dispatcher_pid: int
    agent_pid: int
    dispatcher_started: float
    """Creation time of the process, seconds since the epoch: a pid alone may be somebody else's by
    now.
    """
    agent_started: float
    machine: str = ""
    """Where its processes run: a state folder may be shared over a network."""
    store: str = ""
    cache_dir: str = ""
    cache_policy: str = ""
    scaling_policy: str = ""
    page: str = ""
    """Its address; empty: there is none."""
    boot_id: str = ""
    """Of that machine's operating system: after a reboot every pid means something else."""


def is_service_name(name: str) -> bool:
    """Whether a service can have that name."""
    return _NAME.fullmatch(name) is not None


def service_folder(name: str) -> Path:
    """The folder of a local service (it need not exist).

    Raises:
        SettingsError: the name can't be a service's name.
    """
    return LocalSettings.load().home / "services" / _checked("service", name)


def store_folder(name: str) -> Path:
    """The folder of what outlives local services, by the store's name (it need not exist).

    Raises:
        SettingsError: the name can't be a store's name.
    """
    return LocalSettings.load().home / "stores" / _checked("store", name)


def _checked(what: str, name: str) -> str:
    if is_service_name(name):
        return name
    raise SettingsError(
        f"{what} name {name!r} can't be used: take 1 to 63 letters, digits, '.', '_' or '-', "
        "with a letter or digit at both ends"
    )


def read_record(name: str) -> ServiceRecord | None:
    """The record of a local service, or None where there is none.

    Raises:
        ServiceError: the file is there and can't be read.
    """
    path = service_folder(name) / "service.json"
    try:
        return ServiceRecord.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        raise ServiceError(
            f"the record of service {name!r} at {path} can't be read: {error}"
        ) from error


def write_record(record: ServiceRecord) -> None:
    """Writes the record so that a reader sees all of it or none."""
    path = service_folder(record.name) / "service.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".tmp")
    draft.write_text(record.model_dump_json(indent=2) + "\n")
    draft.replace(path)
