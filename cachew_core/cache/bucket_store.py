"""The store of cached data in a bucket, as a dispatcher sees it: it decides, and worker nodes carry
the data between the bucket and their own disks.

Several services may use one bucket: of two that would write the same data one does, and each reads
what the others have stored.
"""

from __future__ import annotations

import logging
import shutil
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from cachew_core.cache.claims import Claim
from cachew_core.cache.entry import JSON, RUNS, Chunk, DamagedError, Entry, Writing
from cachew_core.cache.folders import LEAST_CAPACITY_BYTES, WRITING, is_key
from cachew_core.cache.pins import Pinning
from cachew_core.cache.shelf import Shelf, staged_name
from cachew_core.cache.snapshot import NotCompleteError
from cachew_core.cache.store import Reclaimed
from cachew_core.errors import CacheError

_logger = logging.getLogger(__name__)


class Carrier(Protocol):
    """Moves data between a bucket and the disks of worker nodes. Calls may wait: make them in
    threads.
    """

    def begin(self, name: str) -> None:
        """From now on, workers may write to the folder of that name."""

    def send(self, name: str) -> Sequence[tuple[Sequence[Chunk], int]]:
        """Has all nodes send what was written; the chunks and the count of elements of each run.

        Raises:
            NotCompleteError: something of it is not whole, or is out of reach.
            CacheError: it could not be sent.
        """

    def hold(self, name: str, files: Sequence[Chunk]) -> None:
        """From now on, nodes that get work have that entry before they begin."""

    def fetch(self, name: str, *, wait_s: float) -> bool:
        """Has all nodes fetch an entry that is held; whether they have it within that time.

        Raises:
            DamagedError: what the bucket holds is not what was committed.
            CacheError: it could not be fetched.
        """

    def let_go(self, name: str, *, remove: bool) -> None:
        """The entry or writing is not used any more; its copies may be removed."""


