"""What a trainer reads from the cache is what a local run gives, whatever the elements are."""

from __future__ import annotations

import signal
from collections import Counter, namedtuple
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from cached_jobs import Trainer, await_stored, modes, multiset
from real_service import RealService, eventually

import cachew_core as cachew

Build = Callable[[], tf.data.Dataset]
Named = namedtuple("Named", ["first", "second"])

NUMBERS = (
    *(tf.int8, tf.int16, tf.int32, tf.int64, tf.uint8, tf.uint16, tf.uint32, tf.uint64, tf.bool),
    *(tf.float16, tf.float32, tf.float64, tf.bfloat16, tf.complex64, tf.complex128),
)


def numbers(count: int) -> tf.data.Dataset:
    return tf.data.Dataset.range(count)


def maybe(i: tf.Tensor) -> tf.experimental.Optional:
    return tf.cond(
        i % 2 == 0,
        lambda: tf.experimental.Optional.from_value(i),
        lambda: tf.experimental.Optional.empty(tf.TensorSpec([], tf.int64)),
    )


def image(i: tf.Tensor) -> tf.Tensor:
    return tf.reshape(tf.cast(mixed(i, 32 * 24 * 3), tf.uint8), [32, 24, 3])


def mixed(i: tf.Tensor, count: int) -> tf.Tensor:
    """Numbers that look like any, but are no random ones, which would not be stored."""
    return (tf.range(count, dtype=tf.int64) + i * 97) * 2654435761 % 65521 // 255


ELEMENTS: dict[str, Callable[[int], tf.data.Dataset]] = {
    "every number type": lambda n: numbers(n).map(lambda i: tuple(tf.cast(i, t) for t in NUMBERS)),
    "nested structures": lambda n: numbers(n).map(
        lambda i: {"x": (i, {"y": tf.cast(i, tf.float32)}), "n": Named(i, (i + 1, i + 2))}
    ),
    "None and empty tuples": lambda n: numbers(n).map(
        lambda i: {"i": i, "none": None, "empty": ()}
    ),
    "strings": lambda n: numbers(n).map(
        lambda i: (tf.strings.as_string(i), tf.fill([i], "\0ä"), tf.constant(b"\xff\0"))
    ),
    "ragged": lambda n: numbers(n).map(
        lambda i: tf.RaggedTensor.from_row_lengths(tf.range(i * 2), [i, i])
    ),
    "ragged in batches": lambda n: (
        numbers(n).map(lambda i: tf.RaggedTensor.from_row_lengths(tf.range(i), [i])).batch(4)
    ),
    "sparse": lambda n: numbers(n).map(lambda i: {"s": tf.sparse.from_dense([i, 0, i]), "i": i}),
    "optional": lambda n: numbers(n).map(lambda i: (i, maybe(i))),
    "images": lambda n: numbers(n).map(lambda i: (image(i), i % 3)),
    "images in batches": lambda n: numbers(n).map(image).batch(4),
    "shapes that differ": lambda n: numbers(n).map(lambda i: tf.ones([i, 2, i % 3])),
    "nothing in a tensor": lambda n: numbers(n).map(lambda i: (tf.zeros([0, 3]), tf.fill([0], ""))),
    "one byte": lambda n: numbers(n).map(lambda i: tf.cast(i, tf.uint8)),
    "64 MiB": lambda n: numbers(n - 19).map(lambda i: mixed(i, 8 << 20)),
}


def served(
    service: RealService, dataset: tf.data.Dataset, job: str, policy: str = "full", **options: Any
) -> tf.data.Dataset:
    return dataset.apply(
        cachew.distribute(service.endpoint, job_name=job, cache_policy=policy, **options)
    )


def two_epochs(service: RealService, dataset: tf.data.Dataset, job: str) -> list[Counter[str]]:
    """One that writes and one that reads."""
    written = rows_of(dataset, job)
    await_stored(service, job)
    return [written, rows_of(dataset, job)]


def rows_of(dataset: tf.data.Dataset, name: str) -> Counter[str]:
    """The elements, or what batches hold: which rows share a batch is the workers' affair."""
    return multiset(dataset.unbatch() if "in batches" in name else dataset)


