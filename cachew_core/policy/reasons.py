"""A choice's reason in words, with the figures that it rests on."""

from __future__ import annotations

from collections.abc import Sequence

from cachew_core.policy.constants import AutocacheSettings, Objective
from cachew_core.policy.costs import Profile
from cachew_core.policy.decisions import Candidate, Figures, Situation
from cachew_core.policy.modes import END, Mode, get_mode


def point_text(point: str) -> str:
    """A cache point in the user's words."""
    return "the pipeline's end" if point == END else f"mark {point!r}"


def explain(
    chosen: Candidate,
    candidates: Sequence[Candidate],
    profile: Profile,
    situation: Situation,
    settings: AutocacheSettings,
) -> str:
    """Says what was chosen, against what, and what could not be chosen and why."""
    parts = [f"{_name(chosen)}: {_figures(chosen, settings)}"]
    parts += [
        f"{_name(other)} would take {_figures(other, settings)}"
        for other in candidates
        if other is not chosen and not other.left_out
    ]
    parts += [f"not {point_text(c.point)}: {c.left_out}" for c in candidates if c.left_out]
    if not profile.points:
        parts.append("the pipeline has no cache point")
    return "; ".join([*parts, _ground(chosen, candidates, situation, settings)]) + "."


def _name(candidate: Candidate) -> str:
    if candidate.mode is Mode.COMPUTE:
        return "COMPUTE"
    return f"{candidate.mode} at {point_text(candidate.point)}"


def _figures(candidate: Candidate, settings: AutocacheSettings) -> str:
    figures = candidate.figures
    if figures is None:
        return "an unknown time"
    text = (
        f"{figures.batch_s * 1e3:.1f} ms a batch with {_workers(figures.workers)}"
        f" ({figures.worker_s * 1e3:.1f} worker-ms)"
    )
    if settings.objective is Objective.COST:
        text += f", {figures.price * 1e6:,.2f} per million batches"
    if candidate.mode.writes:
        text += _writing(candidate, figures)
    return text


def _writing(candidate: Candidate, figures: Figures) -> str:
    put_ms = (figures.put_batch_s or 0.0) * 1e3
    return (
        f" in {get_mode(candidate.point)}, after an epoch of {put_ms:.1f} ms a batch that stores"
        f" {figures.added_bytes / 1e6:.3g} MB a batch"
    )


def _ground(
    chosen: Candidate,
    candidates: Sequence[Candidate],
    situation: Situation,
    settings: AutocacheSettings,
) -> str:
    open_figures = [c.figures for c in candidates if c.figures is not None and not c.left_out]
    figures = chosen.figures
    if figures is None or len(open_figures) < 2:
        return "nothing else could be chosen"
    timed = settings.objective is Objective.TIME
    values = [f.batch_s if timed else f.price for f in open_figures]
    own = figures.batch_s if timed else figures.price
    bound = min(values) * (1 + settings.margin)
    what = "time" if timed else "price"
    if sum(value <= bound for value in values) < 2 and own <= bound:
        return f"its {what} is the least by more than {settings.margin:.0%}"
    ground = f"its {what} is within {settings.margin:.0%} of the least"
    if own > bound or (chosen.point == situation.current and own > min(values)):
        return f"no other choice is clearly better in {what} than what is done now"
    if figures.worker_s * (1 + settings.margin) < max(f.worker_s for f in open_figures):
        return f"{ground}, and it keeps few workers busy"
    return f"{ground}, and it stores least" if not chosen.mode.reads else ground


def _workers(count: int) -> str:
    return "1 worker" if count == 1 else f"{count} workers"
