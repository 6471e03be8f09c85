"""Stock servers with workers in other processes give each element once, and streams as promised."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import tensorflow as tf
from simulated_workers import multiset, prepared
from stock_servers import StockServers, stock_servers

Dataset = tf.data.Dataset
Build = Callable[[], tf.data.Dataset]


@pytest.fixture(scope="module")
def two_workers() -> Iterator[StockServers]:
    with stock_servers(2) as servers:
        yield servers


@pytest.fixture(scope="module")
def one_worker() -> Iterator[StockServers]:
    with stock_servers(1) as servers:
        yield servers


def around(number: tf.Tensor) -> tf.data.Dataset:
    return Dataset.range(number, number + 3)


EACH_ONCE: dict[str, Build] = {
    "map and filter": lambda: Dataset.range(60).map(lambda n: n + 1).filter(lambda n: n % 3 > 0),
    "a sequential interleave": lambda: Dataset.range(60).interleave(around),
    "a sequential interleave over a shuffle": lambda: (
        Dataset.range(60).shuffle(9).interleave(around)
    ),
    "a sequential interleave over a repeat": lambda: Dataset.range(60).repeat(2).interleave(around),
    "a parallel interleave": lambda: (
        Dataset.range(60).shuffle(9).interleave(around, num_parallel_calls=2, deterministic=False)
    ),
    "flat_map and unbatch": lambda: (
        Dataset.range(60).flat_map(around).map(lambda n: tf.fill([2], n)).unbatch()
    ),
    "a repeat in the middle": lambda: Dataset.range(60).repeat(3).shuffle(9),
    "a concatenation": lambda: Dataset.range(60).concatenate(Dataset.range(100, 130)).shuffle(9),
    "a concatenation of repeats": lambda: (
        Dataset.range(20).repeat(2).concatenate(Dataset.range(100, 130).repeat(2)).shuffle(2)
    ),
    "a cache": lambda: Dataset.range(60).map(lambda n: n).cache().shuffle(9),
    "blocks of a range": lambda: Dataset.range(3000).shuffle(50).map(lambda n: n),
    "blocks of slices": lambda: Dataset.from_tensor_slices(
        {"n": tf.range(1500), "text": tf.strings.as_string(tf.range(1500))}
    ),
    "skip(0), take(-1), prefetch": lambda: Dataset.range(60).skip(0).take(-1).prefetch(2),
    "ignore_errors": lambda: (
        Dataset.range(60)
        .map(lambda n: tf.debugging.check_numerics(1 / tf.cast(n % 4, tf.float32), "bad"))
        .ignore_errors()
    ),
    "nothing": lambda: Dataset.range(0),
}


@pytest.mark.parametrize("kind", EACH_ONCE)
def test_two_workers_give_each_element_once_in_two_epochs(
    two_workers: StockServers, kind: str
) -> None:
    local = EACH_ONCE[kind]()
    served = two_workers.read(prepared(local))
    expected = multiset(local)
    for _ in range(2):
        assert multiset(served) == expected


def test_two_workers_read_files_of_records_once(two_workers: StockServers, tmp_path: Path) -> None:
    for number in range(6):
        with tf.io.TFRecordWriter(str(tmp_path / f"{number}.tfrecord")) as writer:
            for record in range(7):
                writer.write(f"{number}/{record}".encode())
    files = str(tmp_path / "*.tfrecord")
    local = Dataset.list_files(files).interleave(tf.data.TFRecordDataset)
    assert sum(multiset(local).values()) == 42
    assert multiset(two_workers.read(prepared(local))) == multiset(local)
    direct = tf.data.TFRecordDataset(sorted(map(str, tmp_path.iterdir())))
    assert multiset(two_workers.read(prepared(direct))) == multiset(local)


@pytest.mark.parametrize("drop_remainder", [False, True])
@pytest.mark.parametrize("with_suffix", [False, True])
def test_two_workers_give_the_batches_of_a_local_run(
    two_workers: StockServers, drop_remainder: bool, with_suffix: bool
) -> None:
    local = Dataset.range(700).map(lambda n: n * 2, num_parallel_calls=2)
    local = local.batch(32, drop_remainder=drop_remainder)
    if with_suffix:
        local = local.map(lambda batch: batch + 1, num_parallel_calls=2).prefetch(1)
    served = two_workers.read(prepared(local))
    assert served.element_spec == local.element_spec
    for _ in range(2):
        batches = [batch.numpy() for batch in served]
        assert Counter(map(len, batches)) == Counter(len(batch) for batch in local)
        found = Counter(int(row) for batch in batches for row in batch)
        whole = Counter(n * 2 + with_suffix for n in range(700))
        assert found <= whole
        assert drop_remainder or found == whole


def noisy() -> tf.data.Dataset:
    shuffled = Dataset.range(40).shuffle(40, seed=3)
    return shuffled.map(lambda n: (n, tf.random.uniform([], seed=5)))


def test_one_worker_gives_what_a_local_run_gives_and_other_numbers_in_the_next_epoch(
    one_worker: StockServers,
) -> None:
    expected = [tuple(map(float, element)) for element in noisy()]

    def epoch(number: int) -> list[tuple[float, ...]]:
        ready = prepared(noisy())
        served = one_worker.read(ready, sharded=False, single=True, epoch=number)
        return [tuple(map(float, element)) for element in served]

    assert epoch(0) == expected
    second = epoch(1)
    assert epoch(1) == second
    assert epoch(0) == expected
    assert [n for n, _ in second] != [n for n, _ in expected]
    assert not {noise for _, noise in second} & {noise for _, noise in expected}


def test_two_workers_draw_different_numbers(two_workers: StockServers) -> None:
    generator = tf.random.Generator.from_seed(7)
    local = Dataset.range(200).map(lambda n: (tf.random.uniform([], seed=5), generator.uniform([])))
    for _ in range(2):
        drawn = list(two_workers.read(prepared(local)).as_numpy_iterator())
        assert len({seeded for seeded, _ in drawn}) == 200
        assert len({generated for _, generated in drawn}) == 200
