"""What SIGTERM does to a step: Kubernetes and `kill` send it, and Python would just end.

For the main thread, where kfp runs a component's function.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

logger = logging.getLogger(__name__)

EXIT_CODE = 128 + signal.SIGTERM
"""What shells give a command that SIGTERM ended."""


@contextmanager
def raises() -> Iterator[None]:
    """Turns SIGTERM into SystemExit, so that what the block began is cleared away."""

    def leave(_signal: int, _frame: FrameType | None) -> None:
        raise SystemExit(EXIT_CODE)

    previous = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


@contextmanager
def waits() -> Iterator[None]:
    """Lets the block end before SIGTERM takes effect, for what is quicker than a grace period."""
    came = False

    def note(_signal: int, _frame: FrameType | None) -> None:
        nonlocal came
        came = True
        logger.warning("SIGTERM: the step ends once the service is down")

    previous = signal.signal(signal.SIGTERM, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
    if came:
        raise SystemExit(EXIT_CODE)
