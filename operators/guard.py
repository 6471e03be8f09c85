"""Runs a command and sees to it that nothing of it outlives the task that asked for it.

Airflow may kill a task's process without warning (5 s after it asked, or for want of memory), and a
training that goes on then holds a GPU that nobody knows of. So between the two stands this small
process, in a session of its own: it holds the end of a pipe whose other end is the task's. When
that closes, for whatever reason, or on SIGTERM, the command's process group gets SIGTERM, and
SIGKILL after a grace period.

Run as `python -m cachew_operators.guard GRACE_S COMMAND...`; the pipe is standard input. Exits as
the command did, with 128 + N where signal N ended it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence

import psutil

_POLL_S = 0.05
_LAST_OUTPUT_S = 2.0
"""How long output is waited for after the group ended: a process that left it may hold the pipe."""

EXIT_NOT_STARTED = 127
"""As a shell says it of a command that it can't find."""


class Guard:
    """One command and the two events that end it: its own end, or a request to stop."""

    def __init__(self, *, command: Sequence[str], grace_s: float) -> None:
        self._command = command
        self._grace_s = grace_s
        # A plain flag: what sets it may be a signal handler, in which locks are not safe.
        self._stop = False

    def stop(self) -> None:
        """Asks `run` to end the command."""
        self._stop = True

    def run(self) -> int:
        """Runs the command, passing its output on.

        Returns:
            Its exit code, or 128 + N where signal N ended it.

        Raises:
            OSError: it can't be started.
        """
        with subprocess.Popen(
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            # What the task gave to this process on purpose is for the command.
            close_fds=False,
            start_new_session=True,
        ) as process:
            assert process.stdout is not None
            output = _in_background(_pass_on, process.stdout.fileno())
            while process.poll() is None and not self._stop:
                time.sleep(_POLL_S)
            end_group(process.pid, grace_s=self._grace_s, leader_ended=process.poll)
            code = process.wait()
            output.join(_LAST_OUTPUT_S)
        return code if code >= 0 else 128 - code


def end_group(
    group: int, *, grace_s: float, leader_ended: Callable[[], object] = lambda: None
) -> None:
    """Ends what is left of a process group: SIGTERM, then SIGKILL.

    Args:
        group: its id.
        grace_s: seconds between the two.
        leader_ended: called while waiting, to collect the leader.
    """
    deadline = time.monotonic() + grace_s
    _signal_group(group, signal.SIGTERM)
    while _has_live_members(group) and time.monotonic() < deadline:
        leader_ended()
        time.sleep(_POLL_S)
    _signal_group(group, signal.SIGKILL)


def _signal_group(group: int, signal_number: signal.Signals) -> None:
    try:
        os.killpg(group, signal_number)
    except ProcessLookupError:
        return


def _has_live_members(group: int) -> bool:
    return any(_is_live_member(process, group) for process in psutil.process_iter())


def _is_live_member(process: psutil.Process, group: int) -> bool:
    try:
        return os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE
    except (psutil.NoSuchProcess, ProcessLookupError, PermissionError):
        return False


def _pass_on(source: int) -> None:
    while chunk := os.read(source, 65536):
        _write_all(chunk)


def _write_all(chunk: bytes) -> None:
    while chunk:
        try:
            chunk = chunk[os.write(sys.stdout.fileno(), chunk) :]
        except BrokenPipeError:
            # The task is gone. The command must not block on a full pipe while it is being ended.
            return


def _in_background(work: Callable[..., None], *arguments: object) -> threading.Thread:
    thread = threading.Thread(target=work, args=arguments, daemon=True)
    thread.start()
    return thread


def _stop_at_end_of_input(guard: Guard) -> None:
    while os.read(sys.stdin.fileno(), 1):
        pass
    guard.stop()


def main() -> int:
    """Runs the command of the process's arguments under guard; returns the exit code."""
    guard = Guard(grace_s=float(sys.argv[1]), command=sys.argv[2:])
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: guard.stop())
    _in_background(_stop_at_end_of_input, guard)
    try:
        return guard.run()
    except OSError as error:
        sys.stderr.write(f"{sys.argv[2]} can't be started: {error}\n")
        return EXIT_NOT_STARTED


if __name__ == "__main__":
    sys.exit(main())
