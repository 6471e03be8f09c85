"""Settings of every part, from four places: file, `CACHEW_` environment, flags, arguments.

The later one in that list wins. The file is TOML: `cachew.toml` in the working directory, or the
path in `CACHEW_CONFIG`. All parts read the same flat names, so one file can serve a trainer, a
dispatcher and a worker. Flags and arguments are passed as keyword arguments; `None` means "not
given" and is dropped.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import platformdirs
from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    NoDecode,
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
        if not problem["loc"]:
            parts.append(problem["msg"].removeprefix("Value error, "))
            continue
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
    task_refresh_interval_ms: int = Field(100, gt=0)
    """How often the trainer asks for its tasks. 100 ms: an epoch ends within 0.15 s. Each call
    costs the dispatcher 1 to 2 ms of its processor.
    """
    metrics_interval_s: float = Field(0.25, gt=0)
    """How often batch, wait and step times are sent: the number of workers follows them."""
    direct_reads: Literal["auto", "never", "always"] = "auto"
    """Whether a trainer reads what is stored at a pipeline's end from the cache's files itself,
    without workers: where it sees the cache's volume; never; or always, else it is an error.
    """


class DispatcherSettings(_Settings):
    """One dispatcher."""

    name: str = "cachew"
    """The service's name, for logs and status."""
    host: str = "127.0.0.1"
    """The address to listen on, and the one that agents and trainers are told."""
    port: int = Field(0, ge=0, le=65535)
    """0 takes a free one."""
    page_port: int = Field(0, ge=-1, le=65535)
    """The port of the service's page and of its metrics, at the same address. 0 takes a free one,
    -1 serves none.
    """
    work_dir: Path | None = None
    """Durable state of the stock dispatch servers. None: a temporary folder, gone at the end."""
    endpoint_file: Path | None = None
    """Gets the endpoint as text once the dispatcher listens."""
    events_file: Path | None = None
    """Gets a line of JSON for each thing that happens to jobs, epochs and workers."""
    idle_timeout_s: float = Field(30 * 60, gt=0)
    """The service ends itself after so long without a client."""
    first_client_timeout_s: float = Field(6 * 3600, gt=0)
    """The same before the first client came: a GPU pod may queue for hours."""
    client_timeout_s: float = Field(60, gt=0)
    """A client that is silent for so long is gone."""
    client_reconnect_s: float = Field(10, gt=0)
    """The same for a client without a connection: its process has most likely ended."""
    agent_beat_interval_s: float = Field(2, gt=0)
    """How often agents say that they live."""
    agent_timeout_s: float = Field(10, gt=0)
    """An agent that is silent for so long is lost."""
    max_graph_bytes: int = Field(1024 * MIB, gt=0)
    """A larger pipeline graph is refused."""
    cache_policy: str = "auto"
    """What is stored of pipelines whose `distribute` does not say: `auto` (what pays), `compute`
    (nothing), `full` (what the pipeline gives), `source` (what its last mark gives); or `put`,
    `get`, `put_source`, `get_source` (only written, only read); or the original's numbers.
    """
    cache_dir: str | None = None
    """Where the cache lies: a folder on a path that the dispatcher and all workers have in common,
    or `gs://bucket/prefix`. None: nothing is stored.
    """
    cache_stage_dir: Path | None = None
    """The folder in which each worker node keeps its copies of a cache in a bucket; no two services
    on one machine may have the same. None: one below the user's cache folder.
    """
    cache_capacity_bytes: int | None = Field(None, gt=0)
    """What is stored takes no more than this; what is least worth its room goes first. None: as
    much as the volume has.
    """
    profile_budget_s: float = Field(20, gt=0)
    """What measuring one pipeline may take, about, beside its first epoch."""
    cache_objective: Literal["time", "cost"] = "time"
    """What `auto` makes small: an epoch's time, or its money."""
    price_trainer_hour: float = Field(4.96, ge=0)
    """What an hour of all trainers of a job costs, in any currency, for the objective `cost`."""
    price_worker_hour: float = Field(0.427319, ge=0)
    """What an hour of one worker costs."""
    price_gb_month: float = Field(0.04, ge=0)
    """What it costs to keep 10^9 bytes in the cache for a month."""
    cache_cost_model: Literal["overlapped", "paper"] = "overlapped"
    """How `auto` predicts a read: stages of a pipeline overlap, or their times add up, as in the
    paper.
    """
    scaling_policy: str = "auto"
    """What decides how many workers a job gets whose `distribute` does not say: `auto` (as many as
    its trainers can use), `all`, `rate_match`, `hill_climb`; or the original's numbers.
    """
    scaling_objective: Literal["time", "cost"] = "time"
    """What `auto` makes small: an epoch's time, or its money."""
    scaling_tolerance: float = Field(0.05, gt=0, lt=1)
    """The fewest workers are taken whose throughput is within this part of the best."""
    scaling_cost_tolerance: float = Field(0.15, gt=0, lt=1)
    """The same for the objective `cost`."""
    climb_threshold: float = Field(0.03, gt=0, lt=1)
    """`hill_climb` adds a worker while one makes batches faster by this part, and takes one away
    while that makes them slower by less.
    """
    climb_batches: int = Field(100, ge=1)
    """`hill_climb` decides by the time of so many batches."""
    climb_pause_batches: int = Field(150, ge=0)
    """So many are left out after a change."""
    climb_skip_batches: int = Field(200, ge=0)
    """So many are left out at an epoch's start."""
    climb_recheck_reports: int = Field(10, ge=1)
    """`hill_climb` looks at a settled job again after so many reports of `climb_batches`."""
    climb_slow_growth: float = Field(1.5, gt=1)
    """`hill_climb` climbs again if batches take longer by this factor than when it settled."""
    climb_idle_growth: float = Field(1.4, gt=1)
    """`hill_climb` descends if the time in which the trainer does not wait grew by this factor."""
    climb_outlier: float = Field(1.2, gt=0)
    """`hill_climb` passes over a report that differs from the one before it by more than this part.
    """
    climb_history: int = Field(20, ge=2)
    """So many reports are compared by `hill_climb`."""
    min_workers: int | None = Field(None, ge=0)
    """So many workers are there whether jobs want them or not. None: all that there can be."""
    max_workers: int | None = Field(None, ge=1)
    """No more workers than this, however many jobs want. None: all that agents offer."""
    standby: int = Field(0, ge=0)
    """More workers than jobs want, within the limits: the next one that is wanted is there at once.
    """
    shrink_after_s: float = Field(30, ge=0)
    """Workers that nobody wants go when nobody wanted them for so long."""
    tenant_weights: Annotated[dict[str, float], NoDecode] = Field(default_factory=dict)
    """Where workers are scarce, a tenant with twice the weight gets twice the workers:
    `research=2,ads=1.5`, and 1 for all that are not named.
    """
    store: str | None = None
    """What outlives the service has this name in the metadata store. None: the service's name."""
    store_url: str | None = None
    """The metadata store, as SQLAlchemy writes it: `sqlite:////path/to/file.db` for one service at
    a time, or `postgresql+psycopg://user@host/database`. None: only the cache itself outlives the
    service.
    """
    cache_needs_mount: bool = False
    """Refuse a `cache_dir` that is no mounted volume: a mount that failed leaves an empty folder.
    """

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        least, most = self.min_workers, self.max_workers
        if least is not None and most is not None and least > most:
            raise ValueError(f"min_workers={least} is over max_workers={most}")
        return self

    @field_validator("tenant_weights", mode="before")
    @classmethod
    def _as_weights(cls, weights: object) -> object:
        if not isinstance(weights, str):
            return weights
        pairs = [pair.rpartition("=") for pair in weights.split(",") if pair.strip()]
        return {tenant.strip(): weight for tenant, _, weight in pairs}

    @field_validator("tenant_weights")
    @classmethod
    def _over_zero(cls, weights: dict[str, float]) -> dict[str, float]:
        for tenant, weight in weights.items():
            if not (math.isfinite(weight) and weight > 0):
                raise ValueError(f"the weight of {tenant!r} must be over 0")
        return weights

    @field_validator("cache_dir", mode="before")
    @classmethod
    def _as_text(cls, place: object) -> object:
        return str(place) if isinstance(place, Path) else place


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
    worker_memory_bytes: int | None = Field(None, gt=0)
    """A worker that holds more memory of its own is drained, and a fresh one takes its place. None:
    no limit.
    """
    worker_memory_after_s: float = Field(60, ge=0)
    """A worker is not replaced for its memory before it has worked for so long."""
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
