"""Runs TensorFlow's own `SaveDatasetV2` in every way that it can end: stock_writer.py FOLDER."""

import os
import resource
import signal
import sys
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf

ROOT = Path(sys.argv[1])
LIMIT_BYTES = 1 << 20


@tf.function
def shard(*_: tf.Tensor) -> tf.Tensor:
    return tf.random.uniform([], 0, 3, tf.int64)


def written(dataset: tf.data.Dataset, name: str) -> tf.data.Dataset:
    flat = tf.nest.flatten(dataset.element_spec)
    variant = tf.raw_ops.SaveDatasetV2(
        input_dataset=tf.data.experimental.to_variant(dataset),
        path=str(ROOT / name),
        shard_func_other_args=[],
        shard_func=shard.get_concrete_function(*flat),
        output_types=[spec.dtype for spec in flat],
        output_shapes=[spec.shape for spec in flat],
        compression="",
    )
    return tf.data.experimental.from_variant(variant, dataset.element_spec)


def drain(dataset: tf.data.Dataset) -> None:
    for _ in dataset:
        pass


def fails(dataset: tf.data.Dataset) -> None:
    try:
        drain(dataset)
    except tf.errors.OpError:
        return
    raise AssertionError("the epoch did not fail")


numbers = tf.data.Dataset.range(100)
pairs = numbers.map(lambda i: {"i": i, "text": tf.strings.as_string(i)})

tf.data.Dataset.range(7).save(str(ROOT / "saved"))
drain(written(pairs, "drained"))
drain(written(numbers.take(0), "empty"))
drain(written(numbers, "left").take(3))
drain(written(numbers, "all-taken").take(100))
drain(written(numbers, "repeated").repeat(2))
fails(written(numbers.map(lambda i: tf.debugging.check_numerics(1 / (50 - i), "")), "failed"))

begun = iter(written(numbers, "begun"))
del begun

# As on a full disk, a file can't grow any more.
resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT_BYTES, LIMIT_BYTES))
fails(written(numbers.map(lambda _: tf.zeros([100_000], tf.uint8)), "full"))

running = iter(written(numbers.repeat(), "killed"))
for _ in range(500):
    next(running)
os.kill(os.getpid(), signal.SIGKILL)
