"""What workers run: coarse sources, repeats behind the service, and random streams."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from simulated_workers import comparable, multiset, one_pass, prepared, run_graph

from cachew_core.pipeline.graph import DatasetGraph
from cachew_core.pipeline.seeds import seeded_operators
from cachew_core.pipeline.sources import block_size
from cachew_core.pipeline.variants import worker_variant

Dataset = tf.data.Dataset
Build = Callable[[], tf.data.Dataset]


def variant(
    dataset: tf.data.Dataset, *, sharded: bool = True, single: bool = False, epoch: int = 0
) -> tf.data.Dataset:
    ready = prepared(dataset)
    graph = worker_variant(ready.graph, sharded=sharded, single=single, epoch=epoch)
    return ready.restore(run_graph(graph, ready.element_spec))


def splits(dataset: tf.data.Dataset) -> int:
    """How many splits the source of a pipeline's variant hands out."""
    ready = prepared(dataset)
    graph = DatasetGraph.parse(worker_variant(ready.graph, sharded=True, single=False, epoch=0))
    source = graph.operators()[-1]
    if source.op == "RangeDataset":
        return int(graph.scalar(source, 1))
    slices = graph.constant(graph.input(source, 0))
    assert slices is not None
    return len(slices)


RAGGED = tf.RaggedTensor.from_row_lengths(range(1200), [i % 3 for i in range(1200)])
SPARSE = tf.sparse.from_dense(np.eye(600, 4, dtype=np.int32))
SOURCES: dict[str, Build] = {
    "a range": lambda: Dataset.range(5000),
    "a range with a step": lambda: Dataset.range(7, 5000, 3),
    "a range downwards": lambda: Dataset.range(5000, -7, -3),
    "a range of other numbers": lambda: Dataset.range(5000, output_type=tf.int32),
    "a range near the largest number": lambda: Dataset.range(2**63 - 4000, 2**63 - 1, 3),
    "an empty range": lambda: Dataset.range(5, 5),
    "a small range": lambda: Dataset.range(511),
    "a block and a bit": lambda: Dataset.range(20 * 256 + 1),
    "slices": lambda: Dataset.from_tensor_slices(np.arange(1500)),
    "slices of a structure": lambda: Dataset.from_tensor_slices(
        {"text": [str(i) for i in range(700)], "pair": (np.ones([700, 2, 3]), np.zeros([700, 0]))}
    ),
    "ragged slices": lambda: Dataset.from_tensor_slices(RAGGED),
    "sparse slices": lambda: Dataset.from_tensor_slices({"s": SPARSE, "r": RAGGED[:600]}),
    "two sources": lambda: Dataset.range(600).concatenate(Dataset.range(1000, 1700)),
}


@pytest.mark.parametrize("kind", SOURCES)
def test_coarse_sources_give_the_same_elements_in_the_same_order(kind: str) -> None:
    local = SOURCES[kind]()
    elements = [comparable(element) for element in local]
    coarse = variant(local)
    assert coarse.element_spec == local.element_spec
    assert [comparable(element) for element in coarse] == elements


def test_small_sources_hand_out_single_elements_and_large_ones_blocks() -> None:
    files = [f"/nowhere/{number}" for number in range(64)]
    assert splits(Dataset.from_tensor_slices(files)) == 64
    assert splits(Dataset.range(511)) == 511
    assert splits(Dataset.range(100_000)) == 5_000
    assert splits(Dataset.from_tensor_slices(np.zeros(1024))) == 256
    assert [block_size(n) for n in (0, 1, 511, 512, 5120, 10**9)] == [1, 1, 1, 2, 20, 20]


def test_sources_inside_functions_and_unsplit_pipelines_stay_as_they_are() -> None:
    dataset = Dataset.range(600).interleave(lambda n: Dataset.range(600).take(2))
    assert splits(dataset) == 300
    ready = prepared(Dataset.range(5000).take(3000))
    graph = DatasetGraph.parse(worker_variant(ready.graph, sharded=False, single=True, epoch=0))
    # Behind the two nodes of the mark at the end.
    pipeline = [node.op for node in graph.operators()][2:]
    assert pipeline == ["TakeDataset", "RangeDataset"]


