"""What is refused before anything is sent, and what runs whole on one worker."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from simulated_workers import multiset, prepared, run_graph

import cachew_core as cachew
from cachew_core.errors import PipelineError
from cachew_core.pipeline.operators import OPERATORS, Verdict, operator_table
from cachew_core.pipeline.preparation import Limits

Dataset = tf.data.Dataset
Build = Callable[[], tf.data.Dataset]


def halved(number: tf.Tensor) -> tf.Tensor:
    return tf.py_function(lambda value: value // 2, [number], tf.int64)


def halved_by_numpy(number: tf.Tensor) -> tf.Tensor:
    return tf.numpy_function(lambda value: value // 2, [number], tf.int64)


REFUSED: dict[str, tuple[Build, str]] = {
    "a generator": (
        lambda: Dataset.from_generator(lambda: range(3), output_signature=tf.TensorSpec([])),
        "from_generator",
    ),
    "a generator behind other operators": (
        lambda: (
            Dataset.from_generator(lambda: range(3), output_signature=tf.TensorSpec([]))
            .batch(2)
            .repeat(2)
        ),
        "from_generator",
    ),
    "a Python function": (lambda: Dataset.range(3).map(halved), "`map` (function `halved`)"),
    "a numpy function": (
        lambda: Dataset.range(3).map(halved_by_numpy, num_parallel_calls=2),
        "`map` (function `halved_by_numpy`)",
    ),
    "a Python function in a filter": (
        lambda: Dataset.range(3).filter(lambda number: halved(number) > 0),
        "`filter`",
    ),
    "a Python function in a nested dataset": (
        lambda: Dataset.range(3).interleave(lambda n: Dataset.range(3).map(halved)),
        "`interleave`",
    ),
    "a Python function in a branch": (
        lambda: Dataset.range(3).map(lambda n: tf.cond(n > 0, lambda: halved(n), lambda: n)),
        "`map`",
    ),
    "elements that are datasets": (lambda: Dataset.range(9).window(3), "`window`"),
    "elements that hold datasets": (
        lambda: Dataset.range(9).map(lambda n: (n, Dataset.range(n))),
        "`window`",
    ),
    "a cache in a file": (lambda: Dataset.range(9).cache("/nowhere/cache"), "`cache(filename)`"),
    "a snapshot": (lambda: Dataset.range(9).snapshot("/nowhere/snapshot"), "`snapshot"),
    "a mark in a function": (
        lambda: Dataset.range(3).flat_map(lambda n: Dataset.range(n).apply(cachew.mark("inner"))),
        "cachew.mark(name='inner') stands inside of a function",
    ),
    "two marks of one name": (
        lambda: Dataset.range(3).apply(cachew.mark("a")).prefetch(1).apply(cachew.mark("a")),
        "2 marks of the pipeline have the name 'a'",
    ),
    "a captured iterator": (
        lambda: (lambda it: Dataset.range(2).map(lambda n: n + next(it)))(iter(Dataset.range(9))),
        "iterator",
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.parametrize("mode", ["distributed_epoch", "parallel_epochs"])
def test_what_workers_cannot_run_is_refused_with_its_name(kind: str, mode: str) -> None:
    build, name = REFUSED[kind]
    with pytest.raises(PipelineError, match=re.escape(name)):
        prepared(build(), processing_mode=mode)


def test_a_large_constant_is_refused_before_it_is_serialized() -> None:
    limits = Limits(max_bytes=1 << 20, warn_bytes=1 << 10)
    big = np.zeros([600_000], np.float32)
    with pytest.raises(PipelineError, match="2 MiB of data, over the limit of 1 MiB"):
        prepared(Dataset.from_tensor_slices(big), limits=limits)
    captured = tf.constant(big)
    with pytest.raises(PipelineError, match="max_graph_bytes"):
        prepared(Dataset.range(3).map(lambda n: captured[n]), limits=limits)
    with pytest.raises(PipelineError, match="TFRecords"):
        prepared(Dataset.from_tensor_slices(["x" * 3000] * 1000), limits=limits)


def test_a_large_ragged_constant_is_refused() -> None:
    limits = Limits(max_bytes=1 << 20, warn_bytes=1 << 10)
    ragged = tf.RaggedTensor.from_row_lengths(np.zeros([600_000], np.float32), [300_000] * 2)
    with pytest.raises(PipelineError, match="over the limit"):
        prepared(Dataset.from_tensor_slices(ragged), limits=limits)


def test_a_graph_that_is_rather_large_gets_a_warning() -> None:
    limits = Limits(max_bytes=1 << 22, warn_bytes=1 << 20)
    (warning,) = prepared(
        Dataset.from_tensor_slices(np.zeros([600_000], np.float32)), limits=limits
    ).warnings
    assert "2 MiB" in warning


ONE_WORKER: dict[str, Build] = {
    "zip": lambda: Dataset.zip((Dataset.range(9), Dataset.range(9))),
    "zip, enumerate": lambda: Dataset.range(9).enumerate(start=3),
    "choose_from_datasets": lambda: Dataset.choose_from_datasets(
        [Dataset.range(9), Dataset.range(9)], Dataset.range(2).repeat(4)
    ),
    "take": lambda: Dataset.range(9).take(4),
    "skip": lambda: Dataset.range(9).skip(4),
    "shard": lambda: Dataset.range(9).shard(2, 1),
    "scan": lambda: Dataset.range(9).scan(tf.constant(0, tf.int64), lambda s, n: (s + n, s)),
    "take_while": lambda: Dataset.range(9).take_while(lambda n: n < 5),
    "unique": lambda: Dataset.from_tensor_slices([1, 2, 1]).unique(),
    "window": lambda: Dataset.range(9).window(3).flat_map(lambda w: w.batch(3)),
    "group_by_window": lambda: Dataset.range(9).group_by_window(
        lambda n: n % 2, lambda key, window: window.batch(4), window_size=4
    ),
    "bucket_by_sequence_length": lambda: (
        Dataset.range(9)
        .map(lambda n: tf.range(n))
        .bucket_by_sequence_length(lambda n: tf.shape(n)[0], [4], [2, 2])
    ),
    "padded_batch": lambda: Dataset.range(9).map(lambda n: tf.range(n)).padded_batch(4),
    "assert_cardinality": lambda: Dataset.range(9).apply(
        tf.data.experimental.assert_cardinality(9)
    ),
    "cache": lambda: Dataset.range(9).cache().repeat(2).shuffle(4, seed=1).map(lambda n: n),
    "rejection_resample": lambda: (
        Dataset.range(9)
        .map(lambda n: n % 2)
        .rejection_resample(lambda n: tf.cast(n, tf.int32), [0.5, 0.5], seed=1)
        .map(lambda label, n: n * 0)
    ),
}


@pytest.mark.parametrize("kind", ONE_WORKER)
def test_what_would_differ_when_split_runs_on_one_worker_and_is_named(kind: str) -> None:
    pipeline = ONE_WORKER[kind]()
    ready = prepared(pipeline)
    assert ready.single_worker
    if kind != "rejection_resample":
        name = kind.partition(",")[0]
        assert any(name in reason for reason in ready.single_worker)
        assert any(name in warning for warning in ready.warnings)
        read = ready.restore(run_graph(ready.graph, ready.element_spec)).repeat(ready.repeats)
        assert multiset(read) == multiset(pipeline)


def test_random_sources_run_on_one_worker() -> None:
    assert prepared(Dataset.random(seed=1).take(4)).single_worker
    sampled = Dataset.sample_from_datasets([Dataset.range(9), Dataset.range(9)])
    assert any("sample_from_datasets" in reason for reason in prepared(sampled).single_worker)


def test_a_saved_dataset_runs_on_one_worker(tmp_path: Path) -> None:
    Dataset.range(5).save(str(tmp_path / "saved"))
    (reason,) = prepared(Dataset.load(str(tmp_path / "saved"))).single_worker
    assert "load" in reason


SPLIT: dict[str, Build] = {
    "per element": lambda: Dataset.range(9).map(lambda n: n).filter(lambda n: n > 3).prefetch(2),
    "shuffle and repeat": lambda: Dataset.range(9).shuffle(3).repeat(2).map(lambda n: n),
    "cache": lambda: Dataset.range(9).cache(),
    "concatenate": lambda: Dataset.range(9).concatenate(Dataset.range(3)),
    "nested operators": lambda: Dataset.range(9).interleave(
        lambda n: Dataset.zip((Dataset.range(n), Dataset.range(n))).take(2).batch(2)
    ),
    "a mark": lambda: Dataset.range(9).take(-1, name="cachew_mark__x"),
    "unbatch": lambda: Dataset.range(9).map(lambda n: tf.range(n)).unbatch(),
}


@pytest.mark.parametrize("kind", SPLIT)
def test_what_treats_each_element_alike_may_be_split(kind: str) -> None:
    ready = prepared(SPLIT[kind]())
    assert ready.single_worker == ()
    assert ready.warnings == ()


def test_every_worker_may_run_what_can_not_be_split() -> None:
    ready = prepared(Dataset.range(9).take(4), processing_mode="parallel_epochs")
    assert ready.single_worker == ()


def test_a_variable_that_a_function_changes_makes_the_pipeline_run_on_one_worker() -> None:
    counter = tf.Variable(0, dtype=tf.int64)
    (reason,) = prepared(Dataset.range(9).map(lambda n: counter.assign_add(n))).single_worker
    assert "state" in reason
    assert "`map`" in reason
    assert not prepared(Dataset.range(9).map(lambda n: counter + n)).single_worker


def test_an_operator_is_named_as_the_user_named_it() -> None:
    (reason,) = prepared(Dataset.range(9).take(4, name="first_four")).single_worker
    assert "first_four" in reason


def test_no_operator_stands_in_the_table_twice() -> None:
    ops = [op for rule in OPERATORS for op in rule.ops]
    assert len(ops) == len(set(ops))


def test_the_documentation_shows_the_table() -> None:
    page = Path(__file__).parents[2] / "docs" / "data-guarantees.md"
    shown = page.read_text().partition("<!-- operators -->")[2].partition("<!-- /operators -->")[0]
    lines = [f"| {' | '.join(row)} |" for row in operator_table()]
    assert [line for line in shown.splitlines() if line.startswith("| `")] == lines
    assert {row[1] for row in operator_table()} == {verdict.value for verdict in Verdict}
