"""Which mode each epoch gets: what the policy says, its reasons, and the log of both."""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import asdict, dataclass, field, replace

from cachew_core.cache import Entry
from cachew_core.dispatcher.events import event
from cachew_core.dispatcher.history import EXPECTED_READS, History
from cachew_core.dispatcher.jobs import Epoch, EpochState, Job, Reader
from cachew_core.dispatcher.measuring import Measurer
from cachew_core.dispatcher.sources import SourceLook
from cachew_core.pipeline.points import CachePoint
from cachew_core.policy.autocache import choose
from cachew_core.policy.constants import AutocacheSettings, Prices
from cachew_core.policy.costs import PointProfile
from cachew_core.policy.decisions import Candidate, Decision, Environment, Situation, Verdict
from cachew_core.policy.fixed import follow
from cachew_core.policy.modes import CachePolicy, Mode, parse_policy
from cachew_core.policy.review import Window, computing_s, review
from cachew_core.proto import cachew_pb2

log = logging.getLogger(__name__)

FAILED_WRITES = 2
"""After so many epochs that wrote a point and could not be stored, it is no longer written."""

KEPT_DECISIONS = 200

WAITED = 0.3
"""A trainer that spent this part of a stretch waiting was held up by the service."""

LEAST_STEP_S = 1e-4
"""A trainer that does less between two elements does nothing but read."""

KEPT_WINDOWS = 2000

WINDOW_S = 1.0
"""Or a little more: a stretch of an epoch in which its rate can be read off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A cache point as it is today.

    Attributes:
        key: of its entry in the store.
        entry: None if it is not stored.
    """

    point: CachePoint
    key: str
    entry: Entry | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Offers:
    """All cache points of a job, from the sources to the end; or why there are none."""

    offers: tuple[Offer, ...] = ()
    sources: SourceLook | None = None
    refusal: str = ""
    free_bytes: int | None = None
    """What the store can take, what it would remove for it included."""

    def at(self, name: str) -> Offer | None:
        """The point of that name."""
        return next((offer for offer in self.offers if offer.point.name == name), None)

    @property
    def stored(self) -> frozenset[str]:
        """The names of those that have an entry."""
        return frozenset(offer.point.name for offer in self.offers if offer.entry is not None)


@dataclass(slots=True, kw_only=True)
class _Known:
    """What is known of one job."""

    policy: CachePolicy
    decisions: list[cachew_pb2.CacheDecision] = field(default_factory=list)
    failed_writes: dict[str, int] = field(default_factory=dict)
    current: str | None = None
    """The point that was chosen last, empty for none; None: nothing was compared yet."""
    verdicts: list[Verdict] | None = None
    new_verdicts: list[Verdict] = field(default_factory=list)
    expected_reads: float = EXPECTED_READS
    windows: list[Window] = field(default_factory=list)