def test_a_sequential_interleave_over_a_shuffle_keeps_its_order() -> None:
    local = (
        Dataset.range(40)
        .shuffle(9, seed=2, reshuffle_each_iteration=False)
        .interleave(lambda n: Dataset.range(n, n + 3), cycle_length=3, block_length=2)
    )
    ready = prepared(local)
    graph = worker_variant(ready.graph, sharded=True, single=True, epoch=0)
    assert b"ParallelInterleaveDatasetV4" in graph
    read = run_graph(graph, ready.element_spec)
    assert list(read.as_numpy_iterator()) == list(local.as_numpy_iterator())


@pytest.mark.parametrize(
    ("build", "repeats", "cardinality"),
    [
        (lambda: Dataset.range(10), 1, 10),
        (lambda: Dataset.range(10).repeat(3), 3, 10),
        (lambda: Dataset.range(10).repeat(), -1, 10),
        (lambda: Dataset.range(10).repeat(2).repeat(3), 6, 10),
        (lambda: Dataset.range(10).repeat(2).repeat(), -1, 10),
        (lambda: Dataset.range(10).repeat(3).map(lambda n: n).prefetch(2), 3, 10),
        (lambda: Dataset.range(10).batch(4).repeat(3), 3, 3),
        (lambda: Dataset.range(10).filter(lambda n: n > 3).repeat(), -1, -2),
        (lambda: Dataset.range(10).repeat(0), 1, 0),
        (lambda: Dataset.range(10).repeat(3).shuffle(4), 1, 30),
        (lambda: Dataset.range(10).shuffle(4).repeat().batch(4), 1, -1),
        (lambda: Dataset.range(0), 1, 0),
    ],
)
def test_a_final_repeat_moves_behind_the_service(
    build: Build, repeats: int, cardinality: int
) -> None:
    ready = prepared(build())
    assert (ready.repeats, ready.cardinality) == (repeats, cardinality)
    assert not ready.single_worker


def test_a_final_repeat_stays_for_coordinated_reads() -> None:
    ready = prepared(Dataset.range(10).repeat(), num_consumers=2)
    assert ready.repeats == 1
    assert ready.cardinality == tf.data.INFINITE_CARDINALITY


def test_compressed_elements_are_made_last() -> None:
    local = Dataset.range(10).batch(4).map(lambda batch: (batch, batch + 1))
    ready = prepared(local, compression="SNAPPY")
    graph = DatasetGraph.parse(ready.graph)
    called = graph.functions_of(graph.sink)
    assert any(node.op == "CompressElement" for f in called for node in f.node_def)
    assert len(ready.element_spec) == 1 + 2 + 1
    assert len(list(run_graph(ready.graph, tf.TensorSpec([], tf.variant)))) == 3


def numbers(dataset: tf.data.Dataset) -> list[float]:
    return [float(value) for value in dataset.as_numpy_iterator()]


def with_noise(dataset: tf.data.Dataset) -> tf.data.Dataset:
    return dataset.map(lambda number: tf.random.uniform([], seed=5))


def test_seeded_operators_are_named() -> None:
    seeded = with_noise(Dataset.range(9).shuffle(3, seed=1))
    names = seeded_operators(prepared(seeded).graph)
    assert len(names) == 2
    assert names[1] == "`shuffle`"
    assert names[0].startswith("`map`")
    unseeded = Dataset.range(9).shuffle(3).map(lambda number: tf.random.uniform([]))
    assert seeded_operators(prepared(unseeded).graph) == ()


