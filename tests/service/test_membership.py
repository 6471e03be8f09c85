"""Workers come and go, trainers share and leave: each element once, and no job sees another's."""

import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial

import psutil
import pytest
import tensorflow as tf
from real_service import RealService, eventually

import cachew_core as cachew


def served(
    service: RealService, first: int, count: int, job_name: str | None, work_us: int = 2_000
) -> tf.data.Dataset:
    """The numbers from `first` on, each after some work."""
    numbers = tf.data.Dataset.range(first, first + count).apply(cachew.sleep(work_us))
    return numbers.apply(cachew.distribute(service=service.endpoint, job_name=job_name))


def read(dataset: tf.data.Dataset) -> Iterator[int]:
    return (int(i) for i in dataset.as_numpy_iterator())


class Trainer(threading.Thread):
    """Reads a number of epochs in the background and keeps what it got, or the error."""

    def __init__(self, dataset: tf.data.Dataset, epochs: int = 1, step_s: float = 0) -> None:
        super().__init__(daemon=True)
        self._step_s = step_s
        self.got: list[list[int]] = []
        self.error: Exception | None = None
        self._dataset = dataset
        self._epochs = epochs
        self.start()

    def run(self) -> None:
        try:
            for _ in range(self._epochs):
                self.got.append([])
                for i in read(self._dataset):
                    self.got[-1].append(i)
                    time.sleep(self._step_s)
        except Exception as error:  # looked at by the test
            self.error = error

    def done(self) -> list[list[int]]:
        self.join(120)
        assert not self.is_alive(), f"hangs with {[len(epoch) for epoch in self.got]} elements"
        if self.error is not None:
            raise self.error
        return self.got

    def has(self, count: int) -> bool:
        return bool(self.got) and (len(self.got[-1]) >= count or self.error is not None)


def test_an_agent_that_is_told_to_end_in_mid_epoch_loses_nothing(service: RealService) -> None:
    leaving = service.add_agent(2)
    service.add_agent(1)
    trainer = Trainer(served(service, 0, 1500, "drained"), epochs=2)
    eventually(lambda: trainer.has(200))
    leaving.send(signal.SIGTERM)
    epochs = trainer.done()
    assert leaving.wait() == 0
    assert [Counter(epoch) for epoch in epochs] == [Counter(range(1500))] * 2
    assert [epoch.workers for epoch in service.epochs("drained")] == [3, 1]


def test_the_only_agent_waits_for_its_successor_before_it_drains(service: RealService) -> None:
    leaving = service.add_agent(1, "--grace", "240")
    trainer = Trainer(served(service, 0, 1000, "succeeded"))
    eventually(lambda: trainer.has(50))
    leaving.send(signal.SIGTERM)
    service.add_agent(1)
    assert Counter(trainer.done()[0]) == Counter(range(1000))
    assert leaving.wait() == 0


def test_many_epochs_with_changing_members_are_exact(service: RealService) -> None:
    service.add_agent(1)
    dataset = served(service, 0, 600, "changing", work_us=1_000)
    for number in range(6):
        trainer = Trainer(dataset)
        eventually(partial(trainer.has, 20))
        if number % 2 == 0:
            service.add_agent(2)
        else:
            service.agents[-1].send(signal.SIGTERM)
        assert Counter(trainer.done()[0]) == Counter(range(600)), f"epoch {number + 1}"


def test_two_jobs_at_once_share_the_pool_and_never_see_each_others_elements(
    four_workers: RealService,
) -> None:
    one = Trainer(served(four_workers, 0, 1500, "one"), epochs=2)
    eventually(lambda: one.has(100))
    two = Trainer(served(four_workers, 10_000, 700, "two"), epochs=2)
    eventually(lambda: two.has(1))
    eventually(lambda: four_workers.workers_of("one") == 2 or not one.is_alive())
    assert [Counter(epoch) for epoch in one.done()] == [Counter(range(1500))] * 2
    assert [Counter(epoch) for epoch in two.done()] == [Counter(range(10_000, 10_700))] * 2


