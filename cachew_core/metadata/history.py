"""What earlier cache entries of a pipeline say about the next one."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

# A guess: a training of a few epochs writes in one and reads in the others.
DEFAULT_USES = 3.0


def expected_uses(gone: Sequence[int], there: Sequence[int]) -> float:
    """How many epochs will read a new entry.

    Args:
        gone: uses of entries that are no more.
        there: uses so far of entries that still are: they count only where they raise the mean,
            since their uses have not come to an end.
    """
    mean = fmean(gone) if gone else DEFAULT_USES
    more = [uses for uses in there if uses > mean]
    return fmean([*gone, *more]) if gone or more else mean
