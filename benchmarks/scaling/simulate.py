"""`python -m benchmarks simulate`: the policies over many made-up jobs and services."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median, quantiles
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.progress import track
from rich.table import Table

from benchmarks.console import new_console
from benchmarks.record import Record, RunReport

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from benchmarks.scaling.simulation import JobSpec, Outcome, World
    from cachew_core.policy.autoscale import ScalingPolicy

RATIOS = (0.3, 0.9, 1.0, 1.02, 1.5, 2.0, 2.02, 3.3, 4.0, 6.5, 10.0, 17.0, 25.5, 40.0, 60.0)
"""A batch's work of one worker in steps of the trainer."""

STEPS_S = (0.05, 0.5)
SHARED = (0.0, 0.6, 1.5)
"""What all workers share needs so many steps for a batch."""

STARTS_S = (7.0, 60.0)
NOISES = (0.0, 0.2)
HOURS = 2.0
"""A job's length, if nothing held it up."""

LOAD_STEPS = ((), ((0.5, 0.5),), ((0.5, 2.0),))
LIVES_S = 3600.0

MOST_WORKERS = 128
CROWDS = ((10, 64), (100, 1000), (1000, 10_000))
"""Jobs and workers of services with many jobs."""


class CaseRecord(Record):
    """One job under one policy."""

    group: str
    policy: str
    ratio: float
    regret: float
    """How much more it cost than with the best fixed number of workers; 0.01 is 1 %."""
    slower: float
    """How much longer it took than with the most workers from its start."""
    worker_s: float
    rescalings: int
    converged_s: float
    """When its number of workers was changed last."""


