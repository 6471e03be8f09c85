"""How busy the trainer's process keeps its processor: receiving batches takes some of it, too."""

from __future__ import annotations

import os
import time

LEAST_S = 1.0
"""A share over less time is chance."""


class ProcessorUse:
    """The process's use of the cores that it may use, second by second."""

    def __init__(self) -> None:
        self._cores = len(os.sched_getaffinity(0))
        self._at, self._used_s = time.monotonic(), time.process_time()
        self._share = 0.0

    def share(self) -> float:
        """Of the last second or so, 0 to 1; 0 at first."""
        now = time.monotonic()
        if now - self._at >= LEAST_S:
            used_s = time.process_time()
            self._share = min(1.0, (used_s - self._used_s) / (now - self._at) / self._cores)
            self._at, self._used_s = now, used_s
        return self._share
