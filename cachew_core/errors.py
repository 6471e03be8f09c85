"""What Cachew raises: a base class, and one child for each thing that a person can do about it."""

from __future__ import annotations

__all__ = [
    "CacheError",
    "CachewError",
    "CheckpointError",
    "MetadataError",
    "PipelineError",
    "ServiceError",
    "ServiceUnavailableError",
    "SettingsError",
    "VersionMismatchError",
]


class CachewError(Exception):
    """Base class of every error that Cachew raises by itself."""


class PipelineError(CachewError, ValueError):
    """The pipeline, or an argument of `distribute`, can't be served as it stands: change it."""


class SettingsError(CachewError, ValueError):
    """A setting (file, environment, flag or argument) has a value that can't be used: change it."""


class ServiceUnavailableError(CachewError, ConnectionError):
    """The service can't be reached, or has no worker, by the deadline: start it or wait longer."""


class VersionMismatchError(CachewError):
    """Trainer, service and workers don't understand each other: install versions that do."""


class ServiceError(CachewError, RuntimeError):
    """The service could not be started, stopped or found, or refused a request: it says why."""


class CacheError(CachewError, RuntimeError):
    """The cache can't be opened, read or written: mend what it says or set another `cache_dir`."""


class MetadataError(CachewError, RuntimeError):
    """The metadata store can't be opened, read or written: mend it or name another `store_url`."""


class CheckpointError(CachewError, NotImplementedError):
    """The position in a distributed dataset can't be saved this way."""
