"""The policies by which a person chooses instead of the service.

They need no measurement. What can't be done is not an error, since a training that is already
running must not be harmed by the cache: it is computed, and the reason says so.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Final

from cachew_core.policy.costs import PointProfile
from cachew_core.policy.decisions import Candidate, Decision
from cachew_core.policy.modes import END, CachePolicy, Mode, get_mode, put_mode
from cachew_core.policy.reasons import point_text

_WRITES: Final = frozenset({CachePolicy.PUT, CachePolicy.PUT_SOURCE})
_READS: Final = frozenset({CachePolicy.GET, CachePolicy.GET_SOURCE})
_SOURCES: Final = frozenset({CachePolicy.SOURCE, CachePolicy.PUT_SOURCE, CachePolicy.GET_SOURCE})


def follow(
    policy: CachePolicy, points: tuple[PointProfile, ...], entries: Set[str]
) -> Decision | None:
    """The next epoch under a fixed policy.

    Args:
        policy: the policy.
        points: the pipeline's cache points, from the source to the end.
        entries: points that have an entry already.

    Returns:
        None for the policy that is not fixed, `CachePolicy.AUTO`.
    """
    if policy is CachePolicy.AUTO:
        return None
    if policy is CachePolicy.COMPUTE:
        return _compute(policy, "")
    point = _point(policy, points)
    if point is None:
        missing = "mark (cachew.mark)" if policy in _SOURCES else "cache point at its end"
        return _compute(policy, f", but the pipeline has no {missing}")
    if point.refusal:
        refused = Candidate(mode=put_mode(point.name), point=point.name, left_out=point.refusal)
        return _compute(policy, f", but not {point_text(point.name)}: {point.refusal}", refused)
    return _at(policy, point.name, exists=point.name in entries)


def _at(policy: CachePolicy, point: str, *, exists: bool) -> Decision:
    text = point_text(point)
    if policy in _READS and not exists:
        return _compute(policy, f", but there is no entry of {text}")
    reads = exists and policy not in _WRITES
    mode = get_mode(point) if reads else put_mode(point)
    return Decision(
        mode=mode,
        point=point,
        reason=f"{mode} at {text}: the cache policy is {policy}.",
        candidates=(Candidate(mode=mode, point=point),),
    )


def _point(policy: CachePolicy, points: tuple[PointProfile, ...]) -> PointProfile | None:
    # Of several marks the last one: the one that leaves least to compute.
    wanted = [point for point in points if (point.name != END) is (policy in _SOURCES)]
    return wanted[-1] if wanted else None


def _compute(policy: CachePolicy, but: str, *refused: Candidate) -> Decision:
    return Decision(
        mode=Mode.COMPUTE,
        reason=f"COMPUTE: the cache policy is {policy}{but}.",
        candidates=(Candidate(mode=Mode.COMPUTE), *refused),
    )
