"""The store at a place, which is a folder or `gs://bucket/prefix`, for commands."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from cachew_core.cache import folders
from cachew_core.cache.entry import Entry
from cachew_core.cache.listing import stored_entries
from cachew_core.cache.shelf import Shelf
from cachew_core.cache.store import CacheStore, Reclaimed
from cachew_core.gcs import is_bucket


class OpenedStore(Protocol):
    """What a command may do to a store, until the block ends that it is opened for."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> object: ...

    def entries(self) -> list[Entry]: ...

    def verify(self, key: str) -> list[str]: ...

    def drop(self, key: str) -> bool: ...

    def collect(self) -> Reclaimed: ...


def open_to_change(location: str) -> OpenedStore:
    """Opens a store to look after it.

    Raises:
        CacheError: it can't be used; a folder: a service uses it.
    """
    return Shelf.open(location) if is_bucket(location) else CacheStore.open(location)


def list_entries(location: str) -> list[Entry]:
    """All entries by key, whether or not a service uses the store.

    Raises:
        CacheError: there is no store, or it can't be read.
    """
    if not is_bucket(location):
        return stored_entries(location)
    with Shelf.open(location) as shelf:
        return shelf.entries()


def stored_keys(location: str) -> list[str]:
    """The keys of all entries, in order, also of those whose manifest is damaged.

    Raises:
        CacheError: there is no store, or it can't be read.
    """
    if is_bucket(location):
        with Shelf.open(location) as shelf:
            return shelf.keys()
    keys = {entry.key for entry in list_entries(location)}
    keys.update(filter(folders.is_key, os.listdir(Path(location) / folders.ENTRIES)))
    return sorted(keys)
