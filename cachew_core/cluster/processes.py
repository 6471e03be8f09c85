"""Detached processes, and finding every process of a run again.

A service outlives the command that started it, so its processes can't be children of that command.
And a pid in a file proves nothing: it may be somebody else's by now, and it says nothing of the
children that a process left behind. Therefore every run of a service has an identity that its
processes carry in their environment, where children inherit it, even when they change their session
or lose their parent.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from cachew_core.errors import ServiceError

RUN_VARIABLE = "CACHEW_LOCAL_RUN"
"""Holds the identity of the run in the environment of all its processes."""

POLL_S = 0.05
"""How often something outside of this process is looked at while it is waited for."""

_SAME_START_S = 5.0
"""Creation times move a little when the clock is set; pids come round much later."""

# The shell leaves at once, so the program becomes init's child: the starter never has to collect
# it, and a notebook that started a service keeps no zombie of it.
_DETACH = 'log=$1; shift; "$@" >>"$log" 2>&1 & echo $!'


def launch(
    command: Sequence[str], *, environment: Mapping[str, str], folder: Path, log: Path
) -> int:
    """Starts a program in a session of its own, without a terminal.

    Args:
        command: the program and its arguments.
        environment: all its environment variables.
        folder: its working directory.
        log: the file that gets its output and errors at the end.

    Returns:
        Its pid.

    Raises:
        ServiceError: the operating system could not start it.
    """
    try:
        shell = subprocess.run(
            ["/bin/sh", "-c", _DETACH, "sh", str(log), *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env=dict(environment),
            cwd=folder,
            start_new_session=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise ServiceError(f"{command[0]} could not be started: {error}") from error
    return int(shell.stdout)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Where pids mean something."""

    name: str
    boot_id: str
    """Changes with every boot; empty where the operating system has none."""


def this_machine() -> Machine:
    """The machine that the calling process runs on."""
    try:
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        boot_id = ""
    return Machine(name=socket.gethostname(), boot_id=boot_id)


def start_time(pid: int) -> float | None:
    """When a process was created, in seconds since the epoch; None where it is gone."""
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except psutil.NoSuchProcess:
        return None


def is_alive(pid: int, started: float) -> bool:
    """Whether the process with that pid and creation time (seconds since the epoch) still runs."""
    found = start_time(pid)
    return found is not None and abs(found - started) < _SAME_START_S


class RunProcesses:
    """The processes of a run, each from the first look at which it was found until it is gone.

    A process that ends loses its environment, by which it is found, a little before its ports and
    files are closed; so what was found once is from then on known by its pid.
    """

    def __init__(self, run_id: str) -> None:
        """Takes the first look.

        Args:
            run_id: the run's identity.
        """
        self._run_id = run_id
        self._found: set[psutil.Process] = set()
        self.look()

    def look(self) -> set[psutil.Process]:
        """Those that are there now, without the calling one."""
        self._found.update(p for p in psutil.process_iter() if _carries(p, self._run_id))
        self._found = {process for process in self._found if _lives(process)}
        return self._found

    def gone_within(self, timeout_s: float) -> bool:
        """Waits for all of them to end by themselves; whether they did."""
        return holds_within(lambda: not self.look(), timeout_s=timeout_s)

    def end(self, *, grace_s: float, kill_s: float = 3.0) -> None:
        """Ends all of them.

        Args:
            grace_s: how long they may take to end after SIGTERM; then they are killed.
            kill_s: how long the operating system may take to kill them.

        Raises:
            ServiceError: some were still there after that (as when the disk that they write to
                hangs).
        """
        for process in self.look():
            _signal(process.terminate)
        if self.gone_within(grace_s):
            return
        # A process may make another between our look and our signal: look until none is left.
        if not holds_within(lambda: not self._kill_all(), timeout_s=kill_s):
            left = ", ".join(str(process.pid) for process in self._found)
            raise ServiceError(
                f"processes {left} did not end within {kill_s:g} s of being killed: "
                "end them by hand"
            )

    def _kill_all(self) -> bool:
        found = self.look()
        for process in found:
            _signal(process.kill)
        return bool(found)


def _carries(process: psutil.Process, run_id: str) -> bool:
    if process.pid == os.getpid():
        return False
    try:
        return process.environ().get(RUN_VARIABLE) == run_id
    except (psutil.Error, OSError):
        # Somebody else's process, or one that ended under our eyes.
        return False


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _signal(send: Callable[[], None]) -> None:
    try:
        send()
    except psutil.NoSuchProcess:
        return


def holds_within(done: Callable[[], bool], *, timeout_s: float) -> bool:
    """Waits until a condition holds; whether it did in time."""
    deadline = time.monotonic() + timeout_s
    while not done():
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_S)
    return True
