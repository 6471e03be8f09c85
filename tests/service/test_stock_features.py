"""Features of stock tf.data service that pass through: coordinated reads, cross-trainer cache."""

import threading
from collections import Counter

import tensorflow as tf
from real_service import RealService, eventually

import cachew_core as cachew


def in_threads(work: list[object]) -> None:
    threads = [threading.Thread(target=item, daemon=True) for item in work]  # type: ignore[arg-type]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()


def test_coordinated_readers_get_elements_of_one_round_from_one_worker(
    four_workers: RealService,
) -> None:
    # Each worker repeats its own stream, and two consecutive elements make a round of two readers.
    rounds = tf.data.Dataset.range(100).map(lambda i: i // 2).repeat()
    got: dict[int, list[int]] = {}

    def consumer(index: int) -> None:
        served = rounds.apply(
            cachew.distribute(
                service=four_workers.endpoint,
                job_name="coordinated",
                processing_mode="parallel_epochs",
                consumer_index=index,
                num_consumers=2,
            )
        )
        got[index] = [int(i) for i in served.take(40)]

    in_threads([lambda: consumer(0), lambda: consumer(1)])
    assert len(got[0]) == 40
    assert got[0] == got[1]
    assert len(four_workers.epochs("coordinated")) == 1


def test_trainers_with_different_ids_get_the_same_elements_from_the_cross_trainer_cache(
    service: RealService,
) -> None:
    service.add_agent(1)
    endless = tf.data.Dataset.range(50).repeat()
    got: dict[str, list[int]] = {}
    both_opened = threading.Barrier(2, timeout=120)

    def trainer(name: str) -> None:
        served = endless.apply(
            cachew.distribute(
                service=service.endpoint,
                job_name="windowed",
                processing_mode="parallel_epochs",
                cross_trainer_cache=tf.data.experimental.service.CrossTrainerCache(trainer_id=name),
            )
        )
        both_opened.wait()
        got[name] = [int(i) for i in served.take(30)]

    in_threads([lambda: trainer("a"), lambda: trainer("b")])
    # Without the cache the two would share the stream, and no position would be seen twice.
    assert Counter(got["a"]) == Counter(got["b"]) == Counter(range(30))


def test_the_originals_example_runs_with_only_its_names_replaced(four_workers: RealService) -> None:
    dataset = tf.data.Dataset.range(100)
    dataset = dataset.apply(cachew.mark("source_cache"))
    dataset = dataset.map(lambda x: x + 1)
    dataset = dataset.apply(cachew.sleep(int(400 * 1000 / 50)))  # 1/50 of its time
    dataset = dataset.apply(
        cachew.distribute(
            processing_mode="distributed_epoch",
            service=four_workers.endpoint,
            job_name="my_job",
            compression=None,
            max_outstanding_requests=8,
        )
    )
    for _ in range(2):
        assert Counter(int(i) for i in dataset) == Counter(range(1, 101))
    eventually(
        lambda: (
            [(epoch.mode, epoch.elements) for epoch in four_workers.epochs("my_job")]
            == [("COMPUTE", 100)] * 2
        )
    )