class SimulationReport(RunReport):
    """One run of the study."""

    cases: list[CaseRecord]
    round_cpu_s: float
    """CPU time of one decision for each of 1,000 jobs and the shares of 10,000 workers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    name: str
    world: World
    specs: Sequence[JobSpec]
    together: bool
    """In one service; else each alone."""


def simulate(
    quick: Annotated[
        bool, typer.Option("--quick", help="A few jobs: shows that all works.")
    ] = False,
    policy: Annotated[
        list[str] | None, typer.Option(help="Only these policies; may be given again.")
    ] = None,
    report: Annotated[
        Path, typer.Option(help="The JSON file to write; the plot lies beside it.")
    ] = Path("reports/simulate.json"),
) -> None:
    """Run the scaling policies in simulated time, over jobs that no machine here could run."""
    from cachew_core.policy.autoscale import ScalingPolicy

    console = new_console()
    policies = [ScalingPolicy(name) for name in policy or ("rate_match", "hill_climb")]
    groups = list(_groups(quick=quick))
    pairs = list(itertools.product(groups, policies))
    with ProcessPoolExecutor() as pool:
        done = pool.map(_run, *zip(*pairs, strict=True))
        cases = [
            case
            for found in track(done, "simulating", total=len(pairs), console=console)
            for case in found
        ]
    result = SimulationReport.begun(quick=quick, cases=cases, round_cpu_s=_round_cpu_s())
    result.write(report)
    console.print(table_of(result))
    console.print(
        f"a decision for 1,000 jobs and 10,000 workers: {result.round_cpu_s:.3f} s of CPU"
    )
    picture = report.with_suffix(".png")
    plot(result).savefig(picture, dpi=150)
    console.print(f"The same, with each job, is in {report}, and the plot in {picture}.")


def _groups(*, quick: bool) -> Iterator[_Group]:
    from benchmarks.scaling.simulation import World

    hours = 0.05 if quick else HOURS
    for start_s, noise in itertools.product(STARTS_S, NOISES):
        world = World(workers=MOST_WORKERS, start_s=start_s, noise=noise)
        name = f"start {start_s:g} s, noise {noise:.0%}"
        yield _Group(name=name, world=world, specs=_grid(hours, ()), together=False)
        if quick:
            return
    world = World(workers=MOST_WORKERS, start_s=30, noise=0.1)
    for steps in LOAD_STEPS[1:]:
        name = f"the trainer's step x {steps[0][1]:g} half-way"
        yield _Group(name=name, world=world, specs=_grid(hours, steps), together=False)
    mortal = World(workers=MOST_WORKERS, start_s=30, noise=0.1, lives_s=LIVES_S)
    yield _Group(name="workers die hourly", world=mortal, specs=_grid(hours, ()), together=False)
    for jobs, workers in CROWDS:
        crowd = World(workers=workers, start_s=30, noise=0.1)
        yield _Group(
            name=f"{jobs:,} jobs, {workers:,} workers",
            world=crowd,
            specs=_crowd(jobs, hours),
            together=True,
        )


def _grid(hours: float, load_steps: tuple[tuple[float, float], ...]) -> list[JobSpec]:
    from benchmarks.scaling.simulation import JobSpec

    return [
        JobSpec(
            work_s=ratio * step_s,
            step_s=step_s,
            shared_s=shared * step_s,
            batches=int(3600 * hours / (step_s * max(1.0, shared))),
            load_steps=load_steps,
        )
        for ratio, step_s, shared in itertools.product(RATIOS, STEPS_S, SHARED)
    ]


def _crowd(jobs: int, hours: float) -> list[JobSpec]:
    from benchmarks.scaling.simulation import JobSpec

    return [
        JobSpec(
            work_s=RATIOS[n % 12] * 0.5,
            step_s=0.5,
            batches=int(3600 * hours / 0.5),
            arrives_s=float(n % 60),
        )
        for n in range(jobs)
    ]


def _run(group: _Group, policy: ScalingPolicy) -> list[CaseRecord]:
    from benchmarks.scaling.simulation import Simulation

    if group.together:
        outcomes = Simulation(group.specs, group.world, policy).run()
    else:
        outcomes = [
            outcome
            for seed, spec in enumerate(group.specs)
            for outcome in Simulation([spec], group.world, policy, seed=seed).run()
        ]
    return [_record(group, policy, outcome) for outcome in outcomes]


def _record(group: _Group, policy: ScalingPolicy, outcome: Outcome) -> CaseRecord:
    from cachew_core.policy.constants import Prices

    spec, most = outcome.spec, min(group.world.workers, MOST_WORKERS)
    return CaseRecord(
        group=group.name,
        policy=policy,
        ratio=spec.work_s / spec.step_s,
        regret=outcome.regret(Prices(), most, group.world.noise),
        slower=outcome.seconds / spec.seconds(most, group.world.noise) - 1,
        worker_s=outcome.worker_s,
        rescalings=len(outcome.targets) - 1,
        converged_s=outcome.converged_s,
    )


def _round_cpu_s() -> float:
    """Of one round of decisions."""
    from cachew_core.policy.autoscale import AutoscaleSettings, ScalingPolicy, begin, look
    from cachew_core.policy.progress import Progress
    from cachew_core.policy.share import Demand, fair_shares

    jobs = [begin(ScalingPolicy.RATE_MATCH, guess=15) for _ in range(1000)]
    settings = AutoscaleSettings()
    began = time.process_time()
    for count in (100, 200):
        if count == 200:
            began = time.process_time()
        now = Progress(epoch=1, workers=15, batches=count, seconds=count / 10, wait_s=count / 20)
        jobs = [look(job, now, most=20, settings=settings) for job in jobs]
        fair_shares(10_000, [Demand(job=str(n), want=job.target) for n, job in enumerate(jobs)])
    return time.process_time() - began


def table_of(report: SimulationReport) -> Table:
    """A row for each group and policy."""
    table = Table(
        title="Regret: cost above that of the best fixed number of workers", box=box.SIMPLE_HEAD
    )
    table.add_column("jobs")
    table.add_column("policy")
    for heading in (
        "number",
        "regret, mean",
        "median",
        "p95",
        "slower, mean",
        "changes, median",
        "last change after s",
    ):
        table.add_column(heading, justify="right")
    names = list(dict.fromkeys((case.group, case.policy) for case in report.cases))
    policies = list(dict.fromkeys(case.policy for case in report.cases))
    for name in sorted(names, key=lambda name: policies.index(name[1])):
        cases = [case for case in report.cases if (case.group, case.policy) == name]
        table.add_row(*_row(*name, cases))
    for policy in policies:
        cases = [case for case in report.cases if case.policy == policy]
        table.add_row(*_row("all", policy, cases), style="bold")
    return table


def _row(group: str, policy: str, cases: Sequence[CaseRecord]) -> list[str]:
    regrets = [case.regret for case in cases]
    return [
        group,
        policy,
        str(len(cases)),
        f"{mean(regrets):.2%}",
        f"{median(regrets):.2%}",
        f"{quantiles(regrets, n=20)[-1]:.2%}",
        f"{mean(case.slower for case in cases):.2%}",
        f"{median(case.rescalings for case in cases):g}",
        f"{median(case.converged_s for case in cases):.0f}",
    ]


def plot(report: SimulationReport) -> Figure:
    """The regret of each job over its ratio of work to step."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    for policy in dict.fromkeys(case.policy for case in report.cases):
        cases = [case for case in report.cases if case.policy == policy]
        axes.plot(
            [case.ratio for case in cases],
            [100 * case.regret for case in cases],
            ".",
            alpha=0.5,
            label=policy,
        )
    axes.set_xscale("log")
    axes.set_yscale("symlog", linthresh=1)
    axes.set_xlabel("one worker's work for a batch, in steps of the trainer")
    axes.set_ylabel("cost above the best fixed number of workers, %")
    axes.legend()
    return figure