class Chooser:
    """Chooses for all jobs of a service.

    Args:
        policy: of jobs that don't name one.
        measurer: of pipelines under the policy `auto`.
        history: what earlier runs found out.
        environment: of this service.
        settings: how choices are made.
        prices: for the objective cost.
    """

    def __init__(
        self,
        policy: CachePolicy,
        measurer: Measurer,
        history: History,
        environment: Environment,
        settings: AutocacheSettings,
        prices: Prices,
    ) -> None:
        self._policy = policy
        self._measurer = measurer
        self._history = history
        self._environment = environment
        self._settings = settings
        self._prices = prices

    def policy(self, job: Job) -> CachePolicy:
        """The policy that a job is under."""
        named = job.request.cache_policy
        return parse_policy(named) if named else self._policy

    def decisions(self, job: Job) -> list[cachew_pb2.CacheDecision]:
        """What was decided for a job so far, oldest first."""
        return list(self._of(job).decisions)

    async def choose(self, epoch: Epoch, offers: Offers, *, direct: bool = False) -> Decision:
        """The epoch's mode and cache point; noted with the reason.

        Args:
            epoch: not planned yet.
            offers: its job's cache points, as they are now.
            direct: its trainers can read the end's entry themselves.
        """
        known = self._of(epoch.job)
        if known.policy is CachePolicy.AUTO and not offers.refusal:
            await self._recall(epoch.job, known)
        decision = self._decision(epoch, known, offers)
        if direct and decision.mode is Mode.GET:
            reason = f"{decision.reason} The trainers read it directly, without workers."
            decision = replace(decision, reason=reason, direct=True)
        self.note(epoch, decision)
        await asyncio.to_thread(self._keep, epoch, known, decision)
        return decision

    def _keep(self, epoch: Epoch, known: _Known, decision: Decision) -> None:
        auto = known.policy is CachePolicy.AUTO
        self._history.keep_decision(epoch, decision, auto=auto)
        for verdict in known.new_verdicts:
            self._history.keep_verdict(epoch.job.request.fingerprint, verdict)
        known.new_verdicts.clear()

    async def _recall(self, job: Job, known: _Known) -> None:
        """What earlier runs found out about the pipeline."""
        fingerprint = job.request.fingerprint
        await self._measurer.find(job)
        seen_s = computing_s(known.windows)
        if seen_s is not None:
            await self._measurer.correct(job, seen_s)
        known.expected_reads = await asyncio.to_thread(self._history.expected_reads, fingerprint)
        if known.verdicts is None:
            known.verdicts = list(await asyncio.to_thread(self._history.verdicts, fingerprint))

    def _decision(self, epoch: Epoch, known: _Known, offers: Offers) -> Decision:
        if offers.refusal:
            return Decision(mode=Mode.COMPUTE, reason=f"COMPUTE: {offers.refusal}.")
        points = tuple(self._point(known, offer) for offer in offers.offers)
        fixed = follow(known.policy, points, offers.stored)
        return fixed or self._automatic(epoch, known, offers, points)

    def _automatic(
        self, epoch: Epoch, known: _Known, offers: Offers, points: tuple[PointProfile, ...]
    ) -> Decision:
        job = epoch.job
        if all(point.refusal for point in points):
            reasons = "; ".join(f"not at {point.name!r}: {point.refusal}" for point in points)
            return Decision(mode=Mode.COMPUTE, reason=f"COMPUTE: {reasons}.")
        profile = self._measurer.profile(job, points, batches=_batches(job))
        if profile is None:
            return self._without_profile(job, offers)
        known.verdicts = self._reviewed(job, known)
        situation = self._situation(epoch, known, offers)
        decision = choose(profile, situation, self._prices, self._settings)
        known.current = decision.point
        return decision

    def _without_profile(self, job: Job, offers: Offers) -> Decision:
        if problem := self._measurer.problem(job):
            return Decision(
                mode=Mode.COMPUTE, reason=f"COMPUTE: the pipeline can't be measured: {problem}."
            )
        self._measurer.start(job, [offer.point for offer in offers.offers])
        return Decision(mode=Mode.PROFILE, reason="PROFILE: the pipeline is being measured.")

    def _situation(self, epoch: Epoch, known: _Known, offers: Offers) -> Situation:
        least, most = epoch.expected_workers
        return Situation(
            workers=most,
            least_workers=least,
            demand=_demand(epoch.job),
            expected_reads=known.expected_reads,
            free_bytes=offers.free_bytes,
            entries=offers.stored,
            verdicts=tuple(known.verdicts or ()),
            environment=self._environment,
            current=known.current,
        )

    def _reviewed(self, job: Job, known: _Known) -> list[Verdict]:
        """The choices taken back, with the current one if it turned out wrong."""
        verdicts = list(known.verdicts or ())
        if not known.current or any(v.point == known.current for v in verdicts):
            return verdicts
        found = review(known.windows, known.current, self._environment, self._settings)
        if found is None:
            return verdicts
        log.warning(
            "job %s: a choice is taken back: %s",
            job.name,
            found.reason,
            extra=event("choice_taken_back", job=job.name, point=found.point),
        )
        known.new_verdicts.append(found)
        return [*verdicts, found]

    def measured(self, reader: Reader) -> None:
        """A trainer has new metrics: takes in a stretch of its epoch, if it is long enough."""
        epoch, before, after = reader.epoch, reader.reviewed, reader.metrics
        if after.elements and after.span_s - before.span_s < WINDOW_S and before.elements:
            return
        reader.reviewed = after
        window = _window(epoch, before, after, beside=self._measurer.is_running(epoch.job))
        if window is not None:
            windows = self._of(epoch.job).windows
            windows.append(window)
            del windows[:-KEPT_WINDOWS]

    def _point(self, known: _Known, offer: Offer) -> PointProfile:
        point, refusal = offer.point, offer.point.refusal
        if known.failed_writes.get(point.name, 0) >= FAILED_WRITES and offer.entry is None:
            refusal = refusal or f"{FAILED_WRITES} epochs wrote it in vain"
        return PointProfile(name=point.name, refusal=refusal)

    async def stop(self) -> None:
        """Breaks off what is being measured."""
        await self._measurer.stop()

    # The log

    def note(self, epoch: Epoch, decision: Decision) -> None:
        """Keeps a decision, unless it is the last one over again."""
        decisions = self._of(epoch.job).decisions
        if decisions and _is_same(decisions[-1], decision):
            return
        decisions.append(
            cachew_pb2.CacheDecision(
                epoch=epoch.number,
                mode=decision.mode,
                point=decision.point,
                reason=decision.reason,
                figures=_figures(decision.candidates),
                direct=decision.direct,
            )
        )
        del decisions[:-KEPT_DECISIONS]
        log.info(
            "job %s: from epoch %d on %s",
            epoch.job.name,
            epoch.number,
            decision.reason,
            extra=event(
                "mode_decided",
                job=epoch.job.name,
                epoch=epoch.number,
                mode=decision.mode,
                point=decision.point,
            ),
        )

    def not_stored(self, epoch: Epoch, point: str, reason: str) -> None:
        """An epoch wrote, and it could not be committed."""
        failed = self._of(epoch.job).failed_writes
        failed[point] = failed.get(point, 0) + 1
        epoch.job.note(f"epoch {epoch.number} stored nothing at {point!r}: {reason}")

    def _of(self, job: Job) -> _Known:
        if job.choices is None:
            job.choices = _Known(policy=self.policy(job))
        known: _Known = job.choices
        return known


