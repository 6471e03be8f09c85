"""Batches that come from several workers are the batches of a local run."""

from collections import Counter
from collections.abc import Hashable

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from simulated_workers import comparable, multiset, one_pass, prepared, run_graph

from cachew_core.pipeline.variants import worker_variant

Dataset = tf.data.Dataset


def sizes(dataset: tf.data.Dataset) -> Counter[int]:
    return Counter(int(tf.shape(tf.nest.flatten(batch)[0])[0]) for batch in dataset)


def rows(dataset: tf.data.Dataset) -> Counter[int]:
    return Counter(int(row) for batch in dataset for row in batch)


def single_rows(dataset: tf.data.Dataset) -> Counter[Hashable]:
    """Each row of each batch; stock's `unbatch` crashes on rows of no size."""
    found: Counter[Hashable] = Counter()
    for batch in dataset:
        parts = [part for part in tf.nest.flatten(batch) if part is not None]
        found.update(comparable(row) for row in zip(*parts, strict=True))
    return found


@settings(derandomize=True, max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    elements=st.integers(0, 40),
    size=st.integers(1, 9),
    drop_remainder=st.booleans(),
    workers=st.integers(1, 5),
    seed=st.integers(0, 99),
)
def test_batches_without_a_suffix_have_the_sizes_and_rows_of_a_local_run(
    elements: int, size: int, drop_remainder: bool, workers: int, seed: int
) -> None:
    local = Dataset.range(elements).batch(size, drop_remainder=drop_remainder)
    served = one_pass(local, workers=workers, seed=seed)
    assert served.element_spec == local.element_spec
    assert sizes(served) == sizes(local)
    found = rows(served)
    assert found <= Counter(range(elements))
    assert max(found.values(), default=1) == 1
    if not drop_remainder:
        assert found == rows(local)


@settings(derandomize=True, max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    elements=st.integers(0, 40),
    size=st.integers(2, 9),
    drop_remainder=st.booleans(),
    workers=st.integers(1, 5),
    seed=st.integers(0, 99),
)
def test_a_suffix_sees_only_batches_of_sizes_that_it_would_see_locally(
    elements: int, size: int, drop_remainder: bool, workers: int, seed: int
) -> None:
    def with_size(batch: tf.Tensor) -> dict[str, tf.Tensor]:
        # With drop_remainder the size is a constant of the traced function: a partial batch would
        # lie.
        rows = tf.fill(tf.shape(batch), batch.shape[0] or tf.shape(batch)[0])
        return {"row": batch, "rows": rows, "sum": tf.reduce_sum(batch)}

    local = Dataset.range(elements).batch(size, drop_remainder=drop_remainder)
    local = local.map(with_size, num_parallel_calls=2).prefetch(1).map(lambda item: item)
    served = one_pass(local, workers=workers, seed=seed)
    assert served.element_spec == local.element_spec
    assert sizes({"row": item["row"]} for item in served) == sizes(local)
    for item in served:
        assert set(item["rows"].numpy()) == {len(item["row"])}
        assert int(item["sum"]) == int(np.sum(item["row"]))


@pytest.mark.parametrize("drop_remainder", [False, True])
def test_full_batches_over_four_workers_where_stock_would_lose_a_third(
    drop_remainder: bool,
) -> None:
    local = Dataset.range(96).batch(32, drop_remainder=drop_remainder)
    assert sizes(one_pass(local, workers=4)) == Counter({32: 3})


def test_structured_rows_of_all_plain_types_are_merged_intact() -> None:
    def row(number: tf.Tensor) -> dict[str, object]:
        return {
            "text": tf.strings.as_string(number),
            "pair": (tf.cast(number, tf.float16), number % 2 == 0),
            "image": tf.fill([2, 3], tf.cast(number, tf.uint8)),
            "empty": tf.zeros([0], tf.int32),
            "none": None,
        }

    local = Dataset.range(50).map(row).batch(8)
    served = one_pass(local, workers=3)
    assert served.element_spec == local.element_spec
    assert single_rows(served) == single_rows(local)


def test_rows_whose_rank_is_unknown_are_merged() -> None:
    def hidden(number: tf.Tensor) -> tf.Tensor:
        return tf.reshape(tf.fill([4], number), tf.cast(tf.fill([number * 0 + 2], 2), tf.int32))

    local = Dataset.range(10).map(hidden).batch(4)
    assert local.element_spec.shape.rank is None
    assert sizes(one_pass(local, workers=3)) == Counter({4: 2, 2: 1})


def test_rows_of_a_size_that_only_batches_agree_on_are_merged() -> None:
    local = Dataset.range(10).map(lambda number: tf.fill([number * 0 + 5], number)).batch(4)
    assert sizes(one_pass(local, workers=3)) == Counter({4: 2, 2: 1})


