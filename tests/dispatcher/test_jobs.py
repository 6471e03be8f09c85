"""Which job a registration belongs to, and which epoch a reader joins."""

from collections.abc import Callable

import pytest

from cachew_core.dispatcher.jobs import (
    KEPT_ENDED_JOBS,
    Client,
    Epoch,
    EpochState,
    Job,
    JobBook,
    Reader,
)
from cachew_core.errors import PipelineError
from cachew_core.proto import cachew_pb2

Opener = Callable[[Client], Reader]


def request(
    job_name: str = "images", fingerprint: str = "a" * 64
) -> cachew_pb2.RegisterPipelineRequest:
    return cachew_pb2.RegisterPipelineRequest(
        job_name=job_name,
        fingerprint=fingerprint,
        processing_mode=cachew_pb2.DISTRIBUTED_EPOCH,
        compression=cachew_pb2.COMPRESSION_NONE,
    )


def trainer(job: Job, name: str) -> Client:
    client = job.add_client(name, host="host", pid=1, now=0)
    client.connected = True
    return client


@pytest.fixture
def job() -> Job:
    return JobBook().register(request())


@pytest.fixture
def opened(job: Job) -> Opener:
    numbers = iter(range(100))

    def open_reader(client: Client) -> Reader:
        reader = job.open_reader(client, next(numbers), now=0)
        if reader.epoch.state is EpochState.WAITING:
            reader.epoch.state = EpochState.OPEN
        return reader

    return open_reader


def finish(epoch: Epoch) -> None:
    epoch.end(EpochState.FINISHED, now=1)


def test_a_second_trainer_shares_the_open_epoch(job: Job, opened: Opener) -> None:
    first, second = trainer(job, "a"), trainer(job, "b")
    assert opened(first).epoch is opened(second).epoch


def test_a_trainer_never_reads_one_epoch_twice(job: Job, opened: Opener) -> None:
    client = trainer(job, "a")
    assert [opened(client).epoch.number for _ in range(3)] == [1, 2, 3]


def test_a_trainer_that_left_half_way_comes_back_to_the_next_epoch(
    job: Job, opened: Opener
) -> None:
    first, second = trainer(job, "a"), trainer(job, "b")
    reader = opened(first)
    opened(second)
    reader.released = True
    assert opened(first).epoch.number == 2


def test_a_late_trainer_starts_the_next_epoch_and_is_told(job: Job, opened: Opener) -> None:
    first, second = trainer(job, "a"), trainer(job, "b")
    finish(opened(first).epoch)
    assert opened(second).epoch.number == 2
    assert [notice.text for notice in second.notices] == [
        "job 'images': epoch 1 was already finished when this trainer came; it starts epoch 2"
    ]
    assert opened(first).epoch.number == 2


def test_a_restarted_trainer_does_not_get_the_rest_of_a_dead_ones_epoch(
    job: Job, opened: Opener
) -> None:
    dead = trainer(job, "a")
    opened(dead)
    dead.connected = False
    assert opened(trainer(job, "a2")).epoch.number == 2


def test_an_epoch_ends_once(job: Job, opened: Opener) -> None:
    epoch = opened(trainer(job, "a")).epoch
    epoch.end(EpochState.FAILED, now=2, failure="a worker was lost")
    epoch.end(EpochState.FINISHED, now=3)
    assert (epoch.state, epoch.seconds(now=10)) == (EpochState.FAILED, 2)


@pytest.mark.parametrize("left_first", [True, False])
def test_an_epoch_tells_once_that_it_is_settled_though_it_was_asked_late(
    job: Job, opened: Opener, left_first: bool
) -> None:
    epoch = opened(trainer(job, "a")).epoch
    told: list[EpochState] = []
    if left_first:
        epoch.end(EpochState.ABANDONED, now=1)
    epoch.when_settled(lambda: told.append(epoch.state))
    assert len(told) == left_first
    epoch.end(EpochState.ABANDONED, now=1)
    epoch.settle()
    assert told == [EpochState.ABANDONED]


def test_jobs_without_a_name_are_never_shared() -> None:
    book = JobBook()
    assert book.register(request("")) is not book.register(request(""))


def test_another_pipeline_under_a_name_in_use_is_refused_with_its_holder() -> None:
    book = JobBook()
    trainer(book.register(request()), "a")
    with pytest.raises(
        PipelineError, match=r"job_name='images' is in use by another pipeline \(process 1 on host"
    ):
        book.register(request(fingerprint="b" * 64))


def test_the_same_pipeline_read_in_another_mode_is_refused() -> None:
    book = JobBook()
    trainer(book.register(request()), "a")
    other = request()
    other.processing_mode = cachew_pb2.PARALLEL_EPOCHS
    with pytest.raises(PipelineError, match="processing_mode"):
        book.register(other)


def test_a_name_is_free_for_another_pipeline_once_its_trainers_are_gone() -> None:
    book = JobBook()
    old = book.register(request())
    trainer(old, "a").connected = False
    new = book.register(request(fingerprint="b" * 64))
    assert new is not old
    assert book.register(request(fingerprint="b" * 64)) is new


def test_the_same_pipeline_goes_on_counting_its_epochs_after_a_restart(
    job: Job, opened: Opener
) -> None:
    book = JobBook()
    job = book.register(request())
    finish(job.open_reader(trainer(job, "a"), 0, now=0).epoch)
    job.clients.clear()
    job.ended = True
    assert book.register(request()) is job
    assert job.open_reader(trainer(job, "b"), 1, now=0).epoch.number == 2


def test_an_ended_job_holds_no_graph_and_gets_it_again_with_its_next_trainer() -> None:
    book = JobBook()
    first = request()
    first.graph = b"graph"
    job = book.register(first)
    job.end()
    assert job.request.graph == b""
    again = request()
    again.graph = b"graph"
    assert book.register(again) is job
    assert job.request.graph == b"graph"


def test_only_the_newest_ended_jobs_are_remembered() -> None:
    book = JobBook()
    for _ in range(KEPT_ENDED_JOBS + 10):
        book.register(request("")).end()
    assert len(book.jobs) <= KEPT_ENDED_JOBS + 1


def test_an_epochs_totals_are_those_of_all_its_readers(job: Job, opened: Opener) -> None:
    readers = [opened(trainer(job, name)) for name in "ab"]
    for reader in readers:
        reader.metrics = cachew_pb2.EpochMetrics(elements=10, wait_s=1, step_s=2, span_s=3)
    totals = readers[0].epoch.totals()
    assert (totals.elements, totals.wait_s, totals.step_s, totals.span_s) == (20, 2, 4, 3)
