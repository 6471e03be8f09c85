from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from cachew_core import rpc
from cachew_core.cluster import processes


def _run_processes(home: Path) -> list[psutil.Process]:
    """All processes that belong to a service under that folder, whatever its name."""
    found = []
    for process in psutil.process_iter():
        try:
            run = process.environ().get(processes.RUN_VARIABLE, "")
            alive = process.status() != psutil.STATUS_ZOMBIE
        except (psutil.Error, OSError):
            continue
        if alive and run.startswith(f"{home.resolve()}{os.sep}"):
            found.append(process)
    return found


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A CACHEW_HOME of the test's own; at the end no process of a service in it may be left."""
    folder = tmp_path / "home"
    monkeypatch.setenv("CACHEW_HOME", str(folder))
    monkeypatch.chdir(tmp_path)
    # A folder for temporary files of the test's own, too, with a path short enough for sockets.
    with tempfile.TemporaryDirectory(prefix="t-") as temporary:
        monkeypatch.setattr(tempfile, "tempdir", temporary)
        monkeypatch.setenv("TMPDIR", temporary)
        yield folder
        _end_all(folder)


def _end_all(folder: Path) -> None:
    left = _run_processes(folder)
    # Dispatcher and agent write their stacks to their logs; a child ends of it.
    for number, patience_s in ((signal.SIGUSR1, 1), (signal.SIGKILL, 5)):
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
                process.send_signal(number)
        psutil.wait_procs(left, timeout=patience_s)
    assert not left, "processes were left; their logs end:\n" + "\n".join(
        f"== {log}\n{log.read_text(errors='replace')[-4000:]}"
        for log in sorted(folder.glob("services/*/logs/*.log"))
    )


@pytest.fixture
def nothing_left(home: Path) -> Callable[..., None]:
    """A check that of a service nothing but its logs and locks is there any more."""

    def check(name: str, endpoint: str | None = None) -> None:
        assert _run_processes(home) == []
        left = {path.name for path in (home / "services" / name).iterdir()}
        assert left <= {"logs", "lock", "stop"}
        assert list(Path(tempfile.gettempdir()).iterdir()) == []
        if endpoint is not None:
            assert not _is_listening(endpoint)

    return check


def _is_listening(endpoint: str) -> bool:
    port = int(rpc.address_of(endpoint).rpartition(":")[2])
    return any(
        connection.laddr[1:2] == (port,)
        for connection in psutil.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    )


@pytest.fixture
def fake() -> tuple[str, ...]:
    """The command of a service without TensorFlow."""
    return sys.executable, str(Path(__file__).with_name("fake_cachew.py"))


@pytest.fixture
def eventually() -> Callable[..., None]:
    """Waits for a condition; fails when it does not come true in time."""

    def wait(condition: Callable[[], object], *, within_s: float = 20) -> None:
        deadline = time.monotonic() + within_s
        while not condition():
            assert time.monotonic() < deadline, "it did not come true in time"
            time.sleep(0.05)

    return wait


@pytest.fixture
def kill(eventually: Callable[..., None]) -> Callable[[int], None]:
    """Kills a process, and waits until it is dead."""

    def kill_and_wait(pid: int) -> None:
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: processes.start_time(pid) is None)

    return kill_and_wait
