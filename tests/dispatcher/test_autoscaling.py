"""What trainers measure, given to the policy: jobs, modes, earlier runs, nonsense, and people."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from virtual_trainer import VirtualTrainer

from cachew_core.dispatcher.autoscaling import Autoscaler
from cachew_core.dispatcher.history import History
from cachew_core.dispatcher.jobs import EpochState, Job, JobBook, Reader
from cachew_core.metadata import MetadataStore
from cachew_core.policy.autoscale import AutoscaleSettings, ScalingPolicy
from cachew_core.policy.modes import Mode
from cachew_core.proto import cachew_pb2


class Training:
    """One trainer of one job, in virtual time."""

    def __init__(self, autoscaler: Autoscaler, **request: Any) -> None:
        self.now_s = 0.0
        self.autoscaler = autoscaler
        fields: dict[str, Any] = {"processing_mode": cachew_pb2.DISTRIBUTED_EPOCH}
        fields |= {"fingerprint": "f"} | request
        self.job = JobBook().register(cachew_pb2.RegisterPipelineRequest(**fields))
        self.client = self.job.add_client("trainer", host="host", pid=7, now=0)
        self.opened = 0

    def open(self, mode: Mode = Mode.COMPUTE, point: str = "", guess: int | None = None) -> Reader:
        if self.job.epochs:
            self.job.epochs[-1].end(EpochState.FINISHED, 0)
        self.opened += 1
        reader = self.job.open_reader(self.client, self.opened, 0)
        reader.epoch.mode, reader.epoch.point = mode, point
        self.autoscaler.planned(reader.epoch, guess)
        return reader

    def read(self, trainer: VirtualTrainer, reader: Reader) -> None:
        asyncio.run(self.read_in_loop(trainer, reader))

    async def read_in_loop(self, trainer: VirtualTrainer, reader: Reader) -> None:
        batches, most = 1000, 16
        for progress in trainer.epoch(reader.epoch.number, batches):
            reader.metrics = cachew_pb2.EpochMetrics(
                iterator=reader.iterator,
                elements=progress.batches,
                wait_s=progress.wait_s,
                step_s=progress.seconds - progress.wait_s,
                span_s=progress.seconds,
            )
            self.now_s += 0.25
            self.autoscaler.measured(reader, workers=trainer.workers, most=most)
            trainer.workers = min(self.autoscaler.want(self.job) or most, most)
        await self.autoscaler.stop()

    def reasons(self) -> list[str]:
        return [decision.reason for decision in self.autoscaler.decisions(self.job)]


def autoscaler(
    metadata: MetadataStore | None = None, policy: ScalingPolicy = ScalingPolicy.RATE_MATCH
) -> Autoscaler:
    ticks = iter(range(10**9))
    return Autoscaler(
        policy, AutoscaleSettings(), History(metadata), clock=lambda: 0.25 * next(ticks)
    )


def slow() -> VirtualTrainer:
    return VirtualTrainer(work_s=0.036, step_s=0.01)


def test_a_job_gets_what_its_trainer_can_use_and_is_told_why() -> None:
    training = Training(autoscaler())
    assert training.autoscaler.want(training.job) == 1
    training.read(slow(), training.open())
    assert training.autoscaler.want(training.job) == 4
    last = training.autoscaler.decisions(training.job)[-1]
    assert (last.workers, last.settled, last.epoch, last.mode) == (4, True, 1, "COMPUTE")
    assert training.reasons()[0] == "1 worker to begin with"


def test_another_mode_is_another_problem_and_the_first_is_remembered() -> None:
    training = Training(autoscaler())
    training.read(slow(), training.open())
    light = VirtualTrainer(work_s=0.008, step_s=0.01, workers=4)
    reader = training.open(Mode.GET, "end")
    assert training.autoscaler.want(training.job) == 4
    training.read(light, reader)
    assert training.autoscaler.want(training.job) == 1
    training.open(Mode.COMPUTE)
    assert training.autoscaler.want(training.job) == 4


def test_while_a_pipeline_is_measured_its_job_computes() -> None:
    training = Training(autoscaler())
    training.read(slow(), training.open(Mode.PROFILE))
    training.open(Mode.COMPUTE)
    assert training.autoscaler.want(training.job) == 4
    assert {d.mode for d in training.autoscaler.decisions(training.job)} == {"COMPUTE"}


def test_what_was_thought_of_with_the_mode_is_the_first_guess() -> None:
    training = Training(autoscaler())
    training.open(Mode.GET_SOURCE, "mark", guess=3)
    assert training.autoscaler.want(training.job) == 3
    assert training.autoscaler.decisions(training.job)[-1].mode == "GET_SOURCE at mark"


@pytest.fixture
def metadata(tmp_path: Path) -> Iterator[MetadataStore]:
    with MetadataStore.open(f"sqlite:///{tmp_path / 'm.db'}", store="s") as store:
        yield store


async def _run_once(metadata: MetadataStore) -> tuple[int | None, int | None]:
    training = Training(autoscaler(metadata))
    await training.autoscaler.recall(training.job)
    first = training.autoscaler.want(training.job)
    await training.read_in_loop(slow(), training.open())
    return first, training.autoscaler.want(training.job)


def test_the_next_run_begins_where_the_last_one_came_to_rest(metadata: MetadataStore) -> None:
    metadata.see_pipeline("f", description="", job="j", service="s")
    assert asyncio.run(_run_once(metadata)) == (1, 4)
    assert asyncio.run(_run_once(metadata)) == (4, 4)


def test_measurements_that_make_no_sense_are_ignored_counted_and_named() -> None:
    training = Training(autoscaler())
    reader = training.open()
    for span_s in (float("nan"), -1.0):
        reader.metrics = cachew_pb2.EpochMetrics(elements=5, span_s=span_s)
        training.autoscaler.measured(reader, workers=1, most=4)
    [note] = training.job.notices
    assert note.startswith("2 measurements of trainers made no sense")
    assert "process 7 on host" in note
    training.read(slow(), reader)
    assert training.autoscaler.want(training.job) == 4


@pytest.mark.parametrize(
    ("request_fields", "want"),
    [
        ({"max_workers": 2}, 2),
        ({"single_worker": True}, 1),
        ({"scaling_policy": "all"}, None),
        ({"scaling_policy": "all", "max_workers": 3}, 3),
        ({"processing_mode": cachew_pb2.PARALLEL_EPOCHS}, None),
    ],
)
def test_limits_and_policies_of_jobs(request_fields: dict[str, Any], want: int | None) -> None:
    training = Training(autoscaler(), **request_fields)
    training.read(slow(), training.open())
    assert training.autoscaler.want(training.job) == want


def test_a_person_can_set_the_number_and_give_it_back() -> None:
    training = Training(autoscaler())
    training.read(slow(), training.open())
    training.autoscaler.set_by_hand(training.job, 7)
    assert training.autoscaler.want(training.job) == 7
    training.read(VirtualTrainer(work_s=0.3, step_s=0.01), training.open(Mode.GET, "end"))
    assert training.autoscaler.want(training.job) == 7
    assert training.reasons()[-1] == "7 workers, set by hand"
    training.autoscaler.set_by_hand(training.job, None)
    training.open(Mode.COMPUTE)
    assert training.autoscaler.want(training.job) == 4


def test_a_trainer_that_left_is_not_waited_for() -> None:
    training = Training(autoscaler())
    reader = training.open()
    other = training.job.add_client("other", host="host", pid=8, now=0)
    beside = training.job.open_reader(other, 99, 0)
    beside.metrics = cachew_pb2.EpochMetrics(elements=5, span_s=0.2, step_s=0.1)
    training.autoscaler.measured(beside, workers=1, most=4)
    training.autoscaler.left(other)
    training.read(slow(), reader)
    assert training.autoscaler.want(training.job) == 4


def test_jobs_don_t_learn_from_each_other_s_trainers() -> None:
    shared = autoscaler()
    one, other = Training(shared), Training(shared, fingerprint="g")
    one.read(slow(), one.open())
    jobs: list[Job] = [one.job, other.job]
    assert [shared.want(job) for job in jobs] == [4, 1]
