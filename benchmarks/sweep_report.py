"""What the autocaching study found: a table and a plot for people, JSON for what reads it later."""

from __future__ import annotations

from matplotlib.figure import Figure
from rich import box
from rich.table import Table

from benchmarks.record import Record, RunReport

_MARKERS = {"compute": "s", "source": "o", "full": "^"}
_COLOURS = {"compute": "tab:red", "source": "tab:blue", "full": "tab:green"}
_AUTO_COLOUR = "black"
STATIC = tuple(_MARKERS)
COMPUTE = "compute"
AUTO = "auto"

_EQUAL = 1.02
"""Of the best policy's time: within it, a policy counts as best, too."""


class PolicyReport(Record):
    """One policy in one study."""

    policy: str
    batch_ms: float
    """Median of the epochs' times."""
    runs_ms: list[float]
    """Of each epoch the mean time from batch to batch, from the first to the last."""
    modes: list[str]
    """Of all its epochs, those before the measured ones included."""
    reasons: list[str]
    """Of what was decided, oldest first."""


class ModelReport(Record):
    """What a cost model makes of what `auto` measured of the pipeline."""

    model: str
    policy: str
    """The one that it chooses."""
    predicted_ms: dict[str, float]
    """Time from batch to batch of each static policy."""


class StudyReport(Record):
    """One pipeline with one wait."""

    name: str
    sleep_ms: int
    expands: bool
    """It is the other pipeline, in which computing should win."""
    policies: list[PolicyReport]
    models: list[ModelReport]

    def batch_ms(self, policy: str) -> float:
        """Measured."""
        return next(report.batch_ms for report in self.policies if report.policy == policy)

    @property
    def best_ms(self) -> float:
        """Of the best static policy."""
        return min(self.batch_ms(policy) for policy in STATIC)

    def over_best(self, policy: str) -> float:
        """How much longer it took than the best static policy, as a part of that."""
        return self.batch_ms(policy) / self.best_ms - 1

    @property
    def best(self) -> list[str]:
        """The static policies that are as good as the best."""
        return [name for name in STATIC if self.batch_ms(name) <= _EQUAL * self.best_ms]

    @property
    def chosen(self) -> str:
        """What `auto` did in the end."""
        modes = next(report.modes for report in self.policies if report.policy == AUTO)
        return {"GET": "full", "GET_SOURCE": "source"}.get(modes[-1], "compute")


class SweepReport(RunReport):
    """One run of the study."""

    studies: list[StudyReport]


def table_of(report: SweepReport) -> Table:
    """A row for each study."""
    table = Table(
        title="Time from batch to batch, in ms, by what is stored",
        caption="The epochs were too small for these numbers to mean anything"
        if report.quick
        else "over best: above the best static policy; best: within 2 % of it",
        box=box.SIMPLE_HEAD,
    )
    table.add_column("pipeline")
    for heading in (*STATIC, AUTO, "over best"):
        table.add_column(heading, justify="right")
    for heading in ("best", "auto chose", *_models(report)):
        table.add_column(heading)
    for study in report.studies:
        table.add_row(*_row(study))
    return table


def summary_of(report: SweepReport) -> list[str]:
    """What the table comes to, in sentences."""
    worst = max(report.studies, key=lambda study: study.over_best(AUTO))
    sweep = [study for study in report.studies if not study.expands]
    best = {policy: [s.name for s in sweep if policy in s.best] for policy in STATIC}
    places = "; ".join(f"{policy} at {', '.join(at) or 'none'}" for policy, at in best.items())
    lines = [
        f"{AUTO} is at most {worst.over_best(AUTO):+.1%} over the best one, at {worst.name}.",
        f"Best within 2 %: {places}.",
    ]
    for study in (study for study in report.studies if study.expands):
        stored_ms = min(study.batch_ms(policy) for policy in STATIC if policy != COMPUTE)
        gain = 1 - study.batch_ms(COMPUTE) / stored_ms
        lines.append(
            f"{study.name}: computing takes {gain:.1%} less than the better of the others."
        )
    return lines


def _models(report: SweepReport) -> list[str]:
    models = next((study.models for study in report.studies if study.models), [])
    return [f"{model.model} model" for model in models]


def _row(study: StudyReport) -> list[str]:
    times = [f"{study.batch_ms(policy):.1f}" for policy in (*STATIC, AUTO)]
    models = [
        f"{model.policy} ({100 * study.over_best(model.policy):+.1f} %)" for model in study.models
    ]
    over = f"{100 * study.over_best(AUTO):+.1f} %"
    return [study.name, *times, over, ", ".join(study.best), study.chosen, *models]


def plot(report: SweepReport) -> Figure:
    """Time from batch to batch over the wait, as in the paper's figure 8."""
    studies = [study for study in report.studies if not study.expands]
    sleeps = [study.sleep_ms for study in studies]
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.add_subplot()
    for policy in STATIC:
        times = [study.batch_ms(policy) for study in studies]
        axes.plot(sleeps, times, marker=_MARKERS[policy], color=_COLOURS[policy], label=policy)
    axes.plot(
        sleeps,
        [study.batch_ms(AUTO) for study in studies],
        linestyle="none",
        marker="x",
        markersize=11,
        color=_AUTO_COLOUR,
        label=AUTO,
    )
    axes.set_xlabel("wait in each batch (ms)")
    axes.set_ylabel("time from batch to batch (ms)")
    axes.set_ylim(bottom=0)
    axes.legend()
    return figure
