"""What the signals that end a program do to one that must leave nothing behind.

Kubernetes and `kill` send SIGTERM, a closed terminal SIGHUP, Ctrl-C SIGINT; on the first two Python
would just end. For the main thread, where kfp runs a component's function.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType

logger = logging.getLogger(__name__)


@contextmanager
def as_exception() -> Iterator[None]:
    """Turns SIGTERM and SIGHUP into SystemExit, so that what the block began is cleared away.

    The exit code is the one that shells give: 128 and the signal's number.
    """

    def leave(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    with _handled([signal.SIGTERM, signal.SIGHUP], leave):
        yield


@contextmanager
def deferred() -> Iterator[None]:
    """Lets the block end before a signal takes effect, for clean-up that is soon done."""
    came: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        came.append(number)
        logger.warning("%s: this ends once the service is down", signal.Signals(number).name)

    with _handled([signal.SIGINT, signal.SIGTERM, signal.SIGHUP], note):
        yield
    for number in came[:1]:
        signal.raise_signal(number)


@contextmanager
def _handled(
    numbers: Iterable[signal.Signals], handler: Callable[[int, FrameType | None], None]
) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)
