"""Autocache: what to store, and when to read it.

Each cache point and "compute all" are compared at every number of workers that the job could have,
since a mode that looks slower on one worker may cost nothing where the trainer is the bottleneck.
The smallest figure does not simply win: what lies within the margin of it counts as equal, and of
equals the one that keeps the fewest workers busy is taken, then the one that stores least.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from cachew_core.policy.constants import AutocacheSettings, Objective, Prices
from cachew_core.policy.costs import (
    BatchCost,
    Measurement,
    PointProfile,
    Profile,
    batch_s,
    compute_cost,
    get_cost,
    put_cost,
    run_price,
    storage_price,
)
from cachew_core.policy.decisions import Candidate, Decision, Figures, Situation
from cachew_core.policy.modes import Mode, get_mode, put_mode
from cachew_core.policy.reasons import explain

_Row = tuple[Candidate, Figures]


def choose(
    profile: Profile,
    situation: Situation,
    prices: Prices | None = None,
    settings: AutocacheSettings | None = None,
) -> Decision:
    """Chooses the next epoch's mode, cache point and number of workers.

    The figure that the objective names is at most the margin above the least that any candidate
    reaches with any number of workers; twice the margin for what is done already
    (`Situation.current`), so that noise does not turn the choice back and forth.

    Args:
        profile: of the pipeline.
        situation: of the job.
        prices: None: the defaults.
        settings: None: the defaults.
    """
    if problem := profile.problem():
        return Decision(mode=Mode.COMPUTE, reason=f"COMPUTE: {problem}.")
    settings = settings or AutocacheSettings()
    bench = _Bench(profile, situation, prices or Prices(), settings)
    chosen, figures = bench.best()
    return Decision(
        mode=chosen.mode,
        point=chosen.point,
        workers=figures.workers if figures.put_workers is None else figures.put_workers,
        reason=explain(chosen, bench.candidates, profile, situation, settings),
        candidates=bench.candidates,
    )


class _Bench:
    # One comparison, and what is the same for all its candidates.

    def __init__(
        self, profile: Profile, situation: Situation, prices: Prices, settings: AutocacheSettings
    ) -> None:
        self._profile = profile
        self._situation = situation
        self._prices = prices
        self._settings = settings
        self._counts = range(situation.least_workers, situation.workers + 1)
        self._computed = compute_cost(profile)
        points = [(point, self._left_out(point)) for point in profile.points]
        # "Fewest workers within the margin" means: of what the best candidate reaches. So this has
        # to be known before any candidate's figures are.
        self._least = min(
            [self._least_score(self._computed, 0.0)]
            + [
                self._least_score(*self._get(point.name, point.measured))
                for point, left_out in points
                if point.measured is not None and not left_out
            ]
        )
        self.candidates = (
            Candidate(mode=Mode.COMPUTE, figures=self._figures("", self._computed, 0.0)),
            *(self._candidate(point, left_out) for point, left_out in points),
        )

    def best(self) -> _Row:
        rows = [(c, c.figures) for c in self.candidates if c.figures is not None and not c.left_out]
        rows = _equals(rows, self._figure, self._least, self._margin)
        least_worker_s = min(figures.worker_s for _, figures in rows)
        rows = _equals(rows, lambda figures: figures.worker_s, least_worker_s, self._margin)
        for row in rows:
            if row[0].point == self._situation.current:
                return row
        return min(rows, key=lambda row: (row[1].added_bytes, self._figure(row[1]), row[0].point))

    def _margin(self, point: str) -> float:
        current = point == self._situation.current
        return self._settings.margin * (2 if current else 1)

    def _candidate(self, point: PointProfile, left_out: str) -> Candidate:
        exists = point.name in self._situation.entries
        measured = point.measured
        figures = None
        if measured is not None and not measured.problem():
            figures = self._figures(point.name, *self._get(point.name, measured))
            if not exists:
                put = self._figures("", self._put(measured), 0.0)
                figures = replace(
                    figures,
                    added_bytes=measured.bytes_per_batch,
                    put_workers=put.workers,
                    put_batch_s=put.batch_s,
                )
        mode = get_mode(point.name) if exists else put_mode(point.name)
        return Candidate(mode=mode, point=point.name, figures=figures, left_out=left_out)

    def _left_out(self, point: PointProfile) -> str:
        for verdict in self._situation.verdicts:
            if (verdict.point, verdict.environment) == (point.name, self._situation.environment):
                return f"it was taken back before: {verdict.reason}"
        if problem := point.problem():
            return problem
        if point.name in self._situation.entries or point.measured is None:
            return ""
        return (
            self._not_worth_writing()
            or self._no_gain(point.name, point.measured)
            or self._too_large(point.measured)
        )

    def _no_gain(self, name: str, measured: Measurement) -> str:
        # Where something can be read already, another entry has to earn the epoch that writes it.
        current = self._readable()
        if current is None or current.name == name or current.measured is None:
            return ""
        now_s = self._seconds(self._get(current.name, current.measured)[0])
        then_s = self._seconds(self._get(name, measured)[0])
        lost_s = self._seconds(self._put(measured)) - now_s
        if (now_s - then_s) * self._situation.reads > lost_s:
            return ""
        return (
            f"an epoch that writes it takes {1e3 * lost_s:.1f} ms a batch more than reading "
            f"{current.name!r}, and its reads save {1e3 * (now_s - then_s):.1f}"
        )

    def _readable(self) -> PointProfile | None:
        # What is read now; before the first choice, what would best be read.
        current, entries = self._situation.current, self._situation.entries
        wanted = entries if current is None else entries & {current}
        stored = [
            (self._seconds(self._get(point.name, point.measured)[0]), point)
            for point in self._profile.points
            if point.name in wanted and point.measured is not None and not self._left_out(point)
        ]
        return min(stored, key=lambda row: row[0])[1] if stored else None

    def _seconds(self, cost: BatchCost) -> float:
        return batch_s(cost, self._situation.workers, self._situation.demand)

    def _not_worth_writing(self) -> str:
        reads = self._situation.reads
        if self._settings.objective is Objective.COST and reads < 1:
            return f"its entry would be read {reads:.2g} times, less than once"
        return "" if reads > 0 else "nobody would read its entry"

    def _too_large(self, measured: Measurement) -> str:
        free, batches = self._situation.free_bytes, self._profile.batches
        if free is None or batches is None:
            return ""
        needed = batches * measured.bytes_per_batch
        if needed <= free:
            return ""
        return f"its {needed / 1e6:,.1f} MB don't fit into the {free / 1e6:,.1f} MB of the store"

    def _put(self, measured: Measurement) -> BatchCost:
        return put_cost(self._profile, measured, self._settings.cost_model)

    def _get(self, name: str, measured: Measurement) -> tuple[BatchCost, float]:
        # A read's cost, and the price of having an entry, for each batch of each epoch that reads.
        cost = get_cost(self._profile, name, measured, self._settings.cost_model)
        reads = self._situation.reads
        if name in self._situation.entries or reads <= 0:
            return cost, 0.0
        stored = storage_price(measured.bytes_per_batch, self._prices, self._settings)
        writing = min(self._price(self._put(measured), n) for n in self._counts)
        computing = min(self._price(self._computed, n) for n in self._counts)
        return cost, (writing - computing + stored) / reads

    def _price(self, cost: BatchCost, workers: int) -> float:
        return run_price(batch_s(cost, workers, self._situation.demand), workers, self._prices)

    def _score(self, cost: BatchCost, entry_price: float, workers: int) -> float:
        if self._settings.objective is Objective.TIME:
            return batch_s(cost, workers, self._situation.demand)
        return self._price(cost, workers) + entry_price

    def _least_score(self, cost: BatchCost, entry_price: float) -> float:
        return min(self._score(cost, entry_price, n) for n in self._counts)

    def _figure(self, figures: Figures) -> float:
        # What `_score` gave for these figures' number of workers.
        return figures.batch_s if self._settings.objective is Objective.TIME else figures.price

    def _fewest(self, point: str, cost: BatchCost, entry_price: float) -> int:
        # A candidate that can't come near the best one is given the margin of its own best, for its
        # figures to be worth showing.
        own = self._least_score(cost, entry_price)
        bounds = [self._least * (1 + m) for m in (self._settings.margin, self._margin(point))]
        bounds.append(own * (1 + self._settings.margin))
        bound = next(bound for bound in bounds if own <= bound)
        return next(n for n in self._counts if self._score(cost, entry_price, n) <= bound)

    def _figures(self, point: str, cost: BatchCost, entry_price: float) -> Figures:
        workers = self._fewest(point, cost, entry_price)
        seconds = batch_s(cost, workers, self._situation.demand)
        return Figures(
            workers=workers,
            batch_s=seconds,
            worker_s=seconds * workers,
            price=self._price(cost, workers) + entry_price,
        )


def _equals(
    rows: Sequence[_Row],
    figure: Callable[[Figures], float],
    least: float,
    margin: Callable[[str], float],
) -> list[_Row]:
    return [row for row in rows if figure(row[1]) <= least * (1 + margin(row[0].point))]
