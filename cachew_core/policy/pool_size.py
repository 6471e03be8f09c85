"""How many workers a service should have: what jobs want and some more that wait, within limits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLimits:
    """What a pool may be.

    Attributes:
        least: workers, whatever is wanted.
        most: workers, likewise.
        standby: more than are wanted, so that the next one that is wanted is there at once.
        shrink_after_s: it becomes smaller when no more were wanted for so long: a job that pauses
            between two epochs, or comes down only to go up again, finds its workers still there.
    """

    least: int
    most: int
    standby: int = 0
    shrink_after_s: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSize:
    """Where a pool stands; a new one is empty.

    Attributes:
        need: workers that are needed now.
        earlier: larger needs of late, each with when it ended.
    """

    need: int = 0
    earlier: tuple[tuple[float, int], ...] = ()

    @property
    def workers(self) -> int:
        """That the pool should have now."""
        return max([self.need, *(need for _, need in self.earlier)])


def resize(
    size: PoolSize, wants: Iterable[int | None], limits: PoolLimits, now_s: float
) -> PoolSize:
    """Takes in what jobs want now.

    Args:
        size: where the pool stood.
        wants: workers of each job that is being read; None: all that there can be.
        limits: of the pool.
        now_s: the time.
    """
    wanted = sum(limits.most if want is None else want for want in wants)
    need = max(limits.least, min(limits.most, wanted + limits.standby))
    ended = {
        other: ended_s
        for ended_s, other in (*size.earlier, (now_s, size.need))
        if other > need and now_s - ended_s < limits.shrink_after_s
    }
    return PoolSize(need=need, earlier=tuple((at_s, other) for other, at_s in ended.items()))
