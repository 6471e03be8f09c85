"""What one child writes to its standard error: passed on to the agent's, and read for the errors
that the pipeline's own `ignore_errors` swallows.

Such an error is nowhere else: tf.data counts none, and elements that are not there can't be counted
behind it. TensorFlow logs each as a warning, if the operator is told to.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Callable, Mapping

from cachew_core.forkserver.spawner import LOG_LEVEL

__all__ = ["ChildLog"]

PAUSE_S = 0.2
"""Between two reports of swallowed errors; the first goes at once."""

MAX_LINE_BYTES = 65_536
MAX_EXAMPLE_CHARACTERS = 300

_IGNORED = re.compile(rb"ignore_errors_dataset_op\.cc:\d+\] Error raised with error message (.*)")
_SEVERITY = re.compile(rb"^(?:(?P<new>[IWEF])\d{4} |[-\d]+ [:.\d]+: (?P<old>[IWEF]) )")
_LEVELS = {b"I": 0, b"W": 1, b"E": 2, b"F": 3}


class ChildLog:
    """A pipe for one child's standard error. The child gets copies of `descriptor`."""

    def __init__(self, on_ignored: Callable[[int, str], None]) -> None:
        """Opens the pipe, and reads it from now on.

        Args:
            on_ignored: gets the number of errors that were swallowed since the last call, and the
                text of one.
        """
        self._on_ignored = on_ignored
        self._ignored = 0
        self._example = ""
        self._rest = b""
        self._least = _wanted_level(os.environ)
        self._reading, self.descriptor = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._reading, False)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._reading, self._read)
        self._pause: asyncio.TimerHandle | None = None

    def close(self) -> None:
        """Takes in what is left, after the child's end."""
        while self._read():
            pass
        self._loop.remove_reader(self._reading)
        if self._pause is not None:
            self._pause.cancel()
        self._tell()
        os.close(self._reading)
        os.close(self.descriptor)

    def _read(self) -> bool:
        """Whether there was something."""
        try:
            content = os.read(self._reading, MAX_LINE_BYTES)
        except BlockingIOError:
            return False
        *lines, self._rest = (self._rest + content).split(b"\n")
        if len(self._rest) > MAX_LINE_BYTES:
            lines, self._rest = [*lines, self._rest], b""
        wanted = True
        for line in lines:
            wanted = self._take(line, follows_wanted=wanted)
        if self._pause is None:
            self._tell_and_pause()
        return bool(content)

    def _take(self, line: bytes, *, follows_wanted: bool) -> bool:
        """Reads a line, and passes it on if it is wanted; whether it was."""
        if found := _IGNORED.search(line):
            self._ignored += 1
            self._example = found[1].decode(errors="replace")[:MAX_EXAMPLE_CHARACTERS]
        severity = _SEVERITY.match(line)
        # A text of several lines, which may quote a record, has a head in the first one only.
        wanted = follows_wanted
        if severity is not None:
            wanted = _LEVELS[severity["new"] or severity["old"]] >= self._least
        if wanted:
            sys.stderr.buffer.write(line + b"\n")
            sys.stderr.buffer.flush()
        return wanted

    def _tell_and_pause(self) -> None:
        self._pause = None
        if self._ignored:
            self._tell()
            self._pause = self._loop.call_later(PAUSE_S, self._tell_and_pause)

    def _tell(self) -> None:
        if self._ignored:
            self._on_ignored(self._ignored, self._example)
            self._ignored = 0


def _wanted_level(environment: Mapping[str, str]) -> int:
    """The least severity that whoever set this environment wants to see."""
    level = environment.get(LOG_LEVEL, "2")
    return int(level) if level.isdigit() else 2