@pytest.mark.parametrize("name", ELEMENTS)
def test_elements_of_every_type_are_read_as_they_were_made(caching: RealService, name: str) -> None:
    pipeline = ELEMENTS[name](21)
    dataset = served(caching, pipeline, name)
    assert dataset.element_spec == pipeline.element_spec
    assert two_epochs(caching, dataset, name) == [rows_of(pipeline, name)] * 2
    assert modes(caching, name) == ["PUT", "GET"]
    assert read_directly(caching, pipeline, name) == rows_of(pipeline, name)


def read_directly(service: RealService, pipeline: tf.data.Dataset, stored: str) -> Counter[str]:
    """What another job with the same data gets, which reads the files itself."""
    job = f"{stored} directly"
    rows = rows_of(served(service, pipeline, job, direct_reads="always"), stored)
    assert [epoch.direct for epoch in service.epochs(job)] == [True]
    return rows


@pytest.mark.parametrize("name", ELEMENTS)
def test_elements_of_every_type_pass_a_mark_into_a_map(caching: RealService, name: str) -> None:
    marked = ELEMENTS[name](22).apply(cachew.mark())
    pipeline = marked.map(lambda *element: (element, element[0]))
    job = f"{name} at a mark"
    dataset = served(caching, pipeline, job, "source")
    assert two_epochs(caching, dataset, job) == [rows_of(pipeline, job)] * 2
    assert modes(caching, job) == ["PUT_SOURCE", "GET_SOURCE"]


def interleaved() -> tf.data.Dataset:
    return numbers(20).interleave(lambda i: tf.data.Dataset.range(i), cycle_length=4)


PIPELINES: dict[str, Build] = {
    "filter": lambda: numbers(300).filter(lambda i: i % 7 == 0),
    "filter that leaves nothing": lambda: numbers(50).filter(lambda i: i < 0),
    "flat_map": lambda: numbers(50).flat_map(lambda i: tf.data.Dataset.range(i % 5)),
    "interleave": interleaved,
    "concatenate": lambda: numbers(30).concatenate(tf.data.Dataset.range(100, 120)),
    "repeat in the middle": lambda: numbers(30).repeat(2).map(lambda i: i + 1),
    "repeat at the end": lambda: numbers(30).map(lambda i: i * 2).repeat(2),
    "take, on one worker": lambda: numbers(100).take(17),
    "zip, on one worker": lambda: tf.data.Dataset.zip((numbers(40), numbers(40))),
    "no element at all": lambda: numbers(0),
    "batches": lambda: numbers(101).batch(8),
    "batches behind a filter": lambda: numbers(101).filter(lambda i: i % 3 == 0).batch(8),
    "equal batches": lambda: numbers(96).batch(32, drop_remainder=True),
}


@pytest.mark.parametrize("name", PIPELINES)
def test_pipelines_of_every_kind_are_read_as_often_and_as_whole(
    caching: RealService, name: str
) -> None:
    pipeline = PIPELINES[name]()
    batched = "batches" in name
    compared = shapes_and_rows if batched else multiset
    dataset = served(caching, pipeline, name)
    expected = compared(pipeline)
    assert compared(dataset) == expected
    await_stored(caching, name)
    assert [compared(dataset) for _ in range(2)] == [expected] * 2
    assert modes(caching, name)[-1] == "GET"
    job = f"{name} directly"
    assert compared(served(caching, pipeline, job, direct_reads="always")) == expected
    assert [epoch.direct for epoch in caching.epochs(job)][-1]


def shapes_and_rows(dataset: tf.data.Dataset) -> tuple[Counter[int], Counter[int]]:
    batches = [batch.tolist() for batch in dataset.as_numpy_iterator()]
    return Counter(len(batch) for batch in batches), Counter(row for b in batches for row in b)


def test_a_map_behind_the_batch_is_stored_with_it(caching: RealService) -> None:
    pipeline = numbers(101).batch(8).map(lambda rows: rows * 3).prefetch(1)
    dataset = served(caching, pipeline, "behind")
    expected = shapes_and_rows(pipeline)
    assert shapes_and_rows(dataset) == expected
    await_stored(caching, "behind")
    assert shapes_and_rows(dataset) == expected
    assert modes(caching, "behind") == ["PUT", "GET"]


def test_dropped_rows_stay_dropped_and_no_row_comes_twice(caching: RealService) -> None:
    dataset = served(caching, numbers(102).batch(8, drop_remainder=True), "dropped")
    assert two_epochs_of_shapes(caching, dataset, "dropped") == [Counter({8: 12})] * 2
    assert modes(caching, "dropped") == ["PUT", "GET"]