def test_a_slow_reader_of_a_workers_former_job_never_gets_the_new_jobs_elements(
    four_workers: RealService,
) -> None:
    slow = Trainer(served(four_workers, 0, 400, "former", work_us=0), step_s=0.02)
    eventually(lambda: slow.has(5))
    other = Trainer(served(four_workers, 10_000, 400, "new"), epochs=2)
    assert Counter(slow.done()[0]) == Counter(range(400))
    assert [Counter(epoch) for epoch in other.done()] == [Counter(range(10_000, 10_400))] * 2


def test_a_job_without_a_worker_is_queued_says_so_and_is_served_later(
    service: RealService, caplog: pytest.LogCaptureFixture
) -> None:
    service.add_agent(1)
    first = Trainer(served(service, 0, 1500, "first"))
    eventually(lambda: first.has(10))
    with caplog.at_level("INFO", logger="cachew"):
        second = Trainer(served(service, 5_000, 100, "second"))
        eventually(lambda: any(job.state == "queued" for job in service.status().jobs))
        assert Counter(second.done()[0]) == Counter(range(5_000, 5_100))
    assert Counter(first.done()[0]) == Counter(range(1500))
    assert "epoch 1 is queued: all 1 workers serve other jobs" in caplog.text


def test_two_trainers_share_each_epoch(four_workers: RealService) -> None:
    trainers = [Trainer(served(four_workers, 0, 800, "shared"), epochs=1) for _ in range(2)]
    got = [trainer.done()[0] for trainer in trainers]
    assert Counter(got[0] + got[1]) == Counter(range(800))
    assert len(four_workers.epochs("shared")) == 1


def test_a_reader_that_leaves_half_way_gets_the_next_epoch_whole(four_workers: RealService) -> None:
    dataset = served(four_workers, 0, 300, "left", work_us=500)
    for i in read(dataset):
        if i >= 0:
            break
    assert Counter(read(dataset)) == Counter(range(300))
    states = [epoch.state for epoch in four_workers.epochs("left")]
    assert states == ["abandoned", "finished"]


def test_a_job_ends_with_its_last_trainer(four_workers: RealService) -> None:
    dataset = served(four_workers, 0, 10, "ended")
    assert len(list(read(dataset))) == 10
    del dataset
    eventually(lambda: four_workers.job("ended").state == "ended")
    eventually(lambda: all(w.job != "ended" for w in four_workers.status().workers))


def test_a_killed_worker_ends_the_epoch_with_one_clear_error_and_the_next_epoch_is_whole(
    service: RealService,
) -> None:
    service.add_agent(2)
    dataset = served(service, 0, 800, "killed")
    trainer = Trainer(dataset)
    eventually(lambda: trainer.has(50))
    victim = next(worker for worker in service.status().workers if worker.job == "killed")
    psutil.Process(victim.pid).kill()
    with pytest.raises(
        tf.errors.OpError, match=r"was lost in epoch 1 of job 'killed'.*start the epoch again"
    ):
        trainer.done()
    assert Counter(read(dataset)) == Counter(range(800))


def test_a_service_that_is_taken_down_ends_running_epochs_with_one_clear_error(
    service: RealService,
) -> None:
    service.add_agent(1)
    trainer = Trainer(served(service, 0, 5_000, "cut"))
    eventually(lambda: trainer.has(10))
    service.shutdown()
    with pytest.raises(tf.errors.OpError, match="service 'test' was taken down"):
        trainer.done()
    service.dispatcher.wait(10)
    assert service.agents[0].wait(10) == 0


def test_a_service_that_drains_lets_open_epochs_end(service: RealService) -> None:
    service.add_agent(2)
    trainer = Trainer(served(service, 0, 800, "last"))
    eventually(lambda: trainer.has(10))
    service.shutdown(drain=True)
    assert Counter(trainer.done()[0]) == Counter(range(800))
    service.dispatcher.wait(30)
