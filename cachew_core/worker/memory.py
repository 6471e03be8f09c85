"""Notices a worker that has come to hold too much memory.

Pipelines and allocators may keep more from epoch to epoch until the system kills them. What counts
is what the process's end would free: pages that all children share were there before it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import psutil

LOOK_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLimit:
    """When a worker is to be replaced.

    Attributes:
        held_bytes: it holds more than this.
        after_s: it has worked for so long: a pipeline that needs as much would else have its
            workers replaced all the time.
    """

    held_bytes: int
    after_s: float

    async def passed(self, pid: int) -> int:
        """Waits until a process is over the limit, and says how many bytes it holds."""
        await asyncio.sleep(self.after_s)
        while True:
            held = await asyncio.to_thread(held_bytes, pid)
            if held > self.held_bytes:
                return held
            await asyncio.sleep(LOOK_S)


def held_bytes(pid: int) -> int:
    """What a process's end would free; 0 if it has ended."""
    try:
        return int(psutil.Process(pid).memory_full_info().uss)
    except psutil.Error:
        return 0
