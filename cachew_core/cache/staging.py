"""A node's own copy of what a bucket holds: workers write and read files on a local disk. What they
wrote is sent to the bucket once an epoch has ended; what they read is fetched before it begins.

No node needs to share a disk with another one, and TensorFlow never talks to the bucket.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from cachew_core.cache.durable import Stamp, bytes_below, read_through, remove
from cachew_core.cache.entry import RUNS, Chunk, DamagedError
from cachew_core.cache.folders import ENTRIES, WRITING, is_key
from cachew_core.cache.shelf import data_prefix
from cachew_core.cache.snapshot import Run, read_run
from cachew_core.errors import CacheError
from cachew_core.gcs import Bucket

_logger = logging.getLogger(__name__)

TRANSFERS = 4
"""Files that a node sends or fetches at the same time: enough to fill a small machine's line."""

LEAST_FREE_BYTES = 64 * 2**20
"""So much stays free on a stage's disk."""

_LOCKS = "locks"
_PART = ".part"

T = TypeVar("T")


class Stage:
    """A folder on a node. All methods may be called from any thread, also at the same time by
    other processes with the same folder.

    Args:
        folder: it is made where it is missing.
        bucket: what it is a copy of.
    """

    def __init__(self, folder: Path, bucket: Bucket) -> None:
        self.folder = folder
        self._bucket = bucket
        self._right: dict[Path, Stamp | None] = {}
        self._ended = threading.Event()

    def end(self) -> None:
        """Breaks off what other threads are doing here, as soon as the file at hand is through."""
        self._ended.set()

    def send(self, name: str) -> list[Run]:
        """Sends what this node's workers have written to the bucket.

        Args:
            name: of the writing's folder, `KEY-TOKEN`.

        Returns:
            The runs that lie here; none if nothing was written here.

        Raises:
            NotCompleteError: a run did not see the end of its input, or not all of it is here.
            CacheError: the bucket or the disk failed. What was sent already need not be sent again.
        """
        with self._locked(name), _explained(f"send {name}"):
            folder = self._place(name)
            if folder is None:
                return []
            runs = [read_run(path, folder) for path in sorted((folder / RUNS).iterdir())]
            prefix = data_prefix(*_parts(name))
            sent = {stored.name: stored.size_bytes for stored in self._bucket.listed(prefix)}
            chunks = [chunk for run in runs for chunk in run.chunks]
            missing = [chunk for chunk in chunks if sent.get(prefix + chunk.path) != chunk.bytes]
            self._in_parallel(
                lambda chunk: self._bucket.upload(folder / chunk.path, prefix + chunk.path), missing
            )
            self._keep_sent(name, folder, runs)
            return runs

    def fetch(self, name: str, files: Sequence[Chunk], *, keep: Collection[str] = ()) -> None:
        """Makes sure that all files of an entry are here, as they were committed.

        Args:
            name: of the entry's folder, `KEY-TOKEN`.
            files: all of them.
            keep: names of entries that do not go to make room.

        Raises:
            DamagedError: what the bucket holds is not what was committed.
            CacheError: the bucket or the disk failed.
        """
        with self._locked(name), _explained(f"fetch {name}"):
            folder = self.folder / ENTRIES / name
            missing = [chunk for chunk in files if not self._is_here(folder, chunk)]
            self._make_room(sum(chunk.bytes for chunk in missing), {name, *keep})
            for parent in {(folder / chunk.path).parent for chunk in missing}:
                parent.mkdir(parents=True, exist_ok=True)
            prefix = data_prefix(*_parts(name))
            self._in_parallel(lambda chunk: self._fetch(folder, prefix, chunk), missing)

    def tidy(self, keep: Collection[str]) -> None:
        """Removes all copies and writings but those of these names."""
        for path in (*self._listed(ENTRIES), *self._listed(WRITING)):
            if path.name not in keep:
                self._remove(path)

    def remove(self, name: str) -> None:
        """Removes the copy or writing of that name."""
        for part in (ENTRIES, WRITING):
            self._remove(self.folder / part / name)

    def _place(self, name: str) -> Path | None:
        """Where data lies: written here just now, or sent already."""
        places = [self.folder / part / name for part in (WRITING, ENTRIES)]
        return next((place for place in places if (place / RUNS).is_dir()), None)

    def _keep_sent(self, name: str, folder: Path, runs: Iterable[Run]) -> None:
        """What was written here need not be fetched from the bucket when it is read."""
        place = self.folder / ENTRIES / name
        if folder != place:
            place.parent.mkdir(parents=True, exist_ok=True)
            folder.rename(place)
        for run in runs:
            self._right.update((place / chunk.path, chunk.stamp) for chunk in run.chunks)

    def _is_here(self, folder: Path, chunk: Chunk) -> bool:
        path = folder / chunk.path
        try:
            stamp = Stamp.of(path.stat())
            if stamp.size_bytes != chunk.bytes:
                return False
            if self._right.get(path) != stamp and read_through(path).crc32 != chunk.crc32:
                return False
        except FileNotFoundError:
            return False
        self._right[path] = stamp
        return True

    def _fetch(self, folder: Path, prefix: str, chunk: Chunk) -> None:
        path = folder / chunk.path
        part = path.with_name(f"{path.name}.{uuid.uuid4().hex}{_PART}")
        try:
            self._bucket.download(prefix + chunk.path, part)
            content = read_through(part)
            if (content.size_bytes, content.crc32) != (chunk.bytes, chunk.crc32):
                raise DamagedError(f"chunk {chunk.path} has another content than was written")
            part.replace(path)
            self._right[path] = Stamp.of(path.stat())
        finally:
            part.unlink(missing_ok=True)

    def _make_room(self, needed_bytes: int, keep: Collection[str]) -> None:
        """Removes copies, the oldest first, until so many bytes fit."""
        self.folder.mkdir(parents=True, exist_ok=True)
        idle = [path for path in self._listed(ENTRIES) if path.name not in keep]
        for path in sorted(idle, key=_changed_at):
            if self._free_bytes() >= needed_bytes + LEAST_FREE_BYTES:
                return
            self._remove(path)
        if needed_bytes and self._free_bytes() < needed_bytes + LEAST_FREE_BYTES:
            raise CacheError(
                f"{self.folder} has {self._free_bytes()} bytes free, and {needed_bytes} bytes "
                "are to be fetched: give it room, or set cache_stage_dir"
            )

    def _free_bytes(self) -> int:
        return shutil.disk_usage(self.folder).free

    def _in_parallel(self, work: Callable[[T], None], things: Sequence[T]) -> None:
        def unless_ended(thing: T) -> None:
            if self._ended.is_set():
                raise CacheError("this worker node is ending")
            work(thing)

        with ThreadPoolExecutor(TRANSFERS, thread_name_prefix="cachew-stage") as pool:
            futures = [pool.submit(unless_ended, thing) for thing in things]
            try:
                for future in futures:
                    future.result()
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise

    @contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        """One at a time works on an entry, of all processes on this machine."""
        try:
            (self.folder / _LOCKS).mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.folder / _LOCKS / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        except OSError as error:
            raise CacheError(
                f"{self.folder} can't be written ({error}): set cache_stage_dir to another folder"
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _listed(self, part: str) -> list[Path]:
        try:
            return [p for p in (self.folder / part).iterdir() if is_key(_parts(p.name)[0])]
        except FileNotFoundError:
            return []

    def _remove(self, path: Path) -> None:
        if not path.exists():
            return
        size_bytes = bytes_below(path)
        try:
            remove(path)
            (self.folder / _LOCKS / path.name).unlink(missing_ok=True)
        except OSError as error:
            _logger.warning("%s stays: %s", path, error)
            return
        self._right = {p: s for p, s in self._right.items() if not p.is_relative_to(path)}
        _logger.info("%s is removed, %d bytes", path, size_bytes)


@contextmanager
def _explained(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CacheError(f"can't {what}: {error}") from error


def _parts(name: str) -> tuple[str, str]:
    key, _, token = name.partition("-")
    return key, token


def _changed_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
