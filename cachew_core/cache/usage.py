"""When entries were last read: which goes first where no history says what they are worth."""

from __future__ import annotations

import os
from contextlib import suppress

from cachew_core.cache.entry import Entry

__all__ = ["last_used_s", "note_use"]


def note_use(entry: Entry) -> None:
    """Keeps, in the time of its folder, that an entry is read now."""
    with suppress(OSError):
        os.utime(entry.path)


def last_used_s(entry: Entry) -> float:
    """When an entry was written or last read, in seconds since 1970."""
    try:
        return entry.path.stat().st_mtime
    except OSError:
        return entry.created_at.timestamp()
