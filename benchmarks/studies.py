"""What the autocaching study measures: two pipelines, and waits.

The shape is that of the Cachew paper's study (figure 8): what lies behind the mark is 2.5 times as
large as what the lake holds, and a batch waits for a known time. All that takes time is the reading
of the lake, the reading of the cache and the wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

LAKE_BATCH_S = 0.030
CACHE_BATCH_S = 0.043
"""To read a batch from the lake, and one that is fully computed from the cache. With these, each
policy is the best at some wait, as in the paper."""

WAITS_MS = (20, 30, 35, 40, 45, 50, 55)
_OTHER_WAIT_MS = 30

BATCH_RECORDS = 12
FILES = 8
RECORD_BYTES = 50_000
BATCH_SOURCE_BYTES = BATCH_RECORDS * RECORD_BYTES
BATCH_BYTES = BATCH_SOURCE_BYTES * 5 // 2

MARK = "source"
EXPANSION = 25
"""Where records are made large before the mark."""
_EXPANDED_RECORD_BYTES = BATCH_BYTES // BATCH_RECORDS // EXPANSION


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """One pipeline with one wait.

    Attributes:
        name: for people and for files.
        sleep_ms: the wait in each batch.
        expands: small records become as large as the other study's batches before the mark, not
            behind it: whatever is stored is large, and the lake is hardly read.
    """

    name: str
    sleep_ms: int
    expands: bool = False

    @property
    def record_bytes(self) -> int:
        """Of one in the lake."""
        return _EXPANDED_RECORD_BYTES if self.expands else RECORD_BYTES


def all_studies(waits_ms: Sequence[int]) -> list[Study]:
    """The sweep over some waits, and the other pipeline."""
    return [
        *(Study(name=f"inflated-{wait}", sleep_ms=wait) for wait in waits_ms),
        Study(name=f"expanded-{_OTHER_WAIT_MS}", sleep_ms=_OTHER_WAIT_MS, expands=True),
    ]