def test_a_global_seed_counts_as_a_seed() -> None:
    tf.random.set_seed(4)
    try:
        dataset = Dataset.range(9).map(lambda number: tf.random.uniform([]))
        assert len(seeded_operators(prepared(dataset).graph)) == 1
        one, other = (numbers(variant(dataset)) for _ in range(2))
    finally:
        tf.random.set_seed(None)
    assert not set(one) & set(other)


def test_several_workers_never_draw_the_same_stream() -> None:
    streams = [numbers(variant(with_noise(Dataset.range(20)))) for _ in range(2)]
    assert not set(streams[0]) & set(streams[1])
    shuffled = Dataset.range(200).shuffle(200, seed=1, reshuffle_each_iteration=False)
    orders = [numbers(variant(shuffled)) for _ in range(2)]
    assert orders[0] != orders[1]


def test_one_worker_is_reproducible_and_its_epochs_differ() -> None:
    def epoch(number: int) -> list[float]:
        return numbers(variant(with_noise(Dataset.range(20)), single=True, epoch=number))

    assert epoch(0) == epoch(0) == numbers(with_noise(Dataset.range(20)))
    assert epoch(1) == epoch(1)
    assert not set(epoch(0)) & set(epoch(1))
    assert not set(epoch(1)) & set(epoch(2))


def test_a_shuffle_that_is_not_to_reshuffle_keeps_its_order_on_one_worker() -> None:
    shuffled = Dataset.range(99).shuffle(99, seed=1, reshuffle_each_iteration=False)
    orders = [numbers(variant(shuffled, single=True, epoch=epoch)) for epoch in range(3)]
    assert orders[0] == orders[1] == orders[2]


def test_a_shuffle_reshuffles_in_each_epoch_on_one_worker() -> None:
    shuffled = Dataset.range(99).shuffle(99, seed=1)
    orders = [numbers(variant(shuffled, single=True, epoch=epoch)) for epoch in range(2)]
    assert sorted(orders[0]) == sorted(orders[1])
    assert orders[0] != orders[1]


def test_generators_start_anew_on_each_of_several_workers() -> None:
    generator = tf.random.Generator.from_seed(1)
    dataset = Dataset.range(9).map(lambda number: generator.uniform([]))
    one, other = (numbers(variant(dataset)) for _ in range(2))
    assert not set(one) & set(other)
    kept, again = (numbers(variant(dataset, single=True)) for _ in range(2))
    assert kept == again


def test_keras_seed_generators_start_anew_on_each_of_several_workers() -> None:
    import keras

    generator = keras.random.SeedGenerator(3)
    dataset = Dataset.range(9).map(lambda number: keras.random.uniform([], seed=generator))
    assert not prepared(dataset).single_worker
    one, other = (numbers(variant(dataset)) for _ in range(2))
    assert not set(one) & set(other)


def test_keras_random_layers_may_be_split() -> None:
    import keras

    flip = keras.layers.RandomFlip(seed=3)
    image = tf.reshape(tf.range(48, dtype=tf.float32), [1, 4, 4, 3])
    dataset = Dataset.range(9).map(lambda number: flip(image, training=True))
    assert not prepared(dataset).single_worker


def test_all_element_types_come_through_unchanged() -> None:
    from collections import namedtuple

    point = namedtuple("point", ["x", "y"])

    def element(number: tf.Tensor) -> dict[str, object]:
        return {
            "point": point(number, (tf.cast(number, tf.float32), tf.strings.as_string(number))),
            "none": None,
            "ragged": tf.RaggedTensor.from_row_lengths(tf.range(number), [number]),
            "sparse": tf.sparse.from_dense([number, 0]),
            "optional": tf.experimental.Optional.from_value(number),
            "empty": tf.zeros([0, 3]),
            "tuple": (),
        }

    local = Dataset.range(600).map(element)
    served = one_pass(local, workers=1)
    assert served.element_spec == local.element_spec

    def plain(item: dict[str, Any]) -> dict[str, Any]:
        return {**item, "optional": item["optional"].get_value(), "none": 0}

    assert multiset(served.map(plain)) == multiset(local.map(plain))
