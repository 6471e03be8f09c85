"""Runs cases: for each number of workers both services, for each case both datasets."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

import tensorflow as tf

from benchmarks.cases import Case
from benchmarks.pairing import Plan, Runs, compare
from benchmarks.reading import Epoch, read_epoch
from benchmarks.report import CaseReport, report_case
from benchmarks.services import Services, both_services

SETTLE_S = 0.1
"""Between two runs: what one has left to do must not fall into the other."""

Tell = Callable[[Runs, float], None]


class WrongDataError(Exception):
    """An epoch did not have the elements that it should have."""


def run_cases(
    cases: Sequence[Case], plan: Plan, *, tell: Tell, starting: Callable[[], None]
) -> Iterator[CaseReport]:
    """Compares case by case.

    Args:
        cases: those with the same number of workers side by side.
        plan: when a comparison is done.
        tell: is told, after each round, the case's runs so far and its seconds.
        starting: is called before services are started.

    Raises:
        WrongDataError: a side gave too many or too few elements.
        StockError: stock's service did not start.
        CachewError: ours did not, or failed.
    """
    shuffled = random.Random(0)
    for workers, group in groupby(cases, key=lambda case: case.workers):
        starting()
        with both_services(workers) as services:
            for case in group:
                yield _run(case, services, plan, shuffled, tell)
                # The case's jobs end before the next one's begin.
                gc.collect()


def _run(
    case: Case, services: Services, plan: Plan, shuffled: random.Random, tell: Tell
) -> CaseReport:
    ours, stock = services.datasets(case)
    cpu_us: dict[str, list[float]] = {"ours": [], "stock": []}

    def measured(side: str, dataset: tf.data.Dataset) -> float:
        epoch = _read(case, side, dataset)
        cpu_us[side].append(1e6 * epoch.cpu_s / epoch.elements)
        return case.figure(epoch)

    def run_ours() -> float:
        time.sleep(SETTLE_S)
        return measured("ours", ours)

    def run_stock() -> float:
        with services.ours_paused():
            time.sleep(SETTLE_S)
            return measured("stock", stock)

    # The first epoch of a job is like no other: workers start, functions are traced.
    for side, dataset in (("ours", ours), ("stock", stock)):
        _read(case, side, dataset)
    comparison = compare(
        run_ours,
        run_stock,
        plan,
        shuffled=shuffled,
        tell=tell,
    )
    return report_case(case, comparison, ours_cpu_us=cpu_us["ours"], stock_cpu_us=cpu_us["stock"])


def _read(case: Case, side: str, dataset: tf.data.Dataset) -> Epoch:
    epoch = read_epoch(dataset, step_s=case.step_s)
    if epoch.values != case.values:
        raise WrongDataError(
            f"{case.name}: an epoch of {side} had {epoch.values} values instead of {case.values}: "
            "its speed means nothing"
        )
    return epoch
