"""Entries in use stay where they are; one that is given up meanwhile goes with its last reader."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from cachew_core.errors import CacheError


class Pinning(ABC):
    """The half of a store that knows who uses what. All methods may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._pins: Counter[str] = Counter()
        # Not offered any more.
        self._condemned: set[str] = set()

    @contextmanager
    def use(self, key: str) -> Iterator[None]:
        """Keeps the files of that entry where they are for as long as the block runs."""
        self.pin(key)
        try:
            yield
        finally:
            self.unpin(key)

    def pin(self, key: str) -> None:
        """Keeps the files of that entry where they are until as many `unpin`s."""
        with self._lock:
            self._pins[key] += 1

    def unpin(self, key: str) -> None:
        """Takes a `pin` back; the last one removes an entry that was given up meanwhile.

        Raises:
            CacheError: the entry is not in use.
        """
        with self._lock:
            if not self._pins[key]:
                raise CacheError(f"cache entry {key} is not in use")
            self._pins[key] -= 1
            if self._pins[key]:
                return
            del self._pins[key]
            self._is_unused(key)
            condemned = key in self._condemned
        if condemned:
            self.drop(key)

    @abstractmethod
    def drop(self, key: str) -> bool:
        """Removes an entry. One in use is not offered any more, and goes with its last reader.

        Returns:
            Whether it was there and is gone now.
        """

    def _is_unused(self, key: str) -> None:  # noqa: B027 (most stores have nothing to do)
        """Called under the lock when the last one that used an entry does no longer."""
