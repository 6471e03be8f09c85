"""What a dispatcher needs of a store, wherever that keeps its entries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from cachew_core.cache.entry import JSON, Chunk, Entry, Writing
from cachew_core.cache.store import Reclaimed


class Store(Protocol):
    """Entries by key. `CacheStore` keeps them in a folder, `BucketStore` in a bucket; the methods
    are described there. All may be called from any thread.
    """

    root: Path
    """Below it workers write and read."""
    capacity_bytes: int | None
    is_shared: bool
    """Whether all that workers read lies below the root wherever that is mounted."""

    def close(self) -> None: ...

    def begin(self, key: str) -> Writing | None: ...

    def commit(self, writing: Writing, *, least_runs: int, facts: Mapping[str, JSON]) -> Entry: ...

    def abandon(self, writing: Writing) -> None: ...

    def find(self, key: str) -> Entry | None: ...

    def make_ready(self, entry: Entry, *, wait_s: float) -> bool: ...

    def check(self, entry: Entry, chunks: Iterable[Chunk]) -> str: ...

    def doubt(self, entry: Entry, chunks: Iterable[Chunk]) -> None: ...

    def entries(self) -> list[Entry]: ...

    def use(self, key: str) -> AbstractContextManager[None]: ...

    def drop(self, key: str) -> bool: ...

    def scratch(self) -> Path: ...

    def collect(self) -> Reclaimed: ...

    def available_bytes(self) -> int: ...

    def make_room(self, needed_bytes: int, benefit: Callable[[Entry], float]) -> bool: ...
