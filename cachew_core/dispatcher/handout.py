"""The chunk files of an epoch whose trainers read them without workers: who gets which."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from typing import TYPE_CHECKING

from cachew_core.cache import Chunk, Entry, Store
from cachew_core.errors import CacheError

if TYPE_CHECKING:
    from cachew_core.dispatcher.jobs import Reader

UNDER_WAY = 16
"""A trainer has no more files than these open or ahead of it; one that gave up may have met damage
in any of them.
"""


class Handout:
    """Hands each file of an entry to one reader, once.

    Args:
        store: with the entry, which stays in use for as long as this is needed.
        entry: what is read.
        shuffled: the files come in a new order.
    """

    def __init__(self, store: Store, entry: Entry, *, shuffled: bool) -> None:
        self.entry = entry
        self.over = asyncio.Event()
        """Nothing is left to hand out."""
        self._store = store
        chunks = list(entry.files)
        if shuffled:
            random.shuffle(chunks)
        self._left = deque(chunks)
        self._given: dict[int, list[Chunk]] = {}
        if not chunks:
            self.over.set()

    async def next_path(self, reader: Reader) -> str | None:
        """The path of the next file, which is this reader's; None: there is no more.

        Raises:
            CacheError: the file is not as it was stored.
        """
        if not self._left:
            return None
        chunk = self._left.popleft()
        self._given.setdefault(reader.id, []).append(chunk)
        if not self._left:
            self.over.set()
        await self._check([chunk])
        return str(self.entry.path / chunk.path)

    async def check_read(self, reader: Reader, files: int) -> None:
        """Makes sure that the reader has read all that was handed to it, and that this was whole: a
        shorter file reads without an error.

        Args:
            reader: it has read all that it will.
            files: that it got. An answer is lost where a connection breaks, and stock asks for the
                next one.

        Raises:
            CacheError: a file did not reach the reader, or was changed since it was handed out.
        """
        given = self._given.get(reader.id, [])
        if files != len(given):
            raise CacheError(
                f"{len(given)} files of cache entry {self.entry.key[:12]} were handed out to this "
                f"trainer and {files} arrived, most likely for a broken connection: start the "
                "epoch again"
            )
        await self._check(given)

    async def left_early(self, reader: Reader) -> None:
        """The reader read no further, and nobody knows why: its last files are looked at again."""
        given = self._given.get(reader.id, [])
        await asyncio.to_thread(self._store.doubt, self.entry, given[-UNDER_WAY:])

    async def _check(self, chunks: list[Chunk]) -> None:
        if problem := await asyncio.to_thread(self._store.check, self.entry, chunks):
            raise CacheError(
                f"cache entry {self.entry.key[:12]} can't be read: {problem}; start the epoch "
                "again, and it computes what is not stored"
            )
