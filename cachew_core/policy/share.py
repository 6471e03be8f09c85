"""How many workers each job gets while nobody knows how many it can use: even shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What one job asks of the pool.

    Attributes:
        job: the job's key.
        most: more workers than this are of no use to it; None: any number.
        least: workers that can't be taken from it now (an epoch that can't be drained holds them).
    """

    job: str
    most: int | None = None
    least: int = 0


def even_shares(workers: int, demands: Sequence[Demand]) -> Mapping[str, int]:
    """Max-min fair whole shares of `workers`.

    Nobody is given one more while another, who could use it, has fewer. Where that leaves a choice,
    the order of `demands` decides; so with fewer workers than jobs the first ones get one each and
    the rest none.

    Args:
        workers: how many there are, at least 0.
        demands: one for each job, first come first.

    Returns:
        The share of each job; their sum is at most `workers`, and equal to it if the jobs can use
        so many.
    """
    shares = {demand.job: 0 for demand in demands}
    left = workers
    for demand in demands:
        shares[demand.job] = min(demand.least, left)
        left -= shares[demand.job]
    while left > 0:
        open_demands = [d for d in demands if d.most is None or shares[d.job] < d.most]
        if not open_demands:
            break
        poorest = min(open_demands, key=lambda demand: shares[demand.job])
        shares[poorest.job] += 1
        left -= 1
    return shares
