"""Whether reading from the cache turned out slower than computing was.

Both are judged by the worker-seconds that a batch took. Where the trainer waited for data, that is
one over a worker's service rate; where it never waited, it is what the mode kept busy for the same
result. Neither says anything about the other case, except that a mode that was waited for and yet
needed more than one that was not is surely slower.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median, quantiles

from cachew_core.policy.constants import AutocacheSettings
from cachew_core.policy.decisions import Environment, Verdict
from cachew_core.policy.modes import Mode
from cachew_core.policy.reasons import point_text

_LEAST_COMPUTED = 6
"""Windows of computing from which its pace can be told, even if a third of them has to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A stretch of an epoch in which nothing was changed.

    Attributes:
        epoch: the job's epoch.
        mode: the epoch's.
        point: the cache point that it read; "" for COMPUTE.
        workers: how many served.
        batches: how many the trainers took.
        seconds: how long that lasted.
        waited: the trainer waited for data throughout; False: it did not wait.
        cold: what was read came from the device, not from memory that an earlier epoch had filled.
        beside: the pipeline was being measured meanwhile, which may have slowed it down.
    """

    epoch: int
    mode: Mode
    workers: int
    batches: int
    seconds: float
    waited: bool
    point: str = ""
    cold: bool = False
    beside: bool = False

    @property
    def worker_s(self) -> float:
        """Worker-seconds per batch."""
        return self.seconds * self.workers / self.batches


@dataclass(frozen=True, slots=True)
class _Comparison:
    workers: int
    cold: bool
    read_s: float
    computed_s: float
    worse: bool


def review(
    windows: Sequence[Window],
    point: str,
    environment: Environment,
    settings: AutocacheSettings | None = None,
) -> Verdict | None:
    """Takes the choice of a cache point back if the last epochs say so.

    An epoch counts as worse if its median window needs more than the margin above COMPUTE's median,
    and the two barely overlap: three quarters of its windows need more than three quarters of
    COMPUTE's. Cold reads are compared with cold ones and warm with warm if COMPUTE has enough of
    them. Epochs in which nothing could be compared are passed over.

    Of COMPUTE's windows during which the pipeline was measured, only the fastest third counts.

    So noise from window to window takes nothing back, and noise from epoch to epoch does not up to
    about a quarter of the margin; COMPUTE may have run for one epoch only, and a lucky one.

    Args:
        windows: of the job so far, in any order; those of other modes and points are left alone.
        point: the cache point that was chosen.
        environment: where the job runs now.
        settings: None: the defaults.

    Returns:
        None while the choice stands.
    """
    settings = settings or AutocacheSettings()
    computed = _undisturbed([w for w in windows if w.mode is Mode.COMPUTE and w.batches > 0])
    reads = [w for w in windows if w.mode.reads and w.point == point and w.batches > 0]
    for cold in (False, True):
        judged = [
            comparison
            for epoch in sorted({w.epoch for w in reads})
            if (comparison := _compare(_of(reads, epoch, cold), computed, settings))
        ]
        last = judged[-settings.worse_epochs :]
        if len(last) == settings.worse_epochs and all(c.worse for c in last):
            return Verdict(
                point=point,
                environment=environment,
                workers=last[-1].workers,
                reason=_reason(point, last, settings),
            )
    return None


def computing_s(windows: Sequence[Window]) -> float | None:
    """Worker-seconds per batch of computing, as waiting trainers saw it.

    Args:
        windows: of the job so far, in any order.

    Returns:
        None if they saw too little.
    """
    waited = [w for w in windows if w.mode is Mode.COMPUTE and w.batches > 0 and w.waited]
    if len(waited) < _LEAST_COMPUTED:
        return None
    return median(w.worker_s for w in _undisturbed(waited))


def _undisturbed(computed: Sequence[Window]) -> list[Window]:
    # A measurement takes turns with different things, so it does not always take what the workers
    # need: they were slowed down least in the best third of those windows.
    alone = [w for w in computed if not w.beside]
    if len(alone) >= _LEAST_COMPUTED or len(alone) == len(computed):
        return alone
    beside = sorted((w for w in computed if w.beside), key=lambda w: w.worker_s)
    return [*alone, *beside[: -(-len(beside) // 3)]]


def _of(reads: Sequence[Window], epoch: int, cold: bool) -> list[Window]:
    return _settled([w for w in reads if w.epoch == epoch and w.cold is cold])


def _settled(windows: Sequence[Window]) -> list[Window]:
    # The number of workers changes within an epoch; the one that served longest speaks for it.
    served: dict[int, float] = {}
    for window in windows:
        served[window.workers] = served.get(window.workers, 0.0) + window.seconds
    longest = max(served, key=lambda workers: served[workers], default=0)
    return [w for w in windows if w.workers == longest]


def _compare(
    reads: Sequence[Window], computed: Sequence[Window], settings: AutocacheSettings
) -> _Comparison | None:
    enough = settings.least_windows
    waited = [w for w in reads if w.waited]
    idle = [w for w in reads if not w.waited]
    own = waited if len(waited) >= len(idle) else idle
    if len(own) < enough:
        return None
    baseline = _baseline(own[0], computed, enough)
    if not baseline:
        return None
    read_s = [w.worker_s for w in own]
    computed_s = [w.worker_s for w in baseline]
    above = median(read_s) > median(computed_s) * (1 + settings.worse_by)
    apart = _quartiles(read_s)[0] > _quartiles(computed_s)[2]
    # Reads that were never waited for, against computing that was: the epoch got faster.
    better = not own[0].waited and baseline[0].waited
    return _Comparison(
        workers=own[0].workers,
        cold=own[0].cold,
        read_s=median(read_s),
        computed_s=median(computed_s),
        worse=above and apart and not better,
    )


def _baseline(read: Window, computed: Sequence[Window], enough: int) -> list[Window]:
    like = [w for w in computed if w.waited is read.waited]
    if len(like) < enough:
        like = [w for w in computed if w.waited is not read.waited]
    # Where nothing was waited for, equal numbers of workers would always come out equal: what
    # counts is the number that each mode came down to.
    last = max((w.epoch for w in like), default=0)
    same = _settled([w for w in like if w.epoch == last])
    if read.waited:
        # What workers share makes each the slower the more they are.
        same = [w for w in like if w.workers == read.workers]
    for group in (same, like):
        for alike in ([w for w in group if w.cold is read.cold], group):
            if len(alike) >= enough:
                return alike
    return []


def _quartiles(values: Sequence[float]) -> list[float]:
    return quantiles(values, n=4) if len(values) > 1 else [*values] * 3


def _reason(point: str, last: Sequence[_Comparison], settings: AutocacheSettings) -> str:
    figures = " and ".join(
        f"{c.read_s * 1e3:.1f} worker-ms a batch against {c.computed_s * 1e3:.1f} of COMPUTE"
        for c in last
    )
    kind = "cold" if last[-1].cold else "warm"
    return (
        f"reading {point_text(point)} needed {figures} in its last {len(last)} epochs of {kind}"
        f" reads, each more than {settings.worse_by:.0%} worse"
    )
