"""Trainers that see the cache's volume read what is stored themselves: all of it, each element
once, and without a worker.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import tensorflow as tf
from cached_jobs import Trainer, await_stored, modes, multiset
from real_service import DEADLINE_S, RealService, eventually

import cachew_core as cachew
from cachew_core.cache.proof import NAME
from cachew_core.errors import SettingsError
from cachew_core.proto import cachew_pb2

PROGRAM = """
import sys
import tensorflow as tf
import cachew_core as cachew

endpoint, job, policy, direct = sys.argv[1:]
dataset = tf.data.Dataset.range(300).map(lambda i: i * 3).apply(
    cachew.distribute(endpoint, job_name=job, cache_policy=policy, direct_reads=direct)
)
print("ready", flush=True)
for line in sys.stdin:
    print(sorted(map(int, dataset)), flush=True)
"""
"""A trainer in a process of its own; it reads an epoch for each line that it gets."""


@pytest.fixture
def service(tmp_path: Path) -> Iterator[RealService]:
    """A service of the test's own, with two workers."""
    (tmp_path / "cache").mkdir()
    with RealService(tmp_path, f"--cache-dir={tmp_path / 'cache'}") as running:
        running.add_agent(slots=2)
        yield running


def served(
    service: RealService,
    dataset: tf.data.Dataset,
    job: str | None = None,
    direct: str = "always",
    policy: str = "full",
) -> tf.data.Dataset:
    return dataset.apply(
        cachew.distribute(service.endpoint, job_name=job, cache_policy=policy, direct_reads=direct)
    )


def stored(service: RealService, pipeline: tf.data.Dataset, job: str) -> None:
    """Stores the pipeline's data, read by a job of that name."""
    multiset(served(service, pipeline, job))
    await_stored(service, job)


def last_job(service: RealService) -> cachew_pb2.JobStatus:
    return list(service.status().jobs)[-1]


def directly(service: RealService, job: str) -> list[bool]:
    return [epoch.direct for epoch in service.epochs(job)]


def tripled(count: int = 300) -> tf.data.Dataset:
    return tf.data.Dataset.range(count).map(lambda i: i * 3)


def chunk_files(service: RealService) -> list[Path]:
    return sorted((service.folder / "cache" / "entries").rglob("*.snapshot"))


def test_epochs_that_read_the_cache_use_no_worker(caching: RealService) -> None:
    pipeline = tripled(301)
    dataset = served(caching, pipeline, "alone")
    expected = multiset(pipeline)
    assert [multiset(dataset) for _ in range(3)] == [expected] * 3
    assert modes(caching, "alone") == ["PUT", "GET", "GET"]
    assert directly(caching, "alone") == [False, True, True]
    assert [epoch.workers for epoch in caching.epochs("alone")] == [2, 0, 0]
    eventually(lambda: {worker.state for worker in caching.status().workers} == {"idle"})
    job = caching.job("alone")
    assert (job.workers, job.target_workers) == (0, 0)
    assert "read it directly, without workers" in job.decisions[-1].reason


def test_an_open_epoch_without_workers_leaves_them_to_other_jobs(caching: RealService) -> None:
    stored(caching, tripled(302), "generous")
    iterator = iter(served(caching, tripled(302), "generous"))
    next(iterator)
    assert caching.job("generous").workers == 0
    assert len(list(served(caching, tf.data.Dataset.range(40), "other", policy="compute"))) == 40
    assert caching.epochs("other")[0].workers == 2
    assert len(list(iterator)) == 301


@pytest.mark.parametrize("shuffled", [False, True])
def test_batches_are_exact_and_shuffled_rows_meet_others_in_each_epoch(
    caching: RealService, shuffled: bool
) -> None:
    rows = tf.data.Dataset.range(303)
    pipeline = (rows.shuffle(303) if shuffled else rows).batch(8)
    dataset = served(caching, pipeline)
    epochs = [[tuple(batch) for batch in dataset.as_numpy_iterator()] for _ in range(3)]
    for batches in epochs:
        assert Counter(map(len, batches)) == Counter({8: 37, 7: 1})
        assert sorted(row for batch in batches for row in batch) == list(range(303))
    assert [epoch.direct for epoch in last_job(caching).epochs] == [False, True, True]
    if shuffled:
        assert set(epochs[1]) != set(epochs[2])


