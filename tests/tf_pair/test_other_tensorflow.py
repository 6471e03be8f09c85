"""Trainer and service run different TensorFlow versions, in both directions.

Each environment runs these as the trainer, with the service's processes in the other one.
"""

import os
import subprocess
from collections.abc import Iterator

import pytest
import tensorflow as tf

import cachew_core as cachew

PRINT_VERSION = "import importlib.metadata; print(importlib.metadata.version('tensorflow-cpu'))"


@pytest.fixture(scope="module")
def peer() -> str:
    """An interpreter with the other TensorFlow."""
    python = os.environ.get("CACHEW_TEST_PEER_PYTHON")
    if python is None:
        if "CI" in os.environ:
            pytest.fail("CACHEW_TEST_PEER_PYTHON is not set: run the tests by `make test`")
        pytest.skip("CACHEW_TEST_PEER_PYTHON names no interpreter with another TensorFlow")
    version = subprocess.check_output([python, "-c", PRINT_VERSION], text=True, timeout=60)
    assert version.split(".")[:2] != tf.__version__.split(".")[:2], "not a pair"
    return python


@pytest.fixture(scope="module")
def service(peer: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The name of a service with two workers whose processes all run in the peer."""
    home = tmp_path_factory.mktemp("cachew")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CACHEW_HOME", str(home))
        command = [peer, "-m", "cachew_core.cli"]
        subprocess.run(
            [*command, "up", "pair", "--workers", "2"], cwd=home, check=True, timeout=120
        )
        try:
            yield "pair"
        finally:
            subprocess.run([*command, "down", "pair"], cwd=home, check=True, timeout=60)


def test_every_epoch_has_each_element_once(service: str) -> None:
    dataset = tf.data.Dataset.range(500).map(lambda number: number * 3)
    dataset = dataset.apply(cachew.distribute(service=service))
    for _ in range(2):
        assert sorted(int(number) for number in dataset) == list(range(0, 1500, 3))


def test_batches_are_those_of_a_local_run(service: str) -> None:
    dataset = tf.data.Dataset.range(100).batch(32).map(lambda batch: tf.cast(batch, tf.float32))
    dataset = dataset.apply(cachew.distribute(service=service))
    assert sorted(len(batch) for batch in dataset) == [4, 32, 32, 32]


@pytest.mark.parametrize("compression", [None, "AUTO"])
def test_strings_pictures_and_ragged_rows_come_through(
    service: str, compression: str | None
) -> None:
    def picture(number: tf.Tensor) -> dict[str, tf.Tensor]:
        pixels = tf.cast(tf.fill([8, 8, 3], number % 256), tf.uint8)
        decoded = tf.io.decode_png(tf.io.encode_png(pixels))
        return {
            "name": tf.strings.as_string(number),
            "pixels": decoded,
            "ragged": tf.RaggedTensor.from_row_lengths([number, number, number], [1, 0, 2]),
        }

    local = tf.data.Dataset.range(64).map(picture)
    served = local.apply(cachew.distribute(service=service, compression=compression))
    assert sorted(map(_comparable, served)) == sorted(map(_comparable, local))


def _comparable(element: dict[str, tf.Tensor]) -> tuple[bytes, bytes, str]:
    return (
        element["name"].numpy(),
        element["pixels"].numpy().tobytes(),
        str(element["ragged"].to_list()),
    )


def test_a_keras_model_trains_through_the_service(service: str) -> None:
    def example(number: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        feature = tf.cast(number, tf.float32)[None] / 64
        return feature, 2 * feature

    dataset = tf.data.Dataset.range(64).map(example).batch(8)
    dataset = dataset.apply(cachew.distribute(service=service))
    model = tf.keras.Sequential([tf.keras.Input((1,)), tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    history = model.fit(dataset, epochs=2, shuffle=False, verbose=0)
    assert len(history.history["loss"]) == 2
