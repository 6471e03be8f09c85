"""What lies in the cache, for people; looked at now and then, as a look reads its disk."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from cachew_core.cache import Store
from cachew_core.cache.entry import Entry
from cachew_core.cache.usage import last_used_s
from cachew_core.errors import CacheError
from cachew_core.proto import cachew_pb2

log = logging.getLogger(__name__)

LOOK_EVERY_S = 5.0
LOOK_AT_BUCKET_EVERY_S = 60.0
"""Each look at a bucket is paid for."""


class StoredView:
    """The entries of a store as they were some seconds ago, or a minute.

    Args:
        store: None: there is none, and nothing in it.
        clock: monotonic seconds.
    """

    def __init__(self, store: Store | None, clock: Callable[[], float]) -> None:
        self.entries: Sequence[cachew_pb2.StoredEntry] = ()
        self._store = store
        self._clock = clock
        self._next_look_s = 0.0
        self._looking: asyncio.Task[None] | None = None

    def look(self) -> None:
        """Begins to look, if it is time to. Cheap, and right to call at any time."""
        if self._store is None or self._clock() < self._next_look_s:
            return
        if self._looking is None or self._looking.done():
            self._looking = asyncio.ensure_future(self._look(self._store))

    async def _look(self, store: Store) -> None:
        try:
            self.entries = await asyncio.to_thread(lambda: [_seen(e) for e in store.entries()])
        except (CacheError, OSError) as error:
            log.debug("the cache can't be looked at: %s", error)
        finally:
            every_s = LOOK_EVERY_S if store.is_shared else LOOK_AT_BUCKET_EVERY_S
            self._next_look_s = self._clock() + every_s


def _seen(entry: Entry) -> cachew_pb2.StoredEntry:
    return cachew_pb2.StoredEntry(
        key=entry.key,
        job=str(entry.facts.get("job", "")),
        point=str(entry.facts.get("point", "")),
        elements=entry.elements,
        bytes=entry.bytes,
        created_at=entry.created_at.timestamp(),
        last_used_at=last_used_s(entry),
    )
