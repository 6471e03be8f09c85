"""One command at a time for each service's name, and a way for `down` to interrupt an `up`.

Both are advisory locks of the operating system (flock), which end with the process that holds them:
a command that was killed leaves nothing that blocks the next one.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cachew_core.cluster.processes import POLL_S
from cachew_core.errors import ServiceError

_LOCK = "lock"
_STOP = "stop"


@contextmanager
def _open(path: Path) -> Iterator[int]:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int, operation: int) -> bool:
    try:
        fcntl.flock(descriptor, operation | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def held(folder: Path, *, timeout_s: float) -> Iterator[None]:
    """Holds the lock of the service in that folder.

    Args:
        folder: the service's folder; made if it is not there.
        timeout_s: how long another command may keep it.

    Raises:
        ServiceError: another command held it all that time.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        with _open(folder / _LOCK) as descriptor:
            if _try_lock(descriptor, fcntl.LOCK_EX) and _is_still(folder / _LOCK, descriptor):
                yield
                return
        if time.monotonic() >= deadline:
            raise ServiceError(
                f"another command has been starting or ending service {folder.name!r} for over "
                f"{timeout_s:g} s: wait for it or end it, then try again"
            )
        time.sleep(POLL_S)


def _is_still(path: Path, descriptor: int) -> bool:
    """Whether the file at that path is the locked one: an old service's folder may be removed."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def is_held(folder: Path) -> bool:
    """Whether some command works on the service in that folder now."""
    if not (folder / _LOCK).exists():
        return False
    with _open(folder / _LOCK) as descriptor:
        return not _try_lock(descriptor, fcntl.LOCK_EX)


@contextmanager
def stop_requested(folder: Path) -> Iterator[None]:
    """Asks, for as long as the block runs, whoever starts the service in that folder to give up."""
    with _open(folder / _STOP) as descriptor:
        # Shared, so that several may ask. A starter's look takes microseconds, so this does not
        # wait.
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield


def is_stop_requested(folder: Path) -> bool:
    """Whether somebody is inside `stop_requested` for that folder."""
    with _open(folder / _STOP) as descriptor:
        return not _try_lock(descriptor, fcntl.LOCK_EX)