def test_shuffled_batches_of_a_shared_job_come_through_workers(caching: RealService) -> None:
    pipeline = tf.data.Dataset.range(304).shuffle(304).batch(8)
    with pytest.raises(SettingsError, match="direct_reads='always' can't be kept: trainers that"):
        served(caching, pipeline, "shared batches")
    dataset = served(caching, pipeline, "shared batches", "auto")
    for _ in range(2):
        assert Counter(len(batch) for batch in dataset) == Counter({8: 38})
    assert directly(caching, "shared batches") == [False, False]


def test_what_comes_compressed_from_workers_is_read_as_it_is_stored(caching: RealService) -> None:
    pipeline = tripled(305).map(lambda i: {"i": i, "text": tf.strings.as_string(i)})
    dataset = pipeline.apply(
        cachew.distribute(
            caching.endpoint,
            job_name="snappy",
            cache_policy="full",
            compression="SNAPPY",
            direct_reads="always",
        )
    )
    assert [multiset(dataset) for _ in range(2)] == [multiset(pipeline)] * 2
    assert directly(caching, "snappy") == [False, True]


def test_endless_passes_and_early_ends_are_epochs_of_their_own(caching: RealService) -> None:
    stored(caching, tripled(306), "passes")
    dataset = served(caching, tripled(306).repeat(), "passes")
    counts = Counter(int(i) for i in dataset.take(612))
    assert counts == Counter({i * 3: 2 for i in range(306)})
    for _ in range(3):
        assert len(list(dataset.take(5))) == 5
    assert all(directly(caching, "passes")[1:])


def test_two_iterators_at_the_same_time_read_an_epoch_each(caching: RealService) -> None:
    stored(caching, tripled(307), "twins")
    dataset = served(caching, tripled(307), "twins")
    pairs = list(zip(dataset, dataset, strict=True))
    for side in range(2):
        assert sorted(int(pair[side]) for pair in pairs) == [i * 3 for i in range(307)]
    assert directly(caching, "twins") == [False, True, True]


def test_a_model_is_fitted_on_what_is_read_directly(caching: RealService) -> None:
    pipeline = tf.data.Dataset.range(64).map(lambda i: ([tf.cast(i, tf.float32)], 1.0)).batch(8)
    dataset = served(caching, pipeline, "fitted")
    model = tf.keras.Sequential([tf.keras.Input([1]), tf.keras.layers.Dense(1)])
    model.compile(loss="mse", jit_compile=False)
    # A job with a name tells no length, so Keras learns of each epoch's end by reaching it.
    with pytest.warns(UserWarning, match="ran out of data"):
        history = model.fit(dataset, epochs=3, shuffle=False, verbose=0)
    assert len(history.history["loss"]) == 3
    assert directly(caching, "fitted")[-1]


def test_replicas_of_a_strategy_share_what_is_read_directly(caching: RealService) -> None:
    stored(caching, tripled(308), "mirrored")
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    dataset = strategy.experimental_distribute_dataset(
        served(caching, tripled(308), "mirrored").batch(4)
    )
    rows = [int(row) for batch in dataset for row in strategy.experimental_local_results(batch)[0]]
    assert sorted(rows) == [i * 3 for i in range(308)]
    assert directly(caching, "mirrored")[-1]


# Several trainers


def test_trainers_that_share_a_job_get_each_element_once_an_epoch(caching: RealService) -> None:
    stored(caching, tripled(311), "shared")
    trainers = [Trainer(served(caching, tripled(311), "shared")) for _ in range(2)]
    got = trainers[0].done() + trainers[1].done()
    # Who comes when all was handed out starts an epoch of its own.
    epochs = directly(caching, "shared")[1:]
    assert epochs in ([True], [True, True])
    assert got == Counter({text: len(epochs) for text in multiset(tripled(311))})


def test_a_trainer_that_does_not_see_the_volume_keeps_a_shared_job_on_workers(
    caching: RealService,
) -> None:
    stored(caching, tripled(309), "mixed")
    sees = served(caching, tripled(309), "mixed")
    blind = served(caching, tripled(309), "mixed", "never")
    assert multiset(sees) == multiset(tripled(309))
    assert directly(caching, "mixed") == [False, False]
    assert multiset(blind) == multiset(tripled(309))


