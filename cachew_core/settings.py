"""Settings of every part, from four places: file, `CACHEW_` environment, flags, arguments.

The later one in that list wins. The file is TOML: `cachew.toml` in the working directory, or the
path in `CACHEW_CONFIG`. All parts read the same flat names, so one file can serve a trainer, a
dispatcher and a worker. Flags and arguments are passed as keyword arguments; `None` means "not
given" and is dropped.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal, Self

import platformdirs
from pydantic import Field, ValidationError, field_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from cachew_core.errors import SettingsError

MIB = 1024**2


def config_path() -> Path:
    """Where the settings file is looked for (it need not exist)."""
    return Path(os.environ.get("CACHEW_CONFIG", "cachew.toml"))


class _Settings(BaseSettings):
    # The text under a setting is also the help of its flag.
    model_config = SettingsConfigDict(
        env_prefix="CACHEW_", extra="ignore", frozen=True, use_attribute_docstrings=True
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        file = TomlConfigSettingsSource(settings_cls, toml_file=config_path())
        return init_settings, env_settings, file

    @classmethod
    def load(cls, **given: Any) -> Self:
        """Reads all sources.

        Args:
            **given: flags or arguments; those that are None count as not given.

        Raises:
            SettingsError: a value can't be used; names the setting, the value and where it can be
                set.
        """
        try:
            return cls(**{name: value for name, value in given.items() if value is not None})
        except ValidationError as error:
            raise SettingsError(_explain(error)) from error


def _explain(error: ValidationError) -> str:
    parts = []
    for problem in error.errors():
        name = ".".join(str(step) for step in problem["loc"])
        parts.append(
            f"setting {name}={problem['input']!r}: {problem['msg']} "
            f"(set it as an argument, by CACHEW_{name.upper()}, or in {config_path()})"
        )
    return "; ".join(parts)


class ClientSettings(_Settings):
    """What a trainer needs to know."""

    service: str | None = None
    """`grpc://host:port`, or a local service's name. None: the pipeline runs in the trainer."""
    connect_deadline_s: float = Field(60, gt=0)
    """How long to try to reach the service before giving up."""
    workers_deadline_s: float = Field(60, gt=0)
    """How long an epoch waits for its first worker before it fails."""
    max_graph_bytes: int = Field(1024 * MIB, gt=0)
    """A larger pipeline graph is refused (gRPC and protobuf end at 2 GiB)."""
    warn_graph_bytes: int = Field(64 * MIB, gt=0)
    """A larger pipeline graph gets a warning: data belongs into files, not into the graph."""
    task_refresh_interval_ms: int = Field(50, gt=0)
    """How often the trainer asks for its tasks. 50 ms: an epoch ends within 0.1 s, at 20 small
    calls a second.
    """
    metrics_interval_s: float = Field(1.0, gt=0)
    """How often batch, wait and step times are sent."""


class DispatcherSettings(_Settings):
    """One dispatcher."""

    name: str = "cachew"
    """The service's name, for logs and status."""
    host: str = "127.0.0.1"
    """The address to listen on, and the one that agents and trainers are told."""
    port: int = Field(0, ge=0, le=65535)
    """0 takes a free one."""
    work_dir: Path | None = None
    """Durable state of the stock dispatch servers. None: a temporary folder, gone at the end."""
    endpoint_file: Path | None = None
    """Gets the endpoint as text once the dispatcher listens."""
    idle_timeout_s: float = Field(30 * 60, gt=0)
    """The service ends itself after so long without a client."""
    first_client_timeout_s: float = Field(6 * 3600, gt=0)
    """The same before the first client came: a GPU pod may queue for hours."""
    client_timeout_s: float = Field(60, gt=0)
    """A client that is silent for so long is gone."""
    agent_beat_interval_s: float = Field(2, gt=0)
    """How often agents say that they live."""
    agent_timeout_s: float = Field(10, gt=0)
    """An agent that is silent for so long is lost."""
    max_graph_bytes: int = Field(1024 * MIB, gt=0)
    """A larger pipeline graph is refused."""


class AgentSettings(_Settings):
    """One agent on a worker node."""

    dispatcher: str = ""
    """`grpc://host:port` of the dispatcher."""
    slots: int = Field(1, ge=1, le=1024)
    """How many workers this agent offers."""
    host: str = "127.0.0.1"
    """The address at which trainers and the dispatcher reach this node's workers."""
    grace_s: float = Field(25, ge=0)
    """How long SIGTERM may take to drain before what is left is dropped."""
    dispatcher_deadline_s: float = Field(60, gt=0)
    """The agent ends itself when it has not reached its dispatcher for so long."""
    port_rest_s: float = Field(600, ge=0)
    """A worker's port is not used again for so long: a late reader must not meet another job there.
    """
    port_range: str | None = Field(None, pattern=r"^\d{1,5}-\d{1,5}$")
    """`first-last`: the ports that workers listen on, for a firewall. None: what the system picks.
    """


class LocalSettings(_Settings):
    """Services made of processes on this machine."""

    home: Path = Field(default_factory=lambda: Path(platformdirs.user_state_dir("cachew")))
    """Where local services keep their records and logs (`CACHEW_HOME`)."""

    @field_validator("home")
    @classmethod
    def _absolute(cls, home: Path) -> Path:
        # Services outlive the command and its working directory.
        return home.expanduser().absolute()


class LogSettings(_Settings):
    """What the commands write to their standard error."""

    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """The least that is worth a line."""
