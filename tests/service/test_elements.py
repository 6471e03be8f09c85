"""What a trainer gets is what a local run gives, as a multiset, in every epoch."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from real_service import RealService, eventually

import cachew_core as cachew

Build = Callable[[], tf.data.Dataset]


def key(element: object) -> str:
    """A text by which equal elements are equal."""

    def leaf(value: object) -> object:
        if isinstance(value, tf.RaggedTensor):
            return ("ragged", str(value.to_list()))
        if isinstance(value, tf.SparseTensor):
            return ("sparse", str(tf.sparse.to_dense(value).numpy().tolist()))
        if isinstance(value, tf.experimental.Optional):
            return ("optional", str(value.get_value().numpy()) if value.has_value() else None)
        array = np.asarray(value)
        return (str(array.dtype), array.shape, str(array.tolist()))

    flat = tf.nest.flatten(element, expand_composites=False)
    return str([leaf(value) for value in flat])


def multiset(dataset: tf.data.Dataset) -> Counter[str]:
    return Counter(key(element) for element in dataset)


def records(folder: Path) -> tf.data.Dataset:
    for number in range(8):
        with tf.io.TFRecordWriter(str(folder / f"{number}.tfrecord")) as writer:
            for row in range(25):
                writer.write(f"{number}-{row}".encode())
    return tf.data.Dataset.list_files(str(folder / "*.tfrecord")).interleave(
        tf.data.TFRecordDataset, num_parallel_calls=tf.data.AUTOTUNE
    )


def rows() -> tf.data.Dataset:
    return tf.data.Dataset.range(500).map(lambda i: {"x": tf.cast(i, tf.float32), "y": (i, i * 2)})


PIPELINES: dict[str, Build] = {
    "map": lambda: tf.data.Dataset.range(1000).map(lambda i: i * 3),
    "shuffle": lambda: tf.data.Dataset.range(300).shuffle(100, seed=3),
    "filter": lambda: tf.data.Dataset.range(300).filter(lambda i: i % 7 == 0),
    "flat_map": lambda: tf.data.Dataset.range(50).flat_map(lambda i: tf.data.Dataset.range(i % 5)),
    "interleave": lambda: tf.data.Dataset.range(50).interleave(
        lambda i: tf.data.Dataset.range(i), cycle_length=4
    ),
    "unbatch": lambda: tf.data.Dataset.range(100).batch(10).unbatch(),
    "repeat at the end": lambda: tf.data.Dataset.range(30).repeat(3),
    "repeat in the middle": lambda: tf.data.Dataset.range(30).repeat(2).map(lambda i: i + 1),
    "concatenate": lambda: tf.data.Dataset.range(30).concatenate(tf.data.Dataset.range(100, 120)),
    "take": lambda: tf.data.Dataset.range(100).take(17),
    "skip": lambda: tf.data.Dataset.range(100).skip(90),
    "zip": lambda: tf.data.Dataset.zip((tf.data.Dataset.range(40), tf.data.Dataset.range(40, 80))),
    "enumerate": lambda: tf.data.Dataset.range(5, 45).enumerate(),
    "empty": lambda: tf.data.Dataset.range(0),
    "one element": lambda: tf.data.Dataset.from_tensors(tf.constant([1, 2, 3])),
    "structures": rows,
    "strings": lambda: tf.data.Dataset.range(40).map(tf.strings.as_string),
    "ragged": lambda: tf.data.Dataset.range(20).map(
        lambda i: tf.RaggedTensor.from_row_lengths(tf.range(i * 2), [i, i])
    ),
    "sparse": lambda: tf.data.Dataset.range(20).map(
        lambda i: tf.sparse.from_dense(tf.stack([i, 0, i]))
    ),
    "zero size": lambda: tf.data.Dataset.range(20).map(lambda i: tf.zeros([0, 3])),
}


@pytest.mark.parametrize("name", PIPELINES)
def test_the_service_delivers_what_a_local_run_delivers(
    four_workers: RealService, name: str
) -> None:
    dataset = PIPELINES[name]()
    expected = multiset(dataset)
    served = dataset.apply(cachew.distribute(service=four_workers.endpoint))
    assert served.element_spec == dataset.element_spec
    for _ in range(2):
        assert multiset(served) == expected


def squares_of(batch: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    return batch**2, tf.shape(batch)[0]


BATCHED: dict[str, Build] = {
    "batch": lambda: tf.data.Dataset.range(101).batch(8),
    "batch that divides": lambda: tf.data.Dataset.range(96).batch(32),
    "drop_remainder": lambda: tf.data.Dataset.range(96).batch(32, drop_remainder=True),
    "drop_remainder, some dropped": lambda: tf.data.Dataset.range(101).batch(
        32, drop_remainder=True
    ),
    "fewer than one batch": lambda: tf.data.Dataset.range(5).batch(32),
    "map behind": lambda: tf.data.Dataset.range(101).batch(8).map(squares_of),
    "map behind, drop_remainder": lambda: (
        tf.data.Dataset.range(101)
        .batch(8, drop_remainder=True)
        .map(squares_of, num_parallel_calls=2)
        .prefetch(1)
    ),
    "repeat behind": lambda: tf.data.Dataset.range(20).batch(8).repeat(2),
    "repeat before": lambda: tf.data.Dataset.range(20).repeat(2).batch(8),
}


def shapes_and_rows(dataset: tf.data.Dataset) -> tuple[Counter[int], Counter[int]]:
    sizes: Counter[int] = Counter()
    rows_seen: Counter[int] = Counter()
    for element in dataset.as_numpy_iterator():
        batch, size = element if isinstance(element, tuple) else (element, len(element))
        assert len(batch) == size
        sizes[int(size)] += 1
        rows_seen.update(batch.tolist())
    return sizes, rows_seen


@pytest.mark.parametrize("name", BATCHED)
def test_one_trainer_gets_as_many_batches_of_each_size_as_locally(
    four_workers: RealService, name: str
) -> None:
    dataset = BATCHED[name]()
    sizes, all_rows = shapes_and_rows(dataset)
    served = dataset.apply(cachew.distribute(service=four_workers.endpoint))
    assert served.element_spec == dataset.element_spec
    for _ in range(3):
        got_sizes, got_rows = shapes_and_rows(served)
        assert got_sizes == sizes
        if "drop" in name:  # which rows are dropped depends on their order
            assert max(got_rows.values()) == 1
        else:
            assert got_rows == all_rows


def test_record_files_are_read_once_each_and_shared_evenly(
    four_workers: RealService, tmp_path: Path
) -> None:
    dataset = records(tmp_path)
    expected = multiset(dataset)
    served = dataset.apply(cachew.distribute(service=four_workers.endpoint, job_name="records"))
    assert sum(expected.values()) == 200
    assert multiset(served) == expected
    assert four_workers.epochs("records")[-1].workers == 4


@pytest.mark.parametrize("compression", [None, "AUTO", "SNAPPY"])
def test_compression_changes_nothing(four_workers: RealService, compression: str | None) -> None:
    dataset = rows()
    served = dataset.apply(
        cachew.distribute(service=four_workers.endpoint, compression=compression)
    )
    assert multiset(served) == multiset(dataset)


def test_parallel_epochs_gives_each_workers_whole_pass(four_workers: RealService) -> None:
    served = tf.data.Dataset.range(10).apply(
        cachew.distribute(service=four_workers.endpoint, processing_mode="parallel_epochs")
    )
    assert Counter(int(i) for i in served) == Counter(list(range(10)) * 4)


def test_several_workers_never_draw_the_same_numbers(four_workers: RealService) -> None:
    tf.random.set_seed(1)
    try:
        drawn = tf.data.Dataset.range(40).map(lambda _: tf.random.uniform([]))
        served = drawn.apply(cachew.distribute(service=four_workers.endpoint))
        first, second = ([float(x) for x in served] for _ in range(2))
    finally:
        # Of the whole process: with it, later tests' pipelines would have seeds of their own.
        tf.random.set_seed(None)
    assert len(set(first)) == 40
    assert not set(first) & set(second)


def test_an_endless_pipeline_can_be_left_and_read_again(four_workers: RealService) -> None:
    served = (
        tf.data.Dataset.range(10).repeat().apply(cachew.distribute(service=four_workers.endpoint))
    )
    for _ in range(2):
        assert Counter(int(i) for i in served.take(30)) == Counter({i: 3 for i in range(10)})


def test_sixty_four_files_come_once_each_from_four_workers(four_workers: RealService) -> None:

    files = tf.data.Dataset.from_tensor_slices([f"file-{i}" for i in range(64)])
    slow = files.map(lambda name: (name, tf.timestamp())).apply(cachew.sleep(20_000))
    served = slow.apply(cachew.distribute(service=four_workers.endpoint, job_name="balance"))
    assert len({str(name) for name, _ in served.as_numpy_iterator()}) == 64
    eventually(lambda: four_workers.epochs("balance")[-1].elements == 64)
    assert four_workers.epochs("balance")[-1].workers == 4
