"""The entries that lie in a bucket: a manifest each, and the chunk files that it names.

An entry is there once its manifest is, which is one object, written last and on condition that
there is none. Each writer's chunk files have names of their own, so that two writers of the same
data never mix theirs.
"""

from __future__ import annotations

import json
import logging
import threading
import zlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from cachew_core.cache.claims import Claims
from cachew_core.cache.entry import Chunk, DamagedError, Entry, decode_manifest, encode_manifest
from cachew_core.cache.store import Reclaimed
from cachew_core.errors import CacheError
from cachew_core.gcs import NEW, Bucket, StoredObject

_logger = logging.getLogger(__name__)

MANIFESTS = "entries/"
DATA = "data/"

_CALLS = 8
"""Calls at the same time."""

_PROBE = "probes/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shelved:
    """An entry in the bucket."""

    entry: Entry
    """Its path is where its files are on nodes that have fetched it."""
    token: str
    """Of its writer."""
    generation: int
    """Of its manifest."""


def data_prefix(key: str, token: str) -> str:
    """What the names of a writer's chunk files begin with."""
    return f"{DATA}{key}/{token}/"


def staged_name(key: str, token: str) -> str:
    """The name of the folder in which a writer's data lies on a node."""
    return f"{key}-{token}"


class Shelf:
    """What is in a bucket. All methods may be called from any thread, and raise `CacheError` when
    the bucket fails.

    Args:
        bucket: where it lies.
        stage: the folder of fetched entries, for their paths.
    """

    def __init__(self, bucket: Bucket, stage: Path = Path("/")) -> None:
        self.bucket = bucket
        self.claims = Claims(bucket)
        self._stage = stage
        self._known: dict[str, Shelved] = {}
        self._lock = threading.Lock()

    @classmethod
    def open(cls, url: str, stage: Path = Path("/")) -> Self:
        """Connects to `gs://bucket/prefix`.

        Raises:
            CacheError: it can't be used; names the setting.
        """
        try:
            shelf = cls(Bucket(url), stage)
            shelf.bucket.listed(MANIFESTS)
        except CacheError as error:
            raise CacheError(f"cache_dir {url} can't be used: {error}") from error
        return shelf

    def check_writable(self) -> None:
        """Makes sure that entries can be written and removed; names the setting if not."""
        name = f"{_PROBE}{self.claims.own_token}"
        try:
            self.bucket.write(name, b"")
            self.bucket.delete(name)
        except CacheError as error:
            raise CacheError(f"cache_dir {self.bucket.url} can't be written: {error}") from error

    def close(self) -> None:
        """Gives back what this process has claimed."""
        self.claims.close()
        self.bucket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def look(self, key: str) -> Shelved | None:
        """The entry of that key, as its manifest says."""
        found = self.bucket.read(_manifest_name(key))
        return None if found is None else self._shelved(key, *found)

    def check(self, shelved: Shelved) -> None:
        """Compares what is there with the manifest, by names and sizes.

        Raises:
            DamagedError: a chunk is missing, or has another size.
        """
        there = self._data(shelved)
        for chunk in shelved.entry.files:
            _check_size(chunk, there.get(chunk.path))

    def shelved(self) -> list[Shelved]:
        """All entries, by key; what is no entry is left out."""
        listed = self.bucket.listed(MANIFESTS)
        with ThreadPoolExecutor(_CALLS) as pool:
            return [found for found in pool.map(self._known_or_read, listed) if found is not None]

    def entries(self) -> list[Entry]:
        """All entries, by key."""
        return [shelved.entry for shelved in self.shelved()]

    def keys(self) -> list[str]:
        """The keys of all entries, in order, also of those whose manifest is damaged."""
        return [_key_of(stored) for stored in self.bucket.listed(MANIFESTS)]

    def publish(self, entry: Entry, token: str) -> None:
        """Makes it an entry.

        Raises:
            CacheError: there is one with that key already.
            ValueError: its facts are not JSON.
        """
        document = {"writer": token, "entry": json.loads(encode_manifest(entry))}
        content = json.dumps(document, indent=1).encode() + b"\n"
        if self.bucket.write(_manifest_name(entry.key), content, generation=NEW) is None:
            raise CacheError(f"cache entry {entry.key} was stored by another service meanwhile")

    def drop(self, key: str) -> bool:
        """Removes an entry; whether it was there. One that is damaged goes, too."""
        found = self.bucket.read(_manifest_name(key))
        if found is None:
            return False
        shelved = self._shelved(key, *found, quiet=True)
        gone = self.bucket.delete(_manifest_name(key), generation=found[1].generation)
        self._known.pop(key, None)
        if gone and shelved is not None:
            self.remove_data(key, shelved.token)
        return gone

    def remove_data(self, key: str, token: str) -> int:
        """Removes a writer's chunk files; how many bytes that were."""
        return self._delete(self.bucket.listed(data_prefix(key, token)))

    def verify(self, key: str) -> list[str]:
        """Reads all of an entry and says what is wrong with it; empty if it is whole."""
        try:
            shelved = self.look(key)
        except (DamagedError, CacheError) as error:
            return [str(error)]
        if shelved is None:
            return ["there is no such entry"]
        with ThreadPoolExecutor(_CALLS) as pool:
            found = pool.map(lambda chunk: self._problem(shelved, chunk), shelved.entry.files)
            return [problem for problem in found if problem]

    def collect(self) -> Reclaimed:
        """Removes what dead writers left, and manifests that can't be read."""
        # A writer claims, then writes data, then the manifest, then gives the claim back: looked
        # for in that order, whatever is no dead writer's is seen as somebody's.
        data = self.bucket.listed(DATA)
        living = self.claims.living()
        manifests = self.bucket.listed(MANIFESTS)
        shelved = {stored.name: self._known_or_read(stored) for stored in manifests}
        kept = living | {found.token for found in shelved.values() if found is not None}
        dead = [stored for stored in data if _token_of(stored) not in kept]
        odd = [stored for stored in manifests if shelved[stored.name] is None]
        writings = {_token_of(stored) for stored in dead}
        freed_bytes = self._delete(dead) + self._delete(odd)
        return Reclaimed(bytes=freed_bytes, writings=len(writings), leftovers=len(odd))

    def _delete(self, objects: Iterable[StoredObject]) -> int:
        with ThreadPoolExecutor(_CALLS) as pool:
            return sum(
                pool.map(
                    lambda stored: stored.size_bytes * self.bucket.delete(stored.name), objects
                )
            )

    def _known_or_read(self, stored: StoredObject) -> Shelved | None:
        key = _key_of(stored)
        known = self._known.get(key)
        if known is not None and known.generation == stored.generation:
            return known
        found = self.bucket.read(stored.name)
        return None if found is None else self._shelved(key, *found, quiet=True)

    def _shelved(
        self, key: str, content: bytes, stored: StoredObject, *, quiet: bool = False
    ) -> Shelved | None:
        try:
            shelved = self._decode(key, content, stored)
        except DamagedError as damage:
            if not quiet:
                raise
            _logger.debug("No entry in %s: %s", stored.name, damage)
            return None
        with self._lock:
            self._known[key] = shelved
        return shelved

    def _decode(self, key: str, content: bytes, stored: StoredObject) -> Shelved:
        try:
            document = json.loads(content)
            token, manifest = str(document["writer"]), json.dumps(document["entry"]).encode()
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise DamagedError(f"{stored.name} can't be read: {type(error).__name__}") from error
        folder = self._stage / "entries" / staged_name(key, token)
        entry = decode_manifest(manifest, key=key, folder=folder)
        return Shelved(entry=entry, token=token, generation=stored.generation)

    def _data(self, shelved: Shelved) -> dict[str, StoredObject]:
        prefix = data_prefix(shelved.entry.key, shelved.token)
        return {stored.name.removeprefix(prefix): stored for stored in self.bucket.listed(prefix)}

    def _problem(self, shelved: Shelved, chunk: Chunk) -> str:
        name = data_prefix(shelved.entry.key, shelved.token) + chunk.path
        try:
            found = self.bucket.read(name)
            _check_size(chunk, None if found is None else found[1])
        except (CacheError, DamagedError) as error:
            return str(error)
        if found is not None and zlib.crc32(found[0]) != chunk.crc32:
            return f"chunk {chunk.path} has another content than was written"
        return ""


def _manifest_name(key: str) -> str:
    return f"{MANIFESTS}{key}.json"


def _key_of(stored: StoredObject) -> str:
    return stored.name.removeprefix(MANIFESTS).removesuffix(".json")


def _token_of(stored: StoredObject) -> str:
    return stored.name.removeprefix(DATA).split("/")[1] if stored.name.count("/") > 1 else ""


def _check_size(chunk: Chunk, stored: StoredObject | None) -> None:
    if stored is None:
        raise DamagedError(f"chunk {chunk.path} is missing")
    if stored.size_bytes != chunk.bytes:
        raise DamagedError(
            f"chunk {chunk.path} has {stored.size_bytes} bytes and not {chunk.bytes}"
        )
