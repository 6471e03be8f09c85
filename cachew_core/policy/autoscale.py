"""How many workers a job wants in the mode that it is in: one of the rules, behind one face."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from cachew_core.errors import SettingsError
from cachew_core.policy.batch_reports import Gathering, ReportSettings, gather
from cachew_core.policy.hill_climb import HillClimb, HillClimbSettings, climb
from cachew_core.policy.progress import Progress
from cachew_core.policy.rate_match import RateMatch, RateMatchSettings, match_rates
from cachew_core.policy.rate_windows import RateGathering, RateSettings, gather_rates


class ScalingPolicy(StrEnum):
    """What decides how many workers a job gets."""

    RATE_MATCH = "rate_match"
    """Our rule, from measured rates."""
    HILL_CLIMB = "hill_climb"
    """The original's: one more, or one fewer, as long as it pays."""
    ALL = "all"
    """As many as there are."""


_BY_NAME: Final = {
    "auto": ScalingPolicy.RATE_MATCH,
    "1": ScalingPolicy.RATE_MATCH,
    "2": ScalingPolicy.ALL,
    **{str(policy): policy for policy in ScalingPolicy},
}


def parse_scaling_policy(value: str | int) -> ScalingPolicy:
    """A policy by its name, by `auto` for the best one, or by the original's number (1, 2).

    Raises:
        SettingsError: there is none of that name.
    """
    found = _BY_NAME.get(str(value).strip().lower())
    if found is None:
        raise SettingsError(
            f"scaling_policy={value!r} can't be used: give one of {', '.join(_BY_NAME)}"
        )
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoscaleSettings:
    """The constants of all rules.

    Attributes:
        reports: of batches, for the original's rule.
        climbing: the original's rule.
        windows: of batches, for ours.
        matching: our rule.
    """

    reports: ReportSettings = field(default_factory=ReportSettings)
    climbing: HillClimbSettings = field(default_factory=HillClimbSettings)
    windows: RateSettings = field(default_factory=RateSettings)
    matching: RateMatchSettings = field(default_factory=RateMatchSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """Where one job stands in one mode.

    Attributes:
        target: workers wanted, whatever the pool has; None: all.
        settled: the rule has come to rest.
        reason: why the target is what it is.
        looked: windows or reports that were taken in.
        rule: what the rule knows.
        gathering: batches that are no window or report yet.
    """

    rule: HillClimb | RateMatch | None = None
    gathering: Gathering | RateGathering | None = None
    looked: int = 0

    @property
    def target(self) -> int | None:
        return self.rule.target if self.rule is not None else None

    @property
    def settled(self) -> bool:
        return self.rule is None or self.rule.settled is not None

    @property
    def reason(self) -> str:
        return self.rule.reason if self.rule is not None else "all workers: the policy is `all`"


def begin(policy: ScalingPolicy, *, guess: int = 1, why: str = "") -> Scaling:
    """Where a job stands that nothing was measured of.

    Args:
        policy: its rule.
        guess: the number of workers to begin with.
        why: where that comes from, in words.
    """
    reason = f"{guess} worker{'s' * (guess > 1)} to begin with" + (f": {why}" if why else "")
    match policy:
        case ScalingPolicy.RATE_MATCH:
            return Scaling(rule=RateMatch(target=guess, reason=reason), gathering=RateGathering())
        case ScalingPolicy.HILL_CLIMB:
            return Scaling(rule=HillClimb(target=guess, reason=reason), gathering=Gathering())
        case ScalingPolicy.ALL:
            return Scaling()


def look(scaling: Scaling, now: Progress, *, most: int, settings: AutoscaleSettings) -> Scaling:
    """Takes in how far the job is.

    Args:
        scaling: where it stood.
        now: how far it is; later than all that was taken in before.
        most: workers that the pool could give it now, at least 1.
        settings: of the rules.
    """
    rule, gathering = scaling.rule, scaling.gathering
    if isinstance(rule, RateMatch) and isinstance(gathering, RateGathering):
        gathering, window = gather_rates(gathering, now, settings.windows)
        if window is None:
            return replace(scaling, gathering=gathering)
        rule = match_rates(rule, window, most=most, settings=settings.matching)
        return Scaling(rule=rule, gathering=gathering, looked=scaling.looked + 1)
    if isinstance(rule, HillClimb) and isinstance(gathering, Gathering):
        gathering, report = gather(gathering, now, settings.reports)
        if report is None:
            return replace(scaling, gathering=gathering)
        rule = climb(rule, report, most=most, settings=settings.climbing)
        return Scaling(rule=rule, gathering=gathering, looked=scaling.looked + 1)
    return scaling
