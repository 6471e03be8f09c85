"""Which service owns a cache's folder: one at a time, and a dead one does not block the next.

A lock of the operating system alone is not enough: network file systems drop it, ignore it or keep
it after a crash. So ownership is a file that its owner touches, with what tells whether that
process still lives: on the same machine by its pid, on another one by its heartbeat's age.
"""

from __future__ import annotations

import fcntl
import logging
import os
import socket
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

import psutil
from pydantic import BaseModel, ConfigDict, ValidationError

from cachew_core.cache.durable import write_whole
from cachew_core.errors import CacheError

_logger = logging.getLogger(__name__)

LEASE = "lease.json"
_MUTEX = "lease.lock"
_CLOCK = "lease.clock"

HEARTBEAT_S = 10.0
DEAD_AFTER_S = 60.0

_SAME_START_S = 5.0
"""Creation times move a little when the clock is set; pids come round much later."""


class Owner(BaseModel):
    """A process that owns something of a cache."""

    model_config = ConfigDict(frozen=True)

    token: str
    host: str
    """Machine, boot and pid namespace: where a pid means the same process."""
    pid: int
    started: float
    """Creation time of the process, seconds since the epoch."""

    @classmethod
    def this_process(cls) -> Self:
        """This process, as an owner that differs from all it was before."""
        return cls(
            token=uuid.uuid4().hex,
            host=_host(),
            pid=os.getpid(),
            started=psutil.Process().create_time(),
        )

    @property
    def lives(self) -> bool | None:
        """Whether the process is alive; None: it is out of sight."""
        if self.host != _host():
            return None
        try:
            process = psutil.Process(self.pid)
            return (
                abs(process.create_time() - self.started) < _SAME_START_S
                and process.status() != psutil.STATUS_ZOMBIE
            )
        except psutil.NoSuchProcess:
            return False

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host.split()[0]}"


class Lease:
    """A service's ownership of a folder, from construction to `release`."""

    def __init__(self, root: Path, *, heartbeat_s: float = HEARTBEAT_S) -> None:
        """Takes the folder's lease.

        Args:
            root: the folder.
            heartbeat_s: how often the lease is touched.

        Raises:
            CacheError: somebody else has it.
            OSError: the file system failed.
        """
        self._path = root / LEASE
        self._owner = Owner.this_process()
        with _mutex(root):
            self._refuse_if_owned()
            write_whole(self._path, self._owner.model_dump_json(indent=1).encode() + b"\n")
        self._released = threading.Event()
        self._heart = threading.Thread(
            target=self._beat, args=(heartbeat_s,), name="cachew-cache-lease", daemon=True
        )
        self._heart.start()

    def check(self) -> None:
        """Makes sure that the folder is still owned.

        Raises:
            CacheError: it is not, or that can't be told.
        """
        try:
            owner = _read(self._path)
        except OSError as error:
            raise CacheError(f"the cache's lease {self._path} can't be read: {error}") from error
        if self._released.is_set() or owner != self._owner:
            raise CacheError(
                f"the cache in {self._path.parent} (setting `cache_dir`) is no longer this "
                f"service's: {_describe(owner)} owns it"
            )

    def release(self) -> None:
        """Gives the folder free; may be called again."""
        if self._released.is_set():
            return
        self._released.set()
        self._heart.join()
        try:
            with _mutex(self._path.parent):
                if _read(self._path) == self._owner:
                    self._path.unlink()
        except OSError as error:
            # The next owner finds this process dead.
            _logger.warning("The cache's lease %s could not be removed: %s", self._path, error)

    def _refuse_if_owned(self) -> None:
        owner = _read(self._path)
        if owner is not None and _lives(owner, self._path):
            raise CacheError(
                f"the cache in {self._path.parent} (setting `cache_dir`) is in use by "
                f"{_describe(owner)}: end that service, or give this one another cache_dir"
            )
        if owner is not None:
            _logger.warning(
                "Taking over the cache in %s from %s, which is dead",
                self._path.parent,
                _describe(owner),
            )

    def _beat(self, heartbeat_s: float) -> None:
        while not self._released.wait(heartbeat_s):
            try:
                # Another owner's heartbeat is not ours to give.
                if _read(self._path) == self._owner:
                    os.utime(self._path)
            except OSError as error:
                _logger.warning("The cache's lease %s can't be renewed: %s", self._path, error)


@contextmanager
def _mutex(root: Path) -> Iterator[None]:
    """Keeps others out while the lease changes; the operating system ends it with the process."""
    descriptor = os.open(root / _MUTEX, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError as error:
            _logger.debug("%s has no locks (%s): going on without", root, error)
        yield
    finally:
        os.close(descriptor)


def _read(path: Path) -> Owner | None:
    try:
        return Owner.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError:
        # It is written in whole, so this is nobody's.
        return None


def _lives(owner: Owner, path: Path) -> bool:
    alive = owner.lives
    if alive is not None:
        return alive
    return _age_s(path) <= DEAD_AFTER_S


def _age_s(path: Path) -> float:
    """How long ago the file was touched, by the file system's own clock."""
    clock = path.with_name(_CLOCK)
    clock.write_bytes(b"")
    os.utime(clock)
    return clock.stat().st_mtime - path.stat().st_mtime


def _host() -> str:
    parts = [socket.gethostname()]
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
    with suppress(OSError):
        parts.append(os.readlink("/proc/self/ns/pid"))
    return " ".join(parts)


def _describe(owner: Owner | None) -> str:
    return "nobody" if owner is None else str(owner)
