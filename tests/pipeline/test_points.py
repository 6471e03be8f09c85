"""Points are known by their data in every process, and refused where epochs should differ."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import pytest
import tensorflow as tf
from simulated_workers import multiset, prepared, run_graph

import cachew_core as cachew
from cachew_core.pipeline.marks import END
from cachew_core.pipeline.points import CachePoint, Shuffle, cache_points

Dataset = tf.data.Dataset

PROGRAM = """
import json, sys
number = int(sys.argv[1])
import tensorflow as tf
import cachew_core as cachew
from cachew_core.pipeline.points import cache_points
from simulated_workers import prepared
for unused in range(number % 5):
    tf.data.Dataset.range(unused + 1).map(lambda value: value + 3).batch(2)
words = [f"word{i}" for i in range(50)]
table = tf.lookup.StaticHashTable(
    tf.lookup.KeyValueTensorInitializer(words, tf.range(50, dtype=tf.int64)), -1
)
offset = tf.Variable(5, dtype=tf.int64)

def row(value):
    keys = {"b", "a", "c"}
    text = tf.strings.join(["word", tf.strings.as_string(value)])
    return {key: table.lookup(text) + offset for key in keys}
row.__name__ = f"row_{number}"

dataset = tf.data.Dataset.range(50).shuffle(10).map(row, num_parallel_calls=2)
dataset = dataset.apply(cachew.mark("rows")).shuffle(4).batch(8).map(lambda row: row["a"])
dataset = dataset.prefetch(2).apply(cachew.mark("sums"))
points = cache_points(prepared(dataset, compression="AUTO").graph)
print(json.dumps([[point.name, point.fingerprint] for point in points]))
"""


PROCESSES = 4
"""A process takes seconds of the machine to import TensorFlow."""


@pytest.mark.timeout(900)
def test_fresh_processes_find_the_same_fingerprint_of_each_point() -> None:
    support = str(Path(__file__).parents[1] / "support")
    environment = os.environ | {"PYTHONPATH": support, "TF_CPP_MIN_LOG_LEVEL": "3"}
    running = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(number)],
            env=environment | {"PYTHONHASHSEED": str(number * 1000 + 1)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(PROCESSES)
    ]
    try:
        texts = [process.communicate(timeout=600)[0] for process in running]
    finally:
        for process in running:
            process.kill()
            process.wait()
    (text,) = set(texts)
    found = json.loads(text)
    assert [name for name, _ in found] == [END, "sums", "rows"]
    for _, fingerprint in found:
        assert re.fullmatch("[0-9a-f]{64}", fingerprint)


def points(dataset: tf.data.Dataset, **arguments: Any) -> dict[str, CachePoint]:
    return {point.name: point for point in cache_points(prepared(dataset, **arguments).graph)}


def marked(name: str = "a", **arguments: Any) -> Callable[[tf.data.Dataset], tf.data.Dataset]:
    return cachew.mark(name, **arguments)


def base(*, add: int = 1, stop: int = 20, buffer: int = 5, text: str = "x") -> tf.data.Dataset:
    dataset = Dataset.range(stop).shuffle(buffer)
    return dataset.map(lambda number: (number + add, text)).apply(marked("a"))


def with_options(dataset: tf.data.Dataset) -> tf.data.Dataset:
    options = tf.data.Options()
    options.deterministic = False
    return dataset.with_options(options)


def identity(dataset: tf.data.Dataset, name: str = "a", **arguments: Any) -> str:
    return points(dataset, **arguments)[name].fingerprint


SUFFIXES: dict[str, Callable[[tf.data.Dataset], tf.data.Dataset]] = {
    "a map": lambda dataset: dataset.map(lambda number, text: number * 2),
    "a batch": lambda dataset: dataset.batch(4),
    "a batch with a map behind it": lambda dataset: dataset.batch(4).map(lambda n, text: n),
    "another mark": lambda dataset: dataset.apply(marked("b")).prefetch(2),
    "options": with_options,
    "a repeat": lambda dataset: dataset.repeat(3),
    "something for one worker": lambda dataset: dataset.take(7),
    "random numbers": lambda dataset: dataset.map(lambda n, text: n + draw(n)),
}


@pytest.mark.parametrize("suffix", SUFFIXES.values(), ids=SUFFIXES)
def test_what_follows_a_mark_does_not_count(
    suffix: Callable[[tf.data.Dataset], tf.data.Dataset],
) -> None:
    assert identity(suffix(base())) == identity(base())


def test_how_elements_travel_does_not_count() -> None:
    for name in ("a", END):
        assert identity(base(), name, compression="AUTO") == identity(base(), name)


CHANGES: dict[str, Callable[[], tf.data.Dataset]] = {
    "a constant in a function": lambda: base(add=2),
    "a text in a function": lambda: base(text="y"),
    "the source": lambda: base(stop=21),
    "an argument of an operator": lambda: base(buffer=6),
    "an option": lambda: (
        with_options(Dataset.range(20)).shuffle(5).map(lambda n: (n + 1, "x")).apply(marked("a"))
    ),
    "an operator": lambda: (
        Dataset.range(20).shuffle(5).prefetch(1).map(lambda n: (n + 1, "x")).apply(marked("a"))
    ),
    "the spec": lambda: (
        Dataset.range(20).shuffle(5).map(lambda n: (n + 1, "x", "y")).apply(marked("a"))
    ),
}


def test_each_change_before_a_mark_gives_another_fingerprint() -> None:
    found = [identity(build()) for build in (base, *CHANGES.values())]
    assert len(set(found)) == len(found)


def in_function(
    held: tf.data.Dataset, use: Callable[[tf.data.Dataset], tf.data.Dataset]
) -> tf.data.Dataset:
    return Dataset.range(1).flat_map(lambda _: use(held))


def listed(names: list[str]) -> tf.data.Dataset:
    return Dataset.from_tensor_slices(names)


ANY_ORDER: dict[str, tuple[Callable[[list[str]], tf.data.Dataset], bool]] = {
    "files read one by one": (lambda names: listed(names).flat_map(tf.data.TextLineDataset), True),
    "files read together": (lambda names: listed(names).interleave(tf.data.TextLineDataset), True),
    "shuffled batches": (
        lambda names: listed(names).flat_map(tf.data.TextLineDataset).shuffle(9).batch(4),
        True,
    ),
    "a list beside another": (lambda names: listed(names).concatenate(listed(["z"])), True),
    "batches": (lambda names: listed(names).batch(2), False),
    "a part": (lambda names: listed(names).take(2), False),
    "a part, shuffled": (lambda names: listed(names).take(2).shuffle(9).batch(2), False),
    "pairs": (lambda names: Dataset.zip((listed(names), Dataset.range(3))), False),
    "labels beside names": (lambda names: Dataset.from_tensor_slices((names, [1, 2, 3])), False),
    "numbered": (lambda names: listed(names).enumerate(), False),
    "a part in a function": (lambda names: in_function(listed(names), lambda d: d.take(2)), False),
    "a share in a function": (
        lambda names: in_function(listed(names), lambda d: d.shard(2, 0)),
        False,
    ),
    "a dataset as an element": (
        lambda names: Dataset.from_tensors(listed(names)).flat_map(lambda d: d.take(2)),
        False,
    ),
}


@pytest.mark.parametrize(("build", "same"), ANY_ORDER.values(), ids=ANY_ORDER)
def test_a_list_of_files_may_be_in_any_order_where_nothing_depends_on_it(
    build: Callable[[list[str]], tf.data.Dataset], same: bool
) -> None:
    names = ["b", "a", "c"]
    found = {identity(build(list(order)), END) for order in itertools.permutations(names)}
    assert (len(found) == 1) == same
    assert identity(build(["b", "a", "d"]), END) not in found
    assert identity(build(["b", "a", "a"]), END) not in found


def test_marks_and_their_names_do_not_count() -> None:
    def build(*names: str) -> tf.data.Dataset:
        dataset = Dataset.range(20)
        for name in names[:-1]:
            dataset = dataset.apply(marked(name))
        return dataset.map(lambda number: number + 1).apply(marked(names[-1])).prefetch(2)

    plain = identity(build("a"))
    assert plain == identity(build("b", "a")) == identity(build("c", "d", "a"))
    assert plain == identity(build("other"), "other")
    assert len({identity(build(*names), END) for names in (("a",), ("b", "a"))}) == 1


def test_points_come_from_the_end_to_the_sources_with_their_flat_specs() -> None:
    dataset = Dataset.range(8).apply(marked("a")).map(lambda n: (n, tf.fill([2], 0.5)))
    dataset = dataset.apply(marked("b")).batch(4)
    found = cache_points(prepared(dataset).graph)
    assert [point.name for point in found] == [END, "b", "a"]
    assert [len({point.node for point in found}), len({p.fingerprint for p in found})] == [3, 3]
    number, half = tf.TensorSpec([], tf.int64), tf.TensorSpec([2], tf.float32)
    assert found[1].specs == (number, half)
    assert found[2].specs == (number,)
    assert found[0].specs == (
        tf.TensorSpec([None], tf.int64),
        tf.TensorSpec([None, 2], tf.float32),
    )
    assert all(point.refusal == "" for point in found)


def test_the_mark_at_the_end_changes_nothing_in_the_data() -> None:
    for dataset in (Dataset.range(5), Dataset.range(5).map(lambda n: (n, tf.as_string(n)))):
        ready = prepared(dataset)
        assert multiset(run_graph(ready.graph, ready.element_spec)) == multiset(dataset)


def test_ragged_and_sparse_elements_may_be_stored() -> None:
    rows = Dataset.range(3).map(lambda n: tf.RaggedTensor.from_row_lengths(tf.range(3), [1, 2]))
    assert points(rows.apply(marked("a")))["a"].refusal == ""
    assert points(rows)[END].refusal == ""


def draw(number: tf.Tensor) -> tf.Tensor:
    return tf.random.uniform([], maxval=9, dtype=tf.int64) + number


def by_generator() -> tf.data.Dataset:
    generator = tf.random.Generator.from_seed(1)
    return Dataset.range(3).map(lambda n: generator.uniform([]))


def by_keras() -> tf.data.Dataset:
    layer = keras.layers.RandomFlip()
    return Dataset.range(3).map(lambda n: layer(tf.zeros([4, 4, 3]), training=True))


def by_a_keras_generator() -> tf.data.Dataset:
    seeds = keras.random.SeedGenerator(3)
    return Dataset.range(3).map(lambda n: keras.random.uniform([], seed=seeds))


def by_counter() -> tf.data.Dataset:
    numbers = Dataset.zip(Dataset.range(3), Dataset.random(seed=4))
    return numbers.map(lambda n, drawn: n)


def by_seed_of_element() -> tf.data.Dataset:
    return Dataset.range(3).map(lambda n: tf.random.stateless_uniform([], [n, n]))


@tf.function
def drawn_by_a_call(number: tf.Tensor) -> tf.Tensor:
    return draw(number)


IMAGE = tf.zeros([8, 8, 3])
RANDOM: dict[str, tuple[Callable[[], tf.data.Dataset], str]] = {
    "a draw": (lambda: Dataset.range(3).map(draw), r"`map` \(function `draw`\).*RandomUniformInt"),
    "a seeded draw": (
        lambda: Dataset.range(3).map(lambda n: tf.random.normal([], seed=3)),
        "`map`.*RandomStandardNormal",
    ),
    "a truncated draw": (
        lambda: Dataset.range(3).map(lambda n: tf.random.truncated_normal([])),
        "TruncatedNormal",
    ),
    "a gamma draw": (lambda: Dataset.range(3).map(lambda n: tf.random.gamma([], 1.0)), "Gamma"),
    "a categorical draw": (
        lambda: Dataset.range(3).map(lambda n: tf.random.categorical([[0.5, 0.5]], 1)),
        "Multinomial",
    ),
    "a shuffled tensor": (
        lambda: Dataset.range(3).map(lambda n: tf.random.shuffle([n, 2, 3])),
        "RandomShuffle",
    ),
    "a flipped image": (
        lambda: Dataset.range(3).map(lambda n: tf.image.random_flip_left_right(IMAGE)),
        "RandomUniform",
    ),
    "a crop": (
        lambda: Dataset.range(3).map(lambda n: tf.image.random_crop(IMAGE, [4, 4, 3])),
        "RandomUniform",
    ),
    "a distorted box": (
        lambda: Dataset.range(3).map(
            lambda n: tf.image.sample_distorted_bounding_box([8, 8, 3], [[[0.0, 0.0, 1.0, 1.0]]])[0]
        ),
        "SampleDistortedBoundingBox",
    ),
    "a generator": (by_generator, "RngReadAndSkip"),
    "a layer of Keras": (by_keras, "`map`.*Random"),
    "a generator of Keras": (by_a_keras_generator, "`map`.*StatelessRandom"),
    "a stateless draw by the element": (by_seed_of_element, "StatelessRandom"),
    "random numbers as a source": (lambda: Dataset.random(seed=4).take(3), "`random`"),
    "random numbers beside others": (by_counter, "`random`"),
    "datasets sampled at random": (
        lambda: Dataset.sample_from_datasets([Dataset.range(3), Dataset.range(4)], [0.5, 0.5]),
        "`sample_from_datasets`",
    ),
    "a draw in a filter": (
        lambda: Dataset.range(3).filter(lambda n: tf.random.uniform([]) < 0.5),
        "`filter`.*RandomUniform",
    ),
    "a draw in a flat_map": (
        lambda: Dataset.range(3).flat_map(lambda n: Dataset.range(n).map(draw)),
        "`flat_map`.*RandomUniformInt",
    ),
    "a draw in an interleave": (
        lambda: Dataset.range(3).interleave(
            lambda n: Dataset.range(n).map(draw), num_parallel_calls=2
        ),
        "`interleave`.*RandomUniformInt",
    ),
    "a draw in a called function": (
        lambda: Dataset.range(3).map(drawn_by_a_call),
        "`map`.*RandomUniformInt",
    ),
    "a draw in a branch": (
        lambda: Dataset.range(3).map(lambda n: tf.cond(n > 1, lambda: draw(n), lambda: n)),
        "`map`.*RandomUniformInt",
    ),
    "a draw behind a batch": (
        lambda: Dataset.range(9).batch(2).map(draw, name="augment"),
        r"^`map` \(name 'augment'\) draws random numbers \(RandomUniformInt\)",
    ),
    "a draw before other operators": (
        lambda: Dataset.range(3).map(draw, name="augment").map(lambda n: n).filter(lambda n: n > 0),
        r"`map` \(name 'augment'",
    ),
}


@pytest.mark.parametrize(("build", "words"), RANDOM.values(), ids=RANDOM)
def test_random_elements_are_not_stored_unasked(
    build: Callable[[], tf.data.Dataset], words: str
) -> None:
    dataset = build()
    found = points(dataset.apply(marked("refused")).apply(marked("allowed", allow_random=True)))
    for name in ("refused", END):
        assert re.search(words, found[name].refusal)
        assert "allow_random=True" in found[name].refusal
    assert found["allowed"].refusal == ""


def test_a_draw_behind_a_mark_does_not_count_there() -> None:
    found = points(Dataset.range(3).apply(marked("a")).map(draw))
    assert (found["a"].refusal, bool(found[END].refusal)) == ("", True)


def test_a_stateless_draw_with_a_constant_seed_gives_the_same_in_each_epoch() -> None:
    seed = tf.constant([1, 2])
    for given in (seed, [1, 2], (1, 2)):
        dataset = Dataset.range(3).map(lambda n, s=given: tf.random.stateless_uniform([n], s))
        assert points(dataset)[END].refusal == ""


def stateful() -> tf.data.Dataset:
    count = tf.Variable(0, dtype=tf.int64)
    return Dataset.range(3).map(lambda n: count.assign_add(n))


REFUSED: dict[str, tuple[Callable[[], tf.data.Dataset], str]] = {
    "a state": (stateful, "`map`.*keeps a state.*AssignAddVariableOp"),
    "the clock": (
        lambda: Dataset.range(3).map(lambda n: tf.timestamp()),
        "`map`.*reads the clock",
    ),
    "no end": (lambda: Dataset.range(3).repeat().map(lambda n: n).take(9), "`repeat` repeats with"),
    "no end in a function": (
        lambda: Dataset.range(3).flat_map(lambda n: Dataset.range(n).repeat()),
        "`flat_map`.*repeats without",
    ),
    "a taken part of a shuffle": (
        lambda: Dataset.range(9).shuffle(9).take(3),
        "`take` depends on the order of a shuffle",
    ),
    "pairs of a shuffle": (
        lambda: Dataset.zip(Dataset.range(9), Dataset.range(9).shuffle(9)),
        "`zip` depends on the order",
    ),
    "shuffled rows in batches with a map behind": (
        lambda: Dataset.range(9).shuffle(9).batch(2).map(lambda n: n),
        "`batch` depends on the order",
    ),
    "shuffled rows in batches in a function": (
        lambda: Dataset.range(9).flat_map(lambda n: Dataset.range(n).shuffle(9).batch(2)),
        "`flat_map`.*depends on the order",
    ),
    "rows shuffled in a function of a function that batches": (
        lambda: Dataset.range(9).flat_map(
            lambda n: Dataset.range(n).flat_map(lambda m: Dataset.range(m).shuffle(9)).batch(2)
        ),
        "`flat_map`.*depends on the order",
    ),
    "padded batches of a shuffle in a function": (
        lambda: Dataset.range(9).flat_map(
            lambda n: Dataset.range(n).shuffle(9).padded_batch(2, padded_shapes=[])
        ),
        "`flat_map`.*depends on the order",
    ),
    "rows shuffled in a function, then in batches": (
        lambda: (
            Dataset.range(9)
            .flat_map(lambda n: Dataset.range(n).shuffle(9))
            .batch(2)
            .map(lambda n: n)
        ),
        "`batch` depends on the order",
    ),
}


@pytest.mark.parametrize(("build", "words"), REFUSED.values(), ids=REFUSED)
def test_elements_that_should_differ_are_refused_naming_the_operator(
    build: Callable[[], tf.data.Dataset], words: str
) -> None:
    found = points(build().apply(marked("a", allow_random=True)))
    assert re.search(words, found["a"].refusal)


def test_shuffles_are_listed_with_what_is_batched_behind_them() -> None:
    dataset = Dataset.range(9).shuffle(5).apply(marked("a")).batch(2).shuffle(7).apply(marked("b"))
    found = points(dataset)
    assert found["a"].shuffles == (Shuffle(buffer=5, before_batch=False),)
    assert found["a"].refusal == ""
    assert found["b"].shuffles == (
        Shuffle(buffer=7, before_batch=False),
        Shuffle(buffer=5, before_batch=True),
    )
    assert found["b"].refusal


def test_shuffles_in_functions_are_listed() -> None:
    dataset = Dataset.range(9).shuffle(3).interleave(lambda n: Dataset.range(n).shuffle(4))
    (inner, outer) = points(dataset)[END].shuffles
    assert (inner, outer) == (
        Shuffle(buffer=4, before_batch=False),
        Shuffle(buffer=3, before_batch=False),
    )


def test_a_shuffle_that_keeps_its_order_counts_as_none() -> None:
    dataset = Dataset.range(9).shuffle(9, reshuffle_each_iteration=False).take(4).batch(2)
    found = points(dataset)[END]
    assert (found.refusal, found.shuffles, found.rebatch) == ("", (), 0)


def test_batches_of_shuffled_rows_at_the_end_can_be_taken_apart() -> None:
    dataset = Dataset.range(9).shuffle(9).apply(marked("rows")).batch(4)
    found = points(dataset.apply(marked("batches")).prefetch(2))
    for name in ("batches", END):
        assert (found[name].refusal, found[name].rebatch) == ("", 4)
        assert found[name].shuffles == (Shuffle(buffer=9, before_batch=True),)
    assert (found["rows"].refusal, found["rows"].rebatch) == ("", 0)


def test_batches_that_drop_shuffled_rows_can_not_be_taken_apart() -> None:
    dataset = Dataset.range(9).shuffle(9).batch(4, drop_remainder=True)
    found = points(dataset, processing_mode="parallel_epochs")[END]
    assert found.rebatch == 0
    assert "`batch` depends on the order" in found.refusal


def test_batches_without_a_shuffle_before_them_are_stored_as_they_are() -> None:
    found = points(Dataset.range(9).batch(4).map(lambda n: n).shuffle(3))[END]
    assert (found.refusal, found.rebatch) == ("", 0)