def test_what_a_suffix_captured_is_there_on_both_sides() -> None:
    table = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(
            tf.range(50, dtype=tf.int64), tf.range(50, dtype=tf.int64) * 3
        ),
        -1,
    )
    offset = tf.Variable(7, dtype=tf.int64)
    local = Dataset.range(50).batch(8).map(lambda batch: table.lookup(batch) + offset)
    expected = Counter(3 * number + 7 for number in range(50))
    served = one_pass(local, workers=3)
    assert rows(served) == expected


def test_a_captured_variable_has_its_value_of_the_time_of_preparation() -> None:
    offset = tf.Variable(1, dtype=tf.int64)
    ready = prepared(Dataset.range(5).batch(4).map(lambda batch: batch * 0 + offset))
    offset.assign(100)
    restored = ready.restore(run_graph(ready.graph, ready.element_spec))
    assert rows(restored) == Counter({1: 5})


def test_a_table_from_a_file_that_the_trainer_lost_makes_the_pipeline_run_on_one_worker(
    tmp_path: object,
) -> None:
    path = f"{tmp_path}/words"
    tf.io.write_file(path, "a\nb\n")
    table = tf.lookup.StaticVocabularyTable(
        tf.lookup.TextFileInitializer(
            path,
            tf.string,
            tf.lookup.TextFileIndex.WHOLE_LINE,
            tf.int64,
            tf.lookup.TextFileIndex.LINE_NUMBER,
        ),
        1,
    )
    dataset = Dataset.from_tensor_slices(["a", "b", "c"]).batch(2).map(table.lookup)
    assert not prepared(dataset).single_worker
    tf.io.gfile.remove(path)
    (reason,) = prepared(dataset).single_worker
    assert "can't be made in the trainer" in reason


def test_a_shuffle_of_batches_and_a_mark_may_stand_behind_the_batch() -> None:
    options = tf.data.Options()
    options.experimental_optimization.noop_elimination = False
    local = (
        Dataset.range(50)
        .batch(8)
        .shuffle(4)
        .map(lambda batch: batch + 1)
        .take(-1, name="cachew_mark__batches")
        .with_options(options)
    )
    assert b"cachew_mark__batches" in prepared(local).graph
    served = one_pass(local, workers=3)
    assert rows(served) == Counter(range(1, 51))
    assert sizes(served) == Counter({8: 6, 2: 1})


def test_batches_of_one_row_are_left_as_they_are() -> None:
    local = Dataset.range(20).batch(1).map(lambda batch: batch[0])
    ready = prepared(local)
    assert not ready.single_worker
    assert ready.element_spec == local.element_spec


@pytest.mark.parametrize(
    ("pipeline", "operator"),
    [
        (Dataset.range(20).batch(4).unbatch(), "unbatch"),
        (Dataset.range(20).batch(4).filter(lambda batch: batch[0] > 3), "filter"),
        (Dataset.range(20).batch(4).batch(2), "batch"),
        (Dataset.range(20).batch(4).concatenate(Dataset.range(9).batch(3)), "batch"),
        (Dataset.range(20).batch(4).repeat(2).shuffle(3), "repeat"),
        (Dataset.range(20).map(lambda n: tf.range(n)).ragged_batch(4), "batch"),
        (Dataset.range(20).batch(4).map(lambda batch: tf.ragged.range(batch)), "batch"),
    ],
)
def test_batches_that_cannot_be_made_whole_run_on_one_worker(
    pipeline: tf.data.Dataset, operator: str
) -> None:
    ready = prepared(pipeline)
    assert ready.single_worker
    assert any(f"`{operator}`" in reason for reason in ready.single_worker)
    assert multiset(
        ready.restore(run_graph(ready.graph, ready.element_spec)).repeat(ready.repeats)
    ) == (multiset(pipeline))


def test_every_worker_batches_for_itself_where_every_worker_reads_everything() -> None:
    local = Dataset.range(20).batch(8).map(lambda batch: batch + 1)
    ready = prepared(local, processing_mode="parallel_epochs")
    assert ready.element_spec == local.element_spec
    variant = worker_variant(ready.graph, sharded=False, single=False, epoch=0)
    assert sizes(run_graph(variant, ready.element_spec)) == Counter({8: 2, 4: 1})


def test_a_captured_random_stream_may_follow_the_batch() -> None:
    generator = tf.random.Generator.from_seed(3)
    local = Dataset.range(20).batch(8).map(lambda b: (b, generator.uniform(tf.shape(b))))
    served = list(one_pass(local, workers=3))
    noise = np.concatenate([values for _, values in served])
    assert sum(len(batch) for batch, _ in served) == 20
    assert len(set(noise)) == 20