def two_epochs_of_shapes(
    service: RealService, dataset: tf.data.Dataset, job: str
) -> list[Counter[int]]:
    shapes = []
    for _ in range(2):
        sizes, rows = shapes_and_rows(dataset)
        assert max(rows.values()) == 1
        shapes.append(sizes)
        await_stored(service, job)
    return shapes


def test_shuffled_rows_share_other_batches_in_each_epoch_that_is_read(
    caching: RealService,
) -> None:
    pipeline = numbers(101).shuffle(101).batch(8)
    dataset = served(caching, pipeline, "shuffled")
    multiset(dataset)
    await_stored(caching, "shuffled")
    together = []
    for _ in range(3):
        batches = [frozenset(batch.tolist()) for batch in dataset.as_numpy_iterator()]
        assert Counter(len(batch) for batch in batches) == Counter({8: 12, 5: 1})
        assert frozenset().union(*batches) == frozenset(range(101))
        together.append(frozenset(batches))
    assert modes(caching, "shuffled") == ["PUT", "GET", "GET", "GET"]
    assert len(set(together)) == 3


def test_an_epoch_that_is_read_comes_in_another_order_than_the_last(caching: RealService) -> None:
    dataset = served(caching, numbers(200).shuffle(200), "reordered")
    multiset(dataset)
    await_stored(caching, "reordered")
    orders = [tuple(int(i) for i in dataset) for _ in range(2)]
    assert sorted(orders[0]) == sorted(orders[1]) == list(range(200))
    assert orders[0] != orders[1]
    assert modes(caching, "reordered") == ["PUT", "GET", "GET"]


def test_an_endless_pipeline_is_stored_in_its_first_pass_and_read_in_the_next(
    caching: RealService,
) -> None:
    dataset = served(caching, numbers(40).map(lambda i: i + 7).repeat(), "endless")
    wanted = Counter({i + 7: 5 for i in range(40)})
    assert Counter(int(i) for i in dataset.take(200)) == wanted
    await_stored(caching, "endless")
    assert Counter(int(i) for i in dataset.take(200)) == wanted
    assert modes(caching, "endless")[0] == "PUT"
    assert modes(caching, "endless")[-1] == "GET"


@pytest.mark.parametrize("policy", ["full", "source"])
def test_compressed_elements_are_stored_as_others_are(caching: RealService, policy: str) -> None:
    pipeline = numbers(60).map(lambda i: (tf.fill([50], i), policy)).apply(cachew.mark())
    job = f"compressed {policy}"
    dataset = served(caching, pipeline, job, policy, compression="SNAPPY")
    assert two_epochs(caching, dataset, job) == [multiset(pipeline)] * 2
    assert modes(caching, job)[-1].startswith("GET")


# Workers that come and go


def slow(folder: Path, count: int) -> tf.data.Dataset:
    """So many records, each after some work."""
    for number in range(20):
        with tf.io.TFRecordWriter(str(folder / f"{number}.tfrecord")) as writer:
            for row in range(count // 20):
                writer.write(f"{number}-{row}")
    files = tf.data.Dataset.list_files(str(folder / "*.tfrecord"))
    return files.interleave(tf.data.TFRecordDataset).apply(cachew.sleep(10_000))


def test_workers_that_join_and_leave_an_epoch_that_writes_store_each_element_once(
    caching: RealService, tmp_path: Path
) -> None:
    pipeline = slow(tmp_path, 1000)
    expected = Counter(
        f"string () {f'{i}-{row}'.encode()!r}" for i in range(20) for row in range(50)
    )
    dataset = served(caching, pipeline, "moving", max_outstanding_requests=4, prefetch=0)
    trainer = Trainer(dataset, hold_at=20)
    eventually(partial(trainer.has, 20))
    joined = caching.add_agent()
    eventually(lambda: caching.epochs("moving")[0].workers == 3)
    trainer.go_on()
    eventually(partial(trainer.has, 200))
    joined.send(signal.SIGTERM)
    assert trainer.done() == expected
    assert joined.wait() == 0
    await_stored(caching, "moving")
    assert multiset(dataset) == expected
    assert modes(caching, "moving") == ["PUT", "GET"]
