"""The store of cached data: what may be read, what is being written, and what has to go.

Data becomes an entry by one rename, after all of it is durable and its manifest is written, so that
a reader never sees a part of it. Whoever owns the store is alone, hence what lies in `writing` and
is not this object's was left by somebody who is dead.
"""

from __future__ import annotations

import logging
import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from cachew_core.cache import folders
from cachew_core.cache.durable import bytes_below, remove, sync_folder, sync_tree, write_whole
from cachew_core.cache.entry import (
    JSON,
    MANIFEST,
    OPEN,
    RUNS,
    Chunk,
    DamagedError,
    Entry,
    Writing,
    encode_manifest,
    read_manifest,
)
from cachew_core.cache.lease import Lease
from cachew_core.cache.listing import entries_in, is_no_entry
from cachew_core.cache.pins import Pinning
from cachew_core.cache.snapshot import NotCompleteError, Run, read_run
from cachew_core.cache.verification import Verifier, problems
from cachew_core.errors import CacheError

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reclaimed:
    """What a `collect` removed."""

    bytes: int
    writings: int
    """Folders of writers that are dead."""
    leftovers: int
    """What else did not belong into the store's folders."""


class CacheStore(Pinning):
    """Entries on a mounted path. All methods may be called from any thread.

    Where `CacheError` is not mentioned, a failure of the file system is logged and means "no".

    Attributes:
        is_shared: workers and trainers see the files below the root where it is mounted.
    """

    is_shared = True

    def __init__(
        self, root: Path, *, capacity_bytes: int | None = None, store_id: str, lease: Lease
    ) -> None:
        """Serves a root that `open` has prepared, and keeps its lease."""
        super().__init__()
        self.root = root
        self.capacity_bytes = capacity_bytes
        self.store_id = store_id
        self._lease = lease
        self._writing: dict[str, Writing] = {}
        self._verifier = Verifier()

    @classmethod
    def open(
        cls, root: Path | str, *, capacity_bytes: int | None = None, require_mount: bool = False
    ) -> Self:
        """Opens the store in that folder, and makes it one if it is none yet.

        Args:
            root: a folder that is there, the same on all machines that share the cache.
            capacity_bytes: how much entries and what is being written may take together; None is
                as much as there is.
            require_mount: whether the folder must be a mount point, so that a lost mount is not
                mistaken for an empty cache.

        Raises:
            CacheError: the folder can't be used or is another service's, or the capacity is too
                small.
        """
        root = Path(os.path.abspath(root))
        folders.prepare(root, capacity_bytes=capacity_bytes, require_mount=require_mount)
        with ExitStack() as undo:
            try:
                lease = Lease(root)
                undo.callback(lease.release)
                store_id = folders.store_id(root)
            except OSError as error:
                raise CacheError(f"cache_dir {root} can't be written: {error}") from error
            undo.pop_all()
        return cls(root, capacity_bytes=capacity_bytes, store_id=store_id, lease=lease)

    def close(self) -> None:
        """Gives the root free for another service; what is being written is left as it is."""
        self._lease.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def begin(self, key: str) -> Writing | None:
        """Makes a place to write the data of that key, and reclaims what a dead writer left of it.

        Returns:
            None while another writing of the key is open, or there is an entry of it (one that was
            given up goes with its last reader).

        Raises:
            CacheError: the place can't be made.
        """
        _check_key(key)
        with self._lock:
            self._check_owned()
            try:
                if key in self._writing or not self._is_free(key):
                    return None
                folder = self.root / folders.WRITING / f"{key}-{uuid.uuid4().hex}"
                dead = list(folder.parent.glob(f"{key}-*"))
                (folder / RUNS).mkdir(parents=True)
                (folder / OPEN).touch()
            except OSError as error:
                raise CacheError(f"can't begin to write cache entry {key}: {error}") from error
            writing = Writing(key=key, path=folder / RUNS, witness=folder / OPEN)
            self._writing[key] = writing
        for path in dead:
            self._remove(path)
        return writing

    def commit(self, writing: Writing, *, least_runs: int, facts: Mapping[str, JSON]) -> Entry:
        """Makes what was written an entry, all at once. Reads all of it, so it takes its time.

        After an error the writing is still open: try again later, or `abandon` it.

        Args:
            writing: from `begin`.
            least_runs: how many runs at least must have written their data.
            facts: kept with the entry.

        Raises:
            NotCompleteError: a run did not see the end of its input, or there are too few.
            CacheError: the file system failed, or the store is no longer this service's.
            ValueError: the facts are not JSON.
        """
        self._check_open(writing)
        try:
            runs = _read_runs(writing, least_runs)
            entry = self._describe(writing.key, runs, facts)
            (writing.folder / OPEN).unlink(missing_ok=True)
            write_whole(writing.folder / MANIFEST, encode_manifest(entry))
            sync_tree(writing.folder)
            self._publish(writing, entry)
        except OSError as error:
            raise CacheError(f"can't commit cache entry {writing.key}: {error}") from error
        return entry

    def abandon(self, writing: Writing) -> None:
        """Gives a writing up and removes what was written, also once more: a writer that had not
        heard of it yet makes its folder anew. What was committed stays.
        """
        with self._lock:
            if self._writing.get(writing.key) == writing:
                del self._writing[writing.key]
        self._remove(writing.folder)

    def find(self, key: str) -> Entry | None:
        """The entry of that key, if it is there and whole.

        Sizes are looked at each time; checksums, which reads a file, where it does not look as it
        did when it was last read. A damaged entry is given up: the log says why.
        """
        _check_key(key)
        with self.use(key):
            if key in self._condemned:
                return None
            try:
                entry = self._read(key)
                if entry is not None:
                    self._verifier.check(entry)
                return entry
            except DamagedError as damage:
                _logger.warning("Cache entry %s is given up: %s", key, damage)
                self.drop(key)
            except OSError as error:
                _logger.warning("Cache entry %s can't be read for now: %s", key, error)
            return None

    def make_ready(self, entry: Entry, *, wait_s: float) -> bool:
        """Whether an entry in use can be read on all worker nodes: they see the same folder."""
        return True

    def check(self, entry: Entry, chunks: Iterable[Chunk]) -> str:
        """What is wrong with those files of an entry that is in use; empty: nothing.

        Checksums are looked at where a file was changed since the entry was found. A damaged entry
        is given up.
        """
        try:
            for chunk in chunks:
                self._verifier.check_one(entry, chunk)
        except DamagedError as damage:
            _logger.warning("Cache entry %s is given up: %s", entry.key, damage)
            self.drop(entry.key)
            return str(damage)
        except OSError as error:
            return f"it can't be read for now: {error}"
        return ""

    def doubt(self, entry: Entry, chunks: Iterable[Chunk]) -> None:
        """Has `find` read those files again, whatever they look like."""
        self._verifier.doubt(entry, chunks)

    def verify(self, key: str) -> list[str]:
        """Reads all of an entry. Nothing is changed.

        Returns:
            What is wrong with it; empty if it is whole.
        """
        _check_key(key)
        with self.use(key):
            try:
                entry = self._read(key)
                return ["there is no such entry"] if entry is None else problems(entry)
            except (DamagedError, OSError) as error:
                return [str(error)]

    def entries(self) -> list[Entry]:
        """All entries by key, as their manifests say; their files are not looked at."""
        listed = self._listed(folders.ENTRIES)
        return entries_in(folder for folder in listed if folder.name not in self._condemned)

    def drop(self, key: str) -> bool:
        _check_key(key)
        trash = self._retire(key)
        if trash is not None:
            self._remove(trash)
        return trash is not None

    def scratch(self) -> Path:
        """A folder for measurements that is not there yet; `collect` removes what is left of it."""
        return self.root / folders.WRITING / f"measurement-{uuid.uuid4().hex}"

    def collect(self) -> Reclaimed:
        """Removes what dead writers left, and what else is no entry.

        Raises:
            CacheError: the store is no longer this service's.
        """
        with self._lock:
            self._check_owned()
            alive = {writing.folder for writing in self._writing.values()}
            dead = [path for path in self._listed(folders.WRITING) if path not in alive]
            leftovers = self._listed(folders.TRASH) + folders.drafts(self.root)
            for path in self._listed(folders.ENTRIES):
                if is_no_entry(path) and (trash := self._retire(path.name)):
                    leftovers.append(trash)
        freed_bytes = sum(self._remove(path) for path in dead + leftovers)
        return Reclaimed(bytes=freed_bytes, writings=len(dead), leftovers=len(leftovers))

    def available_bytes(self) -> int:
        """What could be written if everything that nobody reads made room."""
        with self._lock:
            idle = sum(entry.bytes for entry in self.entries() if not self._pins[entry.key])
            return self._room_bytes() + idle

    def make_room(self, needed_bytes: int, benefit: Callable[[Entry], float]) -> bool:
        """Removes entries, those of least benefit first, until so many bytes may be written.

        Nothing is removed if that would not be enough; an entry in use never is.

        Args:
            needed_bytes: how much room is asked for.
            benefit: what an entry is worth.

        Returns:
            Whether there is that much room.
        """
        with self._lock:
            victims = self._victims(needed_bytes - self._room_bytes(), benefit)
            if victims is None:
                return False
            retired = [(entry, self._retire(entry.key)) for entry in victims]
        for entry, trash in retired:
            if trash is not None:
                _logger.info("Cache entry %s (%d bytes) makes room", entry.key, entry.bytes)
                self._remove(trash)
        return needed_bytes <= self._room_bytes()

    def _check_open(self, writing: Writing) -> None:
        with self._lock:
            if self._writing.get(writing.key) != writing:
                raise CacheError(f"the writing of cache entry {writing.key} is not open any more")

    def _is_free(self, key: str) -> bool:
        folder = self._folder(key)
        if key in self._condemned or not (folder / MANIFEST).exists():
            self.drop(key)
        return not folder.exists()

    def _describe(self, key: str, runs: list[Run], facts: Mapping[str, JSON]) -> Entry:
        files = tuple(chunk for run in runs for chunk in run.chunks)
        return Entry(
            key=key,
            path=self._folder(key),
            files=files,
            elements=sum(run.elements for run in runs),
            bytes=sum(chunk.bytes for chunk in files),
            created_at=datetime.now(UTC),
            facts=dict(facts),
        )

    def _publish(self, writing: Writing, entry: Entry) -> None:
        with self._lock:
            self._check_open(writing)
            self._check_owned()
            writing.folder.rename(entry.path)
            del self._writing[writing.key]
        sync_folder(entry.path.parent)
        sync_folder(writing.folder.parent)

    def _read(self, key: str) -> Entry | None:
        folder = self._folder(key)
        try:
            return read_manifest(folder)
        except FileNotFoundError as error:
            if not folder.exists():
                return None
            raise DamagedError(f"{MANIFEST} is missing") from error

    def _victims(self, missing_bytes: int, benefit: Callable[[Entry], float]) -> list[Entry] | None:
        victims = []
        candidates = [entry for entry in self.entries() if not self._pins[entry.key]]
        for entry in sorted(candidates, key=benefit):
            if missing_bytes <= 0:
                break
            victims.append(entry)
            missing_bytes -= entry.bytes
        return victims if missing_bytes <= 0 else None

    def _retire(self, name: str) -> Path | None:
        """Takes what has that name out of the entries, unless it is in use; where it lies now."""
        trash = self.root / folders.TRASH / f"{name}-{uuid.uuid4().hex}"
        with self._lock:
            try:
                if self._pins[name]:
                    if self._folder(name).exists():
                        self._condemned.add(name)
                    return None
                self._verifier.forget(name)
                self._check_owned()
                self._folder(name).rename(trash)
            except FileNotFoundError:
                self._condemned.discard(name)
                return None
            except (CacheError, OSError) as error:
                # It is not offered again by this process, whatever is on disk.
                self._condemned.add(name)
                _logger.warning("Cache entry %s can't be removed: %s", name, error)
                return None
            self._condemned.discard(name)
            return trash

    def _room_bytes(self) -> int:
        free_bytes = shutil.disk_usage(self.root).free
        if self.capacity_bytes is None:
            return free_bytes
        used_bytes = sum(
            bytes_below(self.root / name)
            for name in (folders.ENTRIES, folders.WRITING, folders.TRASH)
        )
        return min(free_bytes, self.capacity_bytes - used_bytes)

    def _listed(self, name: str) -> list[Path]:
        try:
            return sorted((self.root / name).iterdir())
        except OSError as error:
            _logger.warning("The cache's folder %s can't be read: %s", self.root / name, error)
            return []

    def _remove(self, path: Path) -> int:
        """Removes what nobody looks for any more; how many bytes that gave free."""
        size_bytes = bytes_below(path)
        try:
            remove(path)
        except OSError as error:
            _logger.warning("%s stays until the cache is collected: %s", path, error)
            return 0
        return size_bytes

    def _folder(self, key: str) -> Path:
        return self.root / folders.ENTRIES / key

    def _check_owned(self) -> None:
        folders.check_same(self.root, self.store_id)
        self._lease.check()


def _check_key(key: str) -> None:
    if not folders.is_key(key):
        raise CacheError(f"{key!r} is no cache key: it must be 64 lower-case hexadecimal digits")


def _read_runs(writing: Writing, least_runs: int) -> list[Run]:
    runs = [read_run(folder, writing.folder) for folder in sorted(writing.path.iterdir())]
    # No run at all is no empty cache point: that one has runs without elements.
    if len(runs) < max(1, least_runs):
        raise NotCompleteError(
            f"{len(runs)} runs wrote data of cache entry {writing.key}, and there should be "
            f"{max(1, least_runs)}"
        )
    return runs
