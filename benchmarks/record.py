"""What all reports of benchmarks have: where and with what they were made."""

from __future__ import annotations

import os
import platform
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Self

import psutil
from pydantic import BaseModel, ConfigDict

from cachew_core.version import __version__

BUSY_LOAD = 0.5
"""From this load average on, the machine does something else, too."""

_PACKAGES = ("tensorflow", "tensorflow-cpu", "grpcio", "numpy")


class Record(BaseModel):
    """A part of a report."""

    model_config = ConfigDict(frozen=True)


class RunReport(Record):
    """One run of a benchmark."""

    started: str
    """Local time with its offset, ISO 8601."""
    quick: bool
    """The epochs were too small to measure anything."""
    versions: dict[str, str]
    cores: int
    """That the benchmark and all services shared."""
    processor: str
    memory_bytes: int
    load_average: float
    """Over the minute before the start: much above 0, the machine was busy with other things."""

    @classmethod
    def begun(cls, *, quick: bool, **more: Any) -> Self:
        """The report of a run that starts now.

        Args:
            quick: see the field.
            more: the fields that the kind of report has of its own.
        """
        return cls(
            started=datetime.now().astimezone().isoformat(timespec="seconds"),
            quick=quick,
            versions=_versions(),
            cores=len(os.sched_getaffinity(0)),
            processor=_processor(),
            memory_bytes=psutil.virtual_memory().total,
            load_average=os.getloadavg()[0],
            **more,
        )

    def warning(self) -> str:
        """What speaks against the numbers from the start, for people; empty: nothing."""
        if self.quick or self.load_average <= BUSY_LOAD:
            return ""
        return (
            f"The load average is {self.load_average:.1f}: other programs are at work, which makes "
            "the numbers unsure."
        )

    def write(self, path: Path) -> None:
        """Writes it as JSON; the folder is made."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.model_dump_json(indent=2) + "\n")


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "cachew": __version__}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