def _figures(candidates: tuple[Candidate, ...]) -> str:
    if all(candidate.figures is None for candidate in candidates):
        return ""
    return json.dumps([asdict(candidate) for candidate in candidates])


def _batches(job: Job) -> int | None:
    """Elements of an epoch, where that is known."""
    if job.request.cardinality > 0:
        return job.request.cardinality
    finished = [epoch for epoch in job.epochs if epoch.state is EpochState.FINISHED]
    return finished[-1].totals().elements or None if finished else None


def _demand(job: Job) -> float | None:
    """Elements a second that the trainers could take, by what they did between two; None: unknown.

    Several trainers take turns, so what they did between two adds up to less than their time.
    """
    measured = [epoch for epoch in job.epochs if epoch.totals().elements > 1]
    if not measured:
        return None
    totals, readers = measured[-1].totals(), len(measured[-1].readers)
    step_s = totals.step_s / totals.elements
    return readers / step_s if step_s > LEAST_STEP_S else None


def _window(
    epoch: Epoch,
    before: cachew_pb2.EpochMetrics,
    after: cachew_pb2.EpochMetrics,
    *,
    beside: bool,
) -> Window | None:
    # The first stretch holds the start: workers that begin, functions that are traced.
    if not before.elements or after.elements <= before.elements or epoch.mode.writes:
        return None
    wait_s, step_s = after.wait_s - before.wait_s, after.step_s - before.step_s
    seconds = wait_s + step_s
    if seconds <= 0:
        return None
    earlier = [other for other in epoch.job.epochs if other.number < epoch.number]
    return Window(
        epoch=epoch.number,
        mode=Mode.COMPUTE if epoch.mode is Mode.PROFILE else epoch.mode,
        point=epoch.point,
        workers=max(1, epoch.workers),
        batches=after.elements - before.elements,
        seconds=seconds,
        waited=wait_s > WAITED * seconds,
        cold=epoch.mode.reads and not any(other.point == epoch.point for other in earlier),
        beside=beside,
    )


def _is_same(last: cachew_pb2.CacheDecision, decision: Decision) -> bool:
    # The figures behind a choice that stands change a little from epoch to epoch.
    told = (last.mode, last.point, last.direct)
    same = told == (decision.mode, decision.point, decision.direct)
    return same and (bool(decision.point) or last.reason == decision.reason)