def test_a_late_trainer_that_does_not_see_the_volume_reads_the_next_epoch(
    caching: RealService,
) -> None:
    stored(caching, tripled(310), "late")
    early = iter(served(caching, tripled(310), "late"))
    got = [int(next(early))]
    blind = served(caching, tripled(310), "late", "never")
    assert sorted(int(i) for i in blind) == [i * 3 for i in range(310)]
    assert sorted(got + [int(i) for i in early]) == [i * 3 for i in range(310)]
    assert directly(caching, "late") == [False, True, False]


def test_a_trainer_that_is_killed_takes_no_other_down(caching: RealService) -> None:
    command = [sys.executable, "-c", PROGRAM, caching.endpoint, "killed", "full", "always"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as trainer:
        assert trainer.stdin is not None
        assert trainer.stdout is not None
        assert trainer.stdout.readline() == "ready\n"
        trainer.stdin.write("\n" * 2)
        trainer.stdin.flush()
        for _ in range(2):
            assert trainer.stdout.readline() == f"{[i * 3 for i in range(300)]}\n"
        trainer.send_signal(signal.SIGKILL)
    assert directly(caching, "killed") == [False, True]
    assert multiset(served(caching, tripled(), "killed")) == multiset(tripled())
    eventually(lambda: caching.job("killed").clients <= 1)


# Who sees the volume


def test_a_trainer_that_finds_another_file_there_does_not_read_directly(
    service: RealService, caplog: pytest.LogCaptureFixture
) -> None:
    proof = service.folder / "cache" / NAME
    proof.write_text("0" * 64)
    with pytest.raises(SettingsError, match="direct_reads='always' can't be kept: this trainer"):
        served(service, tripled(), "elsewhere")
    with caplog.at_level("INFO", logger="cachew.client"):
        dataset = served(service, tripled(), "elsewhere", "auto")
    assert "reads what is stored through workers: this trainer does not see" in caplog.text
    assert [multiset(dataset) for _ in range(2)] == [multiset(tripled())] * 2
    assert modes(service, "elsewhere") == ["PUT", "GET"]
    assert directly(service, "elsewhere") == [False, False]


def test_always_is_refused_where_nothing_is_stored(tmp_path: Path) -> None:
    with (
        RealService(tmp_path) as bare,
        pytest.raises(SettingsError, match="direct_reads='always' can't be kept: service 'test'"),
    ):
        served(bare, tripled())


def test_another_service_with_the_store_is_read_directly_from_its_first_epoch(
    tmp_path: Path,
) -> None:
    (tmp_path / "cache").mkdir()
    for number in range(2):
        folder = tmp_path / str(number)
        folder.mkdir()
        with RealService(folder, f"--cache-dir={tmp_path / 'cache'}") as service:
            service.add_agent()
            assert multiset(served(service, tripled(), "again")) == multiset(tripled())
            if number == 0:
                await_stored(service, "again")
            assert directly(service, "again") == [number == 1]


# What goes wrong


@pytest.mark.parametrize("damage", ["missing", "short", "changed"])
def test_a_damaged_file_ends_the_epoch_and_the_next_one_computes(
    service: RealService, damage: str
) -> None:
    pipeline = tripled().map(lambda i: tf.fill([500], i))
    dataset = served(service, pipeline, "damaged")
    expected = multiset(pipeline)
    assert multiset(dataset) == expected
    await_stored(service, "damaged")
    iterator = iter(dataset)
    next(iterator)
    for file in chunk_files(service):
        harm(file, damage)
    with pytest.raises(tf.errors.OpError, match=r"cache entry \w{12} can't be read|entries/\w{64}"):
        list(iterator)
    del iterator
    assert multiset(dataset) == expected
    assert directly(service, "damaged") == [False, True, False]
    assert modes(service, "damaged") == ["PUT", "GET", "PUT"]


def harm(file: Path, damage: str) -> None:
    """Does that to a file, in its place."""
    content = file.read_bytes()
    if damage == "missing":
        file.unlink()
    elif damage == "short":
        file.write_bytes(content[: len(content) // 2])
    else:
        file.write_bytes(content[:-8] + b"\0" * 8)


def test_a_service_that_is_drained_ends_when_all_that_was_handed_out_is_read(
    service: RealService,
) -> None:
    stored(service, tripled(), "drained")
    iterator = iter(served(service, tripled(), "drained"))
    got = [int(next(iterator))]
    service.shutdown(drain=True)
    assert sorted(got + [int(i) for i in iterator]) == [i * 3 for i in range(300)]
    assert service.dispatcher.wait(DEADLINE_S) == 0
