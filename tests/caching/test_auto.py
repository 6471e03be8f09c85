"""The policy `auto`: measured beside the first epoch, decided, written, read, next week again."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import tensorflow as tf
from real_service import RealService, eventually
from simulated_workers import multiset

import cachew_core as cachew

EXPENSIVE_US = 20_000


def _flags(folder: Path) -> list[str]:
    (folder / "cache").mkdir(exist_ok=True)
    return [
        f"--cache-dir={folder / 'cache'}",
        f"--store-url=sqlite:///{folder / 'metadata.db'}",
        "--store=weekly",
        "--cache-policy=auto",
        "--profile-budget=4",
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="module")
def service(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealService]:
    with RealService(tmp_path_factory.mktemp("service"), *_flags(folder)) as running:
        running.add_agent(slots=2)
        yield running


def _modes(service: RealService, job: str) -> list[str]:
    return [epoch.mode for epoch in service.epochs(job)]


def _expensive() -> tf.data.Dataset:
    numbers = tf.data.Dataset.range(100).apply(cachew.sleep(EXPENSIVE_US))
    return numbers.apply(cachew.mark("slept")).map(lambda number: number * 2)


def _cheap() -> tf.data.Dataset:
    return tf.data.Dataset.range(500).map(lambda number: tf.fill([64 * 1024], number))


def _read_until_measured(
    service: RealService, job: str, pipeline: tf.data.Dataset
) -> tf.data.Dataset:
    dataset = pipeline.apply(cachew.distribute(service.endpoint, job_name=job))
    assert multiset(dataset) == multiset(pipeline)
    assert _modes(service, job) == ["PROFILE"]
    eventually(lambda: f"job {job}: its pipeline is measured" in service.log_text())
    return dataset


def test_what_is_expensive_is_measured_then_written_then_read(service: RealService) -> None:
    dataset = _read_until_measured(service, "expensive", _expensive())
    assert multiset(dataset) == multiset(_expensive())
    eventually(lambda: "job expensive: epoch 2 stored" in service.log_text())
    for _ in range(2):
        assert multiset(dataset) == multiset(_expensive())
    modes = _modes(service, "expensive")
    assert modes[1] in ("PUT", "PUT_SOURCE")
    assert modes[2:] == [modes[1].replace("PUT", "GET")] * 2
    decisions = service.job("expensive").decisions
    assert [decision.mode for decision in decisions] == ["PROFILE", modes[1], modes[2]]
    compared = json.loads(decisions[1].figures)
    assert {candidate["point"] for candidate in compared} == {"", "slept", "end"}
    assert all(candidate["figures"]["batch_s"] > 0 for candidate in compared)


def test_what_is_cheaper_to_compute_than_to_read_is_computed(service: RealService) -> None:
    dataset = _read_until_measured(service, "cheap", tf.data.Dataset.range(2000))
    multiset(dataset)
    assert _modes(service, "cheap") == ["PROFILE", "COMPUTE"]
    assert "COMPUTE" in service.job("cheap").decisions[-1].reason


def test_a_choice_does_not_flip_in_twenty_epochs_of_a_trainer_that_is_the_bottleneck(
    service: RealService,
) -> None:
    pipeline = tf.data.Dataset.range(40).apply(cachew.sleep(2_000)).map(lambda number: number + 1)
    dataset = pipeline.apply(cachew.distribute(service.endpoint, job_name="slow trainer"))
    for epoch in range(20):
        got = []
        for number in dataset:
            got.append(int(number))
            time.sleep(0.01)
        assert sorted(got) == list(range(1, 41))
        if epoch == 0:
            eventually(lambda: "job slow trainer: its pipeline is measured" in service.log_text())
    first, *rest = _modes(service, "slow trainer")
    assert first == "PROFILE"
    settled = [mode for mode in rest if not mode.startswith("PUT")]
    assert len(settled) >= 18
    assert len(set(settled)) == 1, rest
    decisions = service.job("slow trainer").decisions
    assert "worker" in decisions[1].reason


def test_random_numbers_keep_a_pipeline_from_being_stored(service: RealService) -> None:
    pipeline = tf.data.Dataset.range(50).map(lambda _: tf.random.uniform([]))
    dataset = pipeline.apply(cachew.distribute(service.endpoint, job_name="random"))
    for _ in range(2):
        assert sum(multiset(dataset).values()) == 50
    assert _modes(service, "random") == ["COMPUTE", "COMPUTE"]
    assert "RandomUniform" in service.job("random").decisions[-1].reason


def test_the_next_run_reads_from_its_first_epoch(
    service: RealService, folder: Path, tmp_path: Path
) -> None:
    service.stop()
    with RealService(tmp_path, *_flags(folder)) as next_week:
        next_week.add_agent(slots=2)
        dataset = _expensive().apply(cachew.distribute(next_week.endpoint, job_name="again"))
        assert multiset(dataset) == multiset(_expensive())
        assert _modes(next_week, "again")[0] in ("GET", "GET_SOURCE")
