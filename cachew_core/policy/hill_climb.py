"""The original's rule for the number of workers: one more or one fewer, as long as it pays.

Section 4.2 of the Cachew paper, with what its sources add. What is different here: a number that
the pool can't give is not waited for, and a job that came down to one worker stays there.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from cachew_core.policy.progress import Stretch


@dataclass(frozen=True, slots=True, kw_only=True)
class HillClimbSettings:
    """The rule's constants.

    Attributes:
        add_over: a worker is added while the last one made batches faster by more than this part.
        remove_under: one is taken away while that made batches slower by less than this part.
        recheck_reports: a settled job is looked at again after so many reports.
        slow_growth: it climbs again if batches take longer by this factor than when it settled.
        idle_growth: it descends if the part of the time in which the trainer does not wait has
            grown by this factor, or if batches take longer though it never waits. The original
            looks at the length of the trainer's queue, which stock TensorFlow does not tell.
        outlier: a change by more than this part is passed over.
        history: how many reports are kept.
    """

    add_over: float = field(default=0.03, metadata={"origin": "paper"})
    remove_under: float = field(default=0.03, metadata={"origin": "paper"})
    recheck_reports: int = field(default=10, metadata={"origin": "paper"})
    slow_growth: float = field(default=1.5, metadata={"origin": "code"})
    idle_growth: float = field(default=1.4, metadata={"origin": "paper"})
    outlier: float = field(default=1.2, metadata={"origin": "code"})
    history: int = field(default=20, metadata={"origin": "code"})


@dataclass(frozen=True, slots=True, kw_only=True)
class HillClimb:
    """Where the rule stands for one job in one mode.

    Attributes:
        target: workers wanted.
        settled: the report by which it settled; None while it climbs.
        reports: the last ones, oldest first.
        since: reports since it settled, or was looked at again.
        capped: it settled because the pool had no more.
        reason: why the target is what it is.
    """

    target: int = 1
    settled: Stretch | None = None
    reports: tuple[Stretch, ...] = ()
    since: int = 0
    capped: bool = False
    reason: str = "one worker to begin with"


def climb(
    state: HillClimb, report: Stretch, *, most: int, settings: HillClimbSettings | None = None
) -> HillClimb:
    """Takes in a report.

    Args:
        state: where the rule stood.
        report: of batches since then.
        most: workers that the pool could give now, at least 1.
        settings: None: the defaults.
    """
    settings = settings or HillClimbSettings()
    if state.target > most:
        state = replace(
            state, target=most, settled=None, reason=f"the pool has {most} workers for it"
        )
    if state.capped and most > state.target:
        state = _to(replace(state, capped=False, settled=None), 1, "the pool has more again")
    if report.workers != state.target:
        return state
    before = state.reports
    climbed = replace(state, reports=(*before, report)[-settings.history :])
    if state.settled is None:
        return _climb(climbed, before, report, most, settings)
    return _look_again(climbed, state.settled, report, most, settings)


def _climb(
    state: HillClimb,
    before: tuple[Stretch, ...],
    report: Stretch,
    most: int,
    settings: HillClimbSettings,
) -> HillClimb:
    if not before:
        return _add(state, report, most, f"{_ms(report)} a batch with one; what do two bring?")
    other = next((each for each in reversed(before) if each.workers != report.workers), None)
    if other is None:
        return _settle(state, report, "nothing to compare with")
    gain = 1 - report.batch_s / other.batch_s
    if abs(gain) > settings.outlier:
        return replace(state, reports=before)
    words = f"{_ms(report)} a batch with {report.workers}, {_ms(other)} with {other.workers}"
    if report.workers > other.workers:
        if gain > settings.add_over:
            return _add(state, report, most, f"{words}: {gain:.0%} faster")
        return _settle(state, other, f"{words}: not {settings.add_over:.0%} faster")
    if gain <= -settings.remove_under:
        return _settle(state, other, f"{words}: {-gain:.0%} slower")
    return _remove(state, report, f"{words}: not {settings.remove_under:.0%} slower")


def _look_again(
    state: HillClimb,
    settled: Stretch,
    report: Stretch,
    most: int,
    settings: HillClimbSettings,
) -> HillClimb:
    if state.since + 1 < settings.recheck_reports:
        return replace(state, since=state.since + 1)
    state = replace(state, since=0)
    idle, was_idle = _idle_share(report), _idle_share(settled)
    slower = report.batch_s > settings.slow_growth * settled.batch_s
    # A trainer that takes longer and does not wait is not helped by workers.
    bound = slower and idle >= 1 - settings.remove_under
    if bound or 0 < settings.idle_growth * was_idle < idle:
        words = f"it waits {1 - idle:.0%} of the time, {1 - was_idle:.0%} when it settled"
        return _remove(replace(state, settled=None), report, words)
    if slower:
        words = f"{_ms(report)} a batch, {_ms(settled)} when it settled"
        return _add(replace(state, settled=None), report, most, words)
    return state


def _add(state: HillClimb, report: Stretch, most: int, words: str) -> HillClimb:
    if state.target >= most:
        return replace(_settle(state, report, f"{words}; the pool has no more"), capped=True)
    return _to(state, 1, words)


def _remove(state: HillClimb, report: Stretch, words: str) -> HillClimb:
    if state.target == 1:
        return _settle(state, report, f"{words}; one is the least")
    return _to(state, -1, words)


def _to(state: HillClimb, change: int, words: str) -> HillClimb:
    target = state.target + change
    return replace(state, target=target, reason=f"{target} workers: {words}")


def _settle(state: HillClimb, report: Stretch, words: str) -> HillClimb:
    reason = f"{report.workers} workers: {words}"
    return replace(state, target=report.workers, settled=report, since=0, reason=reason)


def _idle_share(report: Stretch) -> float:
    return 1 - report.wait_s / report.seconds if report.seconds > 0 else 0.0


def _ms(report: Stretch) -> str:
    return f"{report.batch_s * 1e3:.1f} ms"
