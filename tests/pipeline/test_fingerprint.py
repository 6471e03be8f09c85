"""A pipeline has one fingerprint in every process, and another one when it changes."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import tensorflow as tf
from simulated_workers import prepared

Dataset = tf.data.Dataset

PROGRAM = """
import json, os, sys
number = int(sys.argv[1])
import tensorflow as tf
from simulated_workers import prepared
for unused in range(number % 5):
    tf.data.Dataset.range(unused + 1).map(lambda value: value + 3).batch(2)
tables = [f"word{i}" for i in range(50)]
table = tf.lookup.StaticHashTable(
    tf.lookup.KeyValueTensorInitializer(tables, tf.range(50, dtype=tf.int64)), -1
)
offset = tf.Variable(5, dtype=tf.int64)
generator = tf.random.Generator.from_seed(7)

def row(value):
    keys = {"b", "a", "c"}
    text = tf.strings.join(["word", tf.strings.as_string(value)])
    noise = generator.uniform([]) + tf.random.uniform([], seed=4)
    return {key: table.lookup(text) + offset for key in keys}, noise

def build():
    dataset = tf.data.Dataset.range(50).shuffle(10, seed=3)
    dataset = dataset.map(row, num_parallel_calls=2).take(-1, name="cachew_mark__rows")
    return dataset.interleave(lambda row, noise: tf.data.Dataset.from_tensors(row)).batch(8)

found = {prepared(build()).fingerprint for _ in range(2)}
assert len(found) == 1
print(json.dumps(found.pop()))
"""


PROCESSES = 20
AT_A_TIME = 4
"""A process takes half a gigabyte, and seconds of the machine to import TensorFlow."""


def found_elsewhere(number: int) -> str:
    """The fingerprint that a process of its own finds."""
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(number)],
        env=os.environ
        | {
            "PYTHONHASHSEED": str(number * 1000 + 1),
            "PYTHONPATH": str(Path(__file__).parents[1] / "support"),
            "TF_CPP_MIN_LOG_LEVEL": "3",
        },
        stdout=subprocess.PIPE,
        timeout=600,
        check=True,
    )
    return str(json.loads(found.stdout))


@pytest.mark.timeout(900)
def test_fresh_processes_with_other_hash_seeds_find_the_same_fingerprint() -> None:
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        (fingerprint,) = set(pool.map(found_elsewhere, range(PROCESSES)))
    assert len(fingerprint) == 64
    assert set(fingerprint) <= set("0123456789abcdef")


def base(*, add: int = 1, seed: int = 3, size: int = 4, mark: str = "a") -> tf.data.Dataset:
    dataset = Dataset.range(20).shuffle(5, seed=seed).map(lambda number: number + add)
    return dataset.take(-1, name=f"cachew_mark__{mark}").batch(size)


def with_options(dataset: tf.data.Dataset) -> tf.data.Dataset:
    options = tf.data.Options()
    options.deterministic = False
    return dataset.with_options(options)


def test_the_same_pipeline_built_again_has_the_same_fingerprint() -> None:
    assert prepared(base()).fingerprint == prepared(base()).fingerprint


CHANGES: dict[str, Callable[[], tf.data.Dataset]] = {
    "a constant in a function": lambda: base(add=2),
    "an argument of an operator": lambda: base(size=5),
    "a seed": lambda: base(seed=4),
    "a mark's name": lambda: base(mark="b"),
    "an option": lambda: with_options(base()),
    "an operator": lambda: base().map(lambda batch: batch),
    "the source": lambda: Dataset.range(21).shuffle(5, seed=3).batch(4),
    "the element's structure": lambda: base().map(lambda batch: {"batch": batch}),
    "a name in the element": lambda: base().map(lambda batch: {"other": batch}),
}


def test_each_change_gives_another_fingerprint() -> None:
    found = [prepared(build()).fingerprint for build in (base, *CHANGES.values())]
    assert len(set(found)) == len(found)


def test_a_variables_value_and_a_tables_content_count() -> None:
    offset = tf.Variable(1, dtype=tf.int64)
    dataset = Dataset.range(3).map(lambda number: number + offset)
    before = prepared(dataset).fingerprint
    offset.assign(2)
    assert prepared(dataset).fingerprint != before

    def looked_up(value: int) -> tf.data.Dataset:
        pairs = tf.lookup.KeyValueTensorInitializer([0, 1], [5, value])
        table = tf.lookup.StaticHashTable(pairs, -1)
        return Dataset.range(2, output_type=tf.int32).map(table.lookup)

    assert prepared(looked_up(6)).fingerprint != prepared(looked_up(7)).fingerprint


def test_how_often_the_pipeline_is_read_does_not_count() -> None:
    assert prepared(base().repeat(3)).fingerprint == prepared(base().repeat()).fingerprint


def test_the_order_of_reading_and_changing_a_variable_counts() -> None:
    state = tf.Variable(0, dtype=tf.int64)

    def before(number: tf.Tensor) -> tf.Tensor:
        value = state.read_value()
        state.assign(number)
        return value

    def after(number: tf.Tensor) -> tf.Tensor:
        state.assign(number)
        return state.read_value()

    found = [prepared(Dataset.range(3).map(function)).fingerprint for function in (before, after)]
    assert found[0] != found[1]
