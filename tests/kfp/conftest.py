"""What the tests of Kubeflow pipelines share: a home for services and a look at what is left."""

from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from cachew_core.cluster import down, list_services

Leftovers = Callable[[], list[str]]


def processes_of(home: Path) -> list[str]:
    """Command lines of the processes, wherever they came from, that use this home."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("CACHEW_HOME") == str(home):
                found.append(" ".join(process.cmdline()))
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue
    return found


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A `CACHEW_HOME` of the test's own, for this process and those that it starts."""
    folder = tmp_path / "home"
    monkeypatch.setenv("CACHEW_HOME", str(folder))
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "2")
    monkeypatch.delenv("CACHEW_SERVICE", raising=False)
    # Each of kfp's local steps leaves a temporary folder.
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    yield folder
    for service in list_services():
        down(service.name)


@pytest.fixture
def leftovers(home: Path) -> Leftovers:
    """Says what is left of services and of the processes that used the test's home."""

    def look() -> list[str]:
        return [service.name for service in list_services()] + processes_of(home)

    return look
