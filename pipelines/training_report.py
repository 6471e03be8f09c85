"""What a training through Cachew reports about its epochs: values that go to JSON and back.

Its own module, without TensorFlow and kfp, so that whoever only reads a report needs neither.
"""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

from pydantic import BaseModel, ConfigDict, Field

from cachew_core.version import __version__

LOCAL_REPORTS = "*/train-classifier/report"
"""Where kfp.local puts the report in its outputs: run, step, output."""

REPORTED_PACKAGES = ("tensorflow", "tensorflow-cpu", "keras", "kfp")


class EpochReport(BaseModel):
    """One epoch, as the service saw it, and what the model had learnt after it."""

    model_config = ConfigDict(frozen=True)

    epoch: int
    """Counted from 1."""
    mode: str
    """What the service did for it: COMPUTE, or what the cache allowed."""
    elements: int
    """What the trainer got: batches, for a pipeline that ends with `batch`."""
    seconds: float
    batch_time_ms: float
    """Mean time from one element to the next."""
    wait_share: float
    """Share of the epoch, 0 to 1, in which the trainer waited for data."""
    workers: int
    """The most that served it at one time."""
    loss: float
    accuracy: float


def installed_versions() -> dict[str, str]:
    """Versions of Python, Cachew and the libraries that a training stands on, where installed."""
    found = {"python": platform.python_version(), "cachew": __version__}
    for package in REPORTED_PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


class TrainingReport(BaseModel):
    """A whole training."""

    model_config = ConfigDict(frozen=True)

    service: str
    """The service's name."""
    job_name: str
    fingerprint: str
    """64 hex digits that name the input pipeline."""
    labels: list[str]
    epochs: list[EpochReport]
    versions: dict[str, str] = Field(default_factory=installed_versions)


class DemoReport(BaseModel):
    """What the demo ran."""

    model_config = ConfigDict(frozen=True)

    runs: list[TrainingReport]
    """In the order in which they ran; each with a service of its own, all with one store."""
