"""How many workers each job gets of those that there are: max-min fair, by tenant and then by job.

Nobody is given one more while another, who wants it, has fewer for his weight.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What one job asks of the pool.

    Attributes:
        job: the job's key.
        want: more workers than this are of no use to it; None: any number.
        least: workers that can't be taken from it now (an epoch that can't be drained holds them).
        weight: of two jobs that want more than there is, one with twice the weight gets twice the
            workers. Over 0.
        priority: jobs with a higher one get all that they want first.
        tenant: whose job it is. Workers are shared out among tenants before they are among the
            jobs of each.
    """

    job: str
    want: int | None = None
    least: int = 0
    weight: float = 1.0
    priority: int = 0
    tenant: str = ""


def fair_shares(
    workers: int, demands: Sequence[Demand], tenant_weights: Mapping[str, float] | None = None
) -> dict[str, int]:
    """Max-min fair whole shares of `workers`.

    Where fairness leaves a choice, the order of `demands` decides; so with fewer workers than jobs
    the first ones get one each and the rest none.

    Args:
        workers: how many there are, at least 0.
        demands: one for each job, first come first.
        tenant_weights: as those of jobs; 1 where there is none.

    Returns:
        The share of each job; their sum is at most `workers`, and equal to it if the jobs want so
        many.
    """
    shares: dict[str, int] = {}
    for demand in demands:
        shares[demand.job] = min(demand.least, workers)
        workers -= shares[demand.job]
    held: dict[str, int] = {}
    for demand in demands:
        held[demand.tenant] = held.get(demand.tenant, 0) + shares[demand.job]
    by_priority = sorted(demands, key=lambda demand: -demand.priority)
    for _, equals in groupby(by_priority, key=lambda demand: demand.priority):
        workers = _fill(workers, list(equals), shares, held, tenant_weights or {})
    return shares


def _fill(
    workers: int,
    demands: Sequence[Demand],
    shares: dict[str, int],
    held: dict[str, int],
    tenant_weights: Mapping[str, float],
) -> int:
    """Shares workers out among jobs of one priority; what is left."""
    jobs: dict[str, list[tuple[float, int]]] = {}
    for rank, demand in enumerate(demands):
        if demand.want is None or shares[demand.job] < demand.want:
            turn = _turn(shares[demand.job], demand.weight)
            heapq.heappush(jobs.setdefault(demand.tenant, []), (turn, rank))
    weights = {tenant: tenant_weights.get(tenant, 1.0) for tenant in jobs}
    tenants = [(_turn(held[name], weights[name]), rank, name) for rank, name in enumerate(jobs)]
    heapq.heapify(tenants)
    while workers and tenants:
        _, order, tenant = heapq.heappop(tenants)
        _, rank = heapq.heappop(jobs[tenant])
        demand = demands[rank]
        shares[demand.job] += 1
        held[tenant] += 1
        workers -= 1
        if demand.want is None or shares[demand.job] < demand.want:
            heapq.heappush(jobs[tenant], (_turn(shares[demand.job], demand.weight), rank))
        if jobs[tenant]:
            heapq.heappush(tenants, (_turn(held[tenant], weights[tenant]), order, tenant))
    return workers


def _turn(share: int, weight: float) -> float:
    """Whose is smallest gets the next worker. The half makes shares follow weights as closely as
    whole numbers can (Webster's method); a first worker comes before anybody's second one.
    """
    return (share + 0.5) / weight if share else 0.0
