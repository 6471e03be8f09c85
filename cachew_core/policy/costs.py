"""What a batch costs in each mode: seconds on one worker, seconds at n workers, money.

Two models predict the time of a read from what was measured, see `CostModel`. Everything is per
batch (an element of the pipeline's end), so that an epoch of unknown length can be decided, too.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

from cachew_core.policy.constants import AutocacheSettings, CostModel, Prices
from cachew_core.policy.modes import END

_HOUR_S = 3600.0
_MONTH_DAYS = 365.25 / 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What was measured of one cache point, on one worker.

    Attributes:
        per_batch: elements that pass the point for each batch at the pipeline's end.
        active_s: wall time per element in which the point or anything before it was at work.
        bytes_per_element: stored size of an element.
        get_s: time to read an element from the cache, all of a worker's readers together.
        put_s: time to write an element to the cache.
        suffix_s: time per batch of what follows the point, fed from memory.
    """

    per_batch: float
    active_s: float
    bytes_per_element: float
    get_s: float
    put_s: float = 0.0
    suffix_s: float = 0.0

    @property
    def bytes_per_batch(self) -> float:
        return self.per_batch * self.bytes_per_element

    def problem(self) -> str:
        """The first figure that nothing can be computed from; empty: all are sound."""
        for name, value in asdict(self).items():
            if not (math.isfinite(value) and value >= 0):
                return f"its measurement can't be used: {name}={value}"
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PointProfile:
    """One cache point.

    Attributes:
        name: the mark's name, or `END`.
        refusal: why it may not be stored; empty: it may.
        measured: None: there was no measurement.
    """

    name: str
    refusal: str = ""
    measured: Measurement | None = None

    def problem(self) -> str:
        """Why the point can't be chosen, whatever the situation; empty: it can."""
        if self.refusal:
            return self.refusal
        return "it was not measured" if self.measured is None else self.measured.problem()


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What was measured of a pipeline.

    Attributes:
        compute_s: time per batch of the whole pipeline on one worker.
        active_s: wall time per batch in which anything of the pipeline was at work; None: as
            `compute_s`.
        points: its cache points, from the source to the end.
        batches: batches of an epoch; None: unknown.
        source_bytes_per_batch: what computing a batch reads of the source files.
        source_bandwidth: bytes/s that all workers together can read of the source files; None: no
            limit is known.
        cache_bandwidth: bytes/s that all workers together can read from the cache; None: no limit
            is known.
    """

    compute_s: float
    active_s: float | None = None
    points: tuple[PointProfile, ...] = ()
    batches: int | None = None
    source_bytes_per_batch: float = 0.0
    source_bandwidth: float | None = None
    cache_bandwidth: float | None = None

    def problem(self) -> str:
        """Why nothing can be compared with computing; empty: it can."""
        for name in ("compute_s", "active_s"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value >= 0):
                return f"the pipeline's measurement can't be used: {name}={value}"
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCost:
    """What bounds the rate of batches.

    Attributes:
        worker_s: seconds of one worker for a batch; n workers take an n-th of it.
        shared_s: seconds for a batch of what all workers share; more workers don't help.
    """

    worker_s: float
    shared_s: float = 0.0


def compute_cost(profile: Profile) -> BatchCost:
    """The cost of computing a batch."""
    return BatchCost(
        worker_s=profile.compute_s,
        shared_s=_over(profile.source_bytes_per_batch, profile.source_bandwidth),
    )


def get_cost(profile: Profile, name: str, measured: Measurement, model: CostModel) -> BatchCost:
    """The cost of a batch when the point `name` is read from the cache."""
    read_s = measured.per_batch * measured.get_s
    if name == END:
        suffix_s = 0.0
    elif model is CostModel.PAPER:
        active_s = profile.compute_s if profile.active_s is None else profile.active_s
        # Both were measured apart; noise must not make the suffix cheaper than nothing.
        suffix_s = max(0.0, active_s - measured.per_batch * measured.active_s)
    else:
        suffix_s = measured.suffix_s
    return BatchCost(
        worker_s=read_s + suffix_s if model is CostModel.PAPER else max(read_s, suffix_s),
        shared_s=_over(measured.bytes_per_batch, profile.cache_bandwidth),
    )


def put_cost(profile: Profile, measured: Measurement, model: CostModel) -> BatchCost:
    """The cost of a batch that is computed and written to the cache at a point."""
    computed = compute_cost(profile)
    write_s = measured.per_batch * measured.put_s
    together = (
        computed.worker_s + write_s if model is CostModel.PAPER else max(computed.worker_s, write_s)
    )
    return BatchCost(worker_s=together, shared_s=computed.shared_s)


def batch_s(cost: BatchCost, workers: int, demand: float | None) -> float:
    """Seconds from batch to batch.

    Args:
        cost: of the mode.
        workers: at least 1.
        demand: batches/s that the trainer could take; None: unknown, taken as any number.
    """
    return max(_over(1.0, demand), cost.worker_s / workers, cost.shared_s)


def epoch_s(batches: int, cost: BatchCost, workers: int, demand: float | None) -> float:
    """Seconds of an epoch of so many batches; the rest is as in `batch_s`."""
    return batches * batch_s(cost, workers, demand)


def run_price(seconds: float, workers: int, prices: Prices) -> float:
    """The price of the trainer and its workers for so long."""
    return seconds * (prices.trainer_hour + workers * prices.worker_hour) / _HOUR_S


def storage_price(stored_bytes: float, prices: Prices, settings: AutocacheSettings) -> float:
    """The price of keeping so much for as long as an entry is expected to be kept."""
    return stored_bytes / 1e9 * prices.gb_month * settings.entry_days / _MONTH_DAYS


def _over(amount: float, rate: float | None) -> float:
    return amount / rate if rate else 0.0
