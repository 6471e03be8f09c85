"""How many workers each job wants: what its trainers measure, given to the policy, and what the
policy said, kept for people and for the next run.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from cachew_core.dispatcher.events import event
from cachew_core.dispatcher.history import History
from cachew_core.dispatcher.jobs import Client, Epoch, Job, Reader
from cachew_core.policy.autoscale import (
    AutoscaleSettings,
    Scaling,
    ScalingPolicy,
    begin,
    look,
    parse_scaling_policy,
)
from cachew_core.policy.modes import END, Mode
from cachew_core.policy.trainers import Reading, Trainers, combine, problem_of
from cachew_core.proto import cachew_pb2

log = logging.getLogger(__name__)

KEPT_DECISIONS = 200


@dataclass(slots=True, kw_only=True)
class _Known:
    """What is known of one job.

    Attributes:
        modes: where it stands in each mode that it was in.
        mode: the key of the one that it is in.
        readings: the latest of each trainer.
        remembered: numbers that earlier runs came to rest at, by mode, the newest first.
        by_hand: the number that a person set.
        nonsense: measurements that were ignored, because they make no sense.
        nonsense_note: what status says of them.
    """

    policy: ScalingPolicy
    remembered: Mapping[str, int] | None = None
    modes: dict[str, Scaling] = field(default_factory=dict)
    mode: str = ""
    trainers: Trainers = field(default_factory=Trainers)
    readings: dict[str, Reading] = field(default_factory=dict)
    by_hand: int | None = None
    nonsense: int = 0
    nonsense_note: str = ""
    decisions: list[cachew_pb2.ScalingDecision] = field(default_factory=list)


class Autoscaler:
    """Says how many workers jobs want. Gives none.

    Args:
        policy: of jobs that don't name one.
        settings: of the policies.
        history: what earlier runs came to rest at.
        clock: in seconds.
    """

    def __init__(
        self,
        policy: ScalingPolicy,
        settings: AutoscaleSettings,
        history: History,
        clock: Callable[[], float],
    ) -> None:
        self._policy = policy
        self._settings = settings
        self._history = history
        self._clock = clock
        self._keeping: set[asyncio.Future[None]] = set()

    async def recall(self, job: Job) -> None:
        """Finds what earlier runs of the pipeline came to rest at; before its first epoch."""
        known = self._of(job)
        if known.remembered is None and known.policy is not ScalingPolicy.ALL:
            fingerprint = job.request.fingerprint
            known.remembered = await asyncio.to_thread(self._history.workers, fingerprint)

    async def stop(self) -> None:
        """Waits for what is being kept."""
        if self._keeping:
            await asyncio.wait(self._keeping)

    def policy(self, job: Job) -> ScalingPolicy:
        """What decides for a job.

        Where stock does not hand out splits, each worker adds data of its own, or trainers count on
        a number that stays: such jobs get all.
        """
        return self._of(job).policy

    def want(self, job: Job) -> int | None:
        """The workers that a job wants now, at least 1; None: all that there are."""
        target, most = self.wish(job), job.most_workers
        return most if target is None else min(target, most or target)

    def wish(self, job: Job) -> int | None:
        """The same, if the job itself set no limit."""
        return self._of(job).by_hand or self._now(job).target

    def settled(self, job: Job) -> bool:
        """Whether a job's policy has come to rest."""
        return self._of(job).by_hand is None and self._now(job).settled

    def set_by_hand(self, job: Job, workers: int | None) -> None:
        """A person says how many workers a job gets; None: its policy does again."""
        known = self._of(job)
        known.by_hand = workers
        reason = f"{workers} workers, set by hand" if workers else "the policy decides again"
        self._log(job, known, workers or self._now(job).target, reason)

    def decisions(self, job: Job) -> list[cachew_pb2.ScalingDecision]:
        """What was decided for a job so far, oldest first."""
        return list(self._of(job).decisions)

    def planned(self, epoch: Epoch, guess: int | None) -> None:
        """It is known what an epoch does: another mode is another problem.

        Args:
            epoch: with its mode and point.
            guess: workers that were thought of when the mode was chosen.
        """
        known, mode = self._of(epoch.job), _key(epoch)
        if mode == known.mode:
            return
        if mode not in known.modes:
            known.modes[mode] = self._begun(known, mode, guess)
        known.mode = mode
        self._note(epoch.job, known)

    def measured(self, reader: Reader, *, workers: int, most: int) -> bool:
        """Takes in what a trainer measured: `reader.metrics`.

        Args:
            reader: whose metrics are new.
            workers: that serve its job now.
            most: that the pool could give the job now.

        Returns:
            Whether another number is wanted than before.
        """
        epoch, known = reader.epoch, self._of(reader.epoch.job)
        if known.policy is ScalingPolicy.ALL or not epoch.live or epoch.direct or not workers:
            return False
        if not self._take(reader, known):
            return False
        known.trainers, progress = combine(
            known.trainers,
            known.readings,
            epoch=epoch.number,
            workers=workers,
            ending=epoch.ending,
        )
        if progress is None:
            return False
        before = self._now(epoch.job)
        after = look(before, progress, most=max(1, most), settings=self._settings)
        known.modes[known.mode] = after
        if after.reason != before.reason or after.settled != before.settled:
            self._note(epoch.job, known)
        if after.settled and not before.settled and after.target is not None:
            self._keep(epoch.job, known.mode, after.target)
        return after.target != before.target

    def left(self, client: Client) -> None:
        """A trainer reads the job no more."""
        self._of(client.job).readings.pop(client.id, None)

    def _take(self, reader: Reader, known: _Known) -> bool:
        """Whether a trainer's measurement is one that counts."""
        metrics, last = reader.metrics, known.readings.get(reader.client.id)
        if last is not None and metrics.iterator < last.epoch:
            return False
        now = Reading(
            epoch=metrics.iterator,
            batches=metrics.elements,
            seconds=metrics.span_s,
            wait_s=max(metrics.span_s - metrics.step_s, 0.0),
            at_s=self._clock(),
        )
        problem = problem_of(last, now)
        if problem:
            self._ignore(reader, known, problem)
            return False
        if last is None or (now.epoch, now.batches) != (last.epoch, last.batches):
            known.readings[reader.client.id] = now
        return True

    def _ignore(self, reader: Reader, known: _Known, problem: str) -> None:
        job, client = reader.epoch.job, reader.client
        job.forget_note(known.nonsense_note)
        known.nonsense += 1
        known.nonsense_note = (
            f"{known.nonsense} measurements of trainers made no sense and were ignored, the last "
            f"one of process {client.pid} on {client.host}: {problem}"
        )
        job.note(known.nonsense_note)
        if known.nonsense == 1:
            log.warning("job %s: %s", job.name, known.nonsense_note)

    def _now(self, job: Job) -> Scaling:
        known = self._of(job)
        if known.mode not in known.modes:
            known.modes[known.mode] = self._begun(known, known.mode, None)
        return known.modes[known.mode]

    @staticmethod
    def _begun(known: _Known, mode: str, guess: int | None) -> Scaling:
        remembered = known.remembered or {}
        # Before it is known what an epoch does: most likely what the last one did.
        found = remembered.get(mode) if mode else next(iter(remembered.values()), None)
        if found is not None:
            return begin(known.policy, guess=found, why="an earlier run came to rest there")
        if guess is not None:
            return begin(known.policy, guess=guess, why="by what was measured of the pipeline")
        before = known.modes.get(known.mode) if known.mode else None
        if before is not None and before.target is not None:
            return begin(known.policy, guess=before.target, why="as in the mode before")
        return begin(known.policy)

    def _keep(self, job: Job, mode: str, workers: int) -> None:
        fingerprint = job.request.fingerprint
        keeping = asyncio.ensure_future(
            asyncio.to_thread(self._history.keep_workers, fingerprint, mode, workers)
        )
        self._keeping.add(keeping)
        keeping.add_done_callback(self._keeping.discard)

    def _note(self, job: Job, known: _Known) -> None:
        # What the policy thinks meanwhile is not what is done.
        if known.by_hand is None:
            now = known.modes[known.mode]
            self._log(job, known, now.target, now.reason, settled=now.settled)

    @staticmethod
    def _log(
        job: Job, known: _Known, workers: int | None, reason: str, *, settled: bool = False
    ) -> None:
        known.decisions.append(
            cachew_pb2.ScalingDecision(
                at_s=time.time(),
                epoch=job.opened_epochs,
                mode=known.mode,
                workers=workers or 0,
                reason=reason,
                settled=settled,
            )
        )
        del known.decisions[:-KEPT_DECISIONS]
        log.info(
            "job %s: epoch %d, %s: %s",
            job.name,
            job.opened_epochs,
            known.mode,
            reason,
            extra=event(
                "workers_decided",
                job=job.name,
                epoch=job.opened_epochs,
                mode=known.mode,
                workers=workers,
                settled=settled,
            ),
        )

    def _of(self, job: Job) -> _Known:
        if job.scaling is None:
            named = job.request.scaling_policy
            policy = parse_scaling_policy(named) if named else self._policy
            job.scaling = _Known(policy=policy if job.sharded else ScalingPolicy.ALL)
        known: _Known = job.scaling
        return known


def _key(epoch: Epoch) -> str:
    """What the number of workers depends on: what they do."""
    # While a pipeline is measured, its job computes.
    mode = Mode.COMPUTE if epoch.mode is Mode.PROFILE else epoch.mode
    return mode if epoch.point in ("", END) else f"{mode} at {epoch.point}"