class BucketStore(Pinning):
    """Entries in a bucket. All methods may be called from any thread.

    Where `CacheError` is not mentioned, a failure of the bucket is logged and means "no".

    Args:
        shelf: what is in the bucket.
        stage: the folder of each node's copy, on this machine, too.
        carrier: of the data.
        capacity_bytes: how much entries may take together; None is as much as there is.

    Attributes:
        is_shared: False, each worker node has files of its own.
    """

    is_shared = False

    def __init__(
        self, shelf: Shelf, stage: Path, carrier: Carrier, *, capacity_bytes: int | None = None
    ) -> None:
        super().__init__()
        self.root = stage
        self.capacity_bytes = capacity_bytes
        self._shelf = shelf
        self._carrier = carrier
        self._writing: dict[str, tuple[Writing, Claim]] = {}
        self._copies: defaultdict[str, set[str]] = defaultdict(set)
        self._held: dict[str, str] = {}

    def close(self) -> None:
        """Gives back what is claimed; what other services have is as it was."""
        self._shelf.close()

    def begin(self, key: str) -> Writing | None:
        """Makes a place to write the data of that key, and reclaims what a dead writer left of it.

        Returns:
            None while another writing of the key is open, here or in another service, or there is
            an entry of it.

        Raises:
            CacheError: the bucket failed.
        """
        _check_key(key)
        with self._lock:
            if key in self._writing or self._shelf.bucket.listed(f"entries/{key}"):
                return None
            claim = self._shelf.claims.take(key)
            if claim is None:
                return None
            name = staged_name(key, claim.token)
            writing = Writing(key=key, path=self.root / WRITING / name / RUNS)
            self._writing[key] = writing, claim
        self._carrier.begin(name)
        if claim.replaced:
            self._shelf.remove_data(key, claim.replaced)
        return writing

    def commit(self, writing: Writing, *, least_runs: int, facts: Mapping[str, JSON]) -> Entry:
        """Has what was written sent to the bucket, and makes it an entry.

        After an error the writing is still open: try again later, or `abandon` it.

        Args:
            writing: from `begin`.
            least_runs: how many runs at least must have written their data.
            facts: kept with the entry.

        Raises:
            NotCompleteError: a run did not see the end of its input, there are too few, or a node
                that has some is gone.
            CacheError: the bucket failed, or another service took the writing over.
            ValueError: the facts are not JSON.
        """
        claim = self._claim_of(writing)
        runs = self._carrier.send(staged_name(writing.key, claim.token))
        if len(runs) < max(1, least_runs):
            raise NotCompleteError(
                f"{len(runs)} runs wrote data of cache entry {writing.key}, and there should be "
                f"{max(1, least_runs)}"
            )
        entry = _describe(writing.key, self.root, claim, runs, facts)
        self._shelf.claims.check(claim)
        self._shelf.publish(entry, claim.token)
        with self._lock:
            self._writing.pop(writing.key, None)
            self._copies[entry.key].add(entry.path.name)
            self._condemned.discard(writing.key)
        with suppress(CacheError):
            self._shelf.claims.release(claim)
        return entry

    def abandon(self, writing: Writing) -> None:
        """Gives a writing up and removes what was written; nothing happens if it is not open."""
        with self._lock:
            held = self._writing.get(writing.key)
            if held is None or held[0] != writing:
                return
            del self._writing[writing.key]
        claim = held[1]
        self._carrier.let_go(staged_name(writing.key, claim.token), remove=True)
        try:
            self._shelf.remove_data(writing.key, claim.token)
            self._shelf.claims.release(claim)
        except CacheError as error:
            _logger.warning("Data of cache entry %s stays: %s", writing.key, error)

    def find(self, key: str) -> Entry | None:
        """The entry of that key, if it is there and all its files have the sizes that they had.

        A damaged entry is given up: the log says why.
        """
        _check_key(key)
        if key in self._condemned:
            return None
        try:
            shelved = self._shelf.look(key)
            if shelved is None:
                return None
            self._shelf.check(shelved)
        except DamagedError as damage:
            self._give_up(key, damage)
            return None
        except CacheError as error:
            _logger.warning("Cache entry %s can't be read for now: %s", key, error)
            return None
        with self._lock:
            self._copies[key].add(shelved.entry.path.name)
        return shelved.entry

    def make_ready(self, entry: Entry, *, wait_s: float) -> bool:
        """Brings an entry in use to the worker nodes.

        Returns:
            Whether it is there within that time; if not, it goes on being fetched.

        Raises:
            CacheError: it can't be brought there.
        """
        name = entry.path.name
        with self._lock:
            if self._pins[entry.key]:
                self._held[entry.key] = name
                self._carrier.hold(name, entry.files)
        try:
            return self._carrier.fetch(name, wait_s=wait_s)
        except DamagedError as damage:
            self._give_up(entry.key, damage)
            raise CacheError(f"cache entry {entry.key} is damaged: {damage}") from damage

    def check(self, entry: Entry, chunks: Iterable[Chunk]) -> str:
        """Why nobody but workers may read those files."""
        return "its files lie on the worker nodes only"

    def doubt(self, entry: Entry, chunks: Iterable[Chunk]) -> None:
        """Nothing to do: worker nodes look at their files each time, and nobody else reads them."""

    def verify(self, key: str) -> list[str]:
        """Reads all of an entry; what is wrong with it, empty if it is whole."""
        _check_key(key)
        return self._shelf.verify(key)

    def entries(self) -> list[Entry]:
        """All entries by key, as their manifests say; their files are not looked at."""
        try:
            entries = self._shelf.entries()
            with self._lock:
                for entry in entries:
                    self._copies[entry.key].add(entry.path.name)
            return [entry for entry in entries if entry.key not in self._condemned]
        except CacheError as error:
            _logger.warning("The cache's entries can't be listed: %s", error)
            return []

    def _is_unused(self, key: str) -> None:
        held = self._held.pop(key, None)
        if held is not None:
            self._carrier.let_go(held, remove=False)

    def drop(self, key: str) -> bool:
        _check_key(key)
        with self._lock:
            if self._pins[key]:
                self._condemned.add(key)
                return False
            copies = self._copies.pop(key, set())
        try:
            gone = self._shelf.drop(key)
        except CacheError as error:
            self._condemned.add(key)
            _logger.warning("Cache entry %s can't be removed: %s", key, error)
            return False
        self._condemned.discard(key)
        for name in copies:
            self._carrier.let_go(name, remove=True)
        return gone

    def scratch(self) -> Path:
        """A folder for measurements that is not there yet."""
        return self.root / WRITING / f"measurement-{uuid.uuid4().hex}"

    def collect(self) -> Reclaimed:
        """Removes what dead writers left, of any service.

        Raises:
            CacheError: the bucket failed.
        """
        return self._shelf.collect()

    def available_bytes(self) -> int:
        """What could be written if everything that nobody reads made room."""
        free_bytes = shutil.disk_usage(self.root).free
        if self.capacity_bytes is None:
            return free_bytes
        pinned_bytes = sum(entry.bytes for entry in self.entries() if self._pins[entry.key])
        return min(free_bytes, self.capacity_bytes - pinned_bytes)

    def make_room(self, needed_bytes: int, benefit: Callable[[Entry], float]) -> bool:
        """Removes entries, those of least benefit first, until so many bytes may be written.

        Nothing is removed if that would not be enough; an entry in use never is.

        Args:
            needed_bytes: how much room is asked for.
            benefit: what an entry is worth.

        Returns:
            Whether there is that much room.
        """
        if self.capacity_bytes is None:
            return True
        entries = self.entries()
        missing_bytes = needed_bytes + sum(entry.bytes for entry in entries) - self.capacity_bytes
        victims = []
        for entry in sorted((e for e in entries if not self._pins[e.key]), key=benefit):
            if missing_bytes <= 0:
                break
            victims.append(entry)
            missing_bytes -= entry.bytes
        if missing_bytes > 0:
            return False
        for entry in victims:
            _logger.info("Cache entry %s (%d bytes) makes room", entry.key, entry.bytes)
        return all([self.drop(entry.key) for entry in victims])

    def _give_up(self, key: str, damage: DamagedError) -> None:
        _logger.warning("Cache entry %s is given up: %s", key, damage)
        self.drop(key)

    def _claim_of(self, writing: Writing) -> Claim:
        with self._lock:
            held = self._writing.get(writing.key)
            if held is None or held[0] != writing:
                raise CacheError(f"the writing of cache entry {writing.key} is not open any more")
            return held[1]


def check_capacity(capacity_bytes: int | None) -> None:
    """Refuses a capacity that is less than one chunk.

    Raises:
        CacheError: it is.
    """
    if capacity_bytes is not None and capacity_bytes < LEAST_CAPACITY_BYTES:
        raise CacheError(
            f"cache_capacity_bytes is {capacity_bytes}, which is less than one chunk: set it to "
            f"{LEAST_CAPACITY_BYTES} or more"
        )


def _describe(
    key: str,
    root: Path,
    claim: Claim,
    runs: Sequence[tuple[Sequence[Chunk], int]],
    facts: Mapping[str, JSON],
) -> Entry:
    files = tuple(chunk for chunks, _ in runs for chunk in chunks)
    return Entry(
        key=key,
        path=root / "entries" / staged_name(key, claim.token),
        files=files,
        elements=sum(elements for _, elements in runs),
        bytes=sum(chunk.bytes for chunk in files),
        created_at=datetime.now(UTC),
        facts=dict(facts),
    )


def _check_key(key: str) -> None:
    if not is_key(key):
        raise CacheError(f"{key!r} is no cache key: it must be 64 lower-case hexadecimal digits")
