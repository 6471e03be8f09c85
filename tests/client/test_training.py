"""What trainers do with the dataset: loops, Keras, checkpoints, strategies, on a real service."""

import gc
import json
import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from typing import Any

import keras
import pytest
import tensorflow as tf
from lasting_ports import lasting_port
from real_service import RealService, eventually
from scripted_dispatcher import client_threads

import cachew_core as cachew
from cachew_core.errors import CheckpointError


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealService]:
    with RealService(tmp_path_factory.mktemp("service")) as service:
        service.add_agent(2)
        yield service
    gc.collect()
    eventually(lambda: not client_threads())


def examples(count: int = 64) -> tf.data.Dataset:
    """Batches of 8 examples that a linear model can learn."""
    x = tf.data.Dataset.range(count).map(lambda i: tf.cast(i, tf.float32)[None] / 64)
    return x.map(lambda x: (x, 2 * x)).batch(8)


def model() -> keras.Model:
    linear = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])
    linear.compile("sgd", "mse")
    return linear


def states(service: RealService, job: str) -> list[str]:
    return [epoch.state for epoch in service.epochs(job)]


def test_the_example_of_the_original_runs_two_epochs(running: RealService) -> None:
    dataset = (
        tf.data.Dataset.range(100)
        .apply(cachew.mark("source_cache"))
        .map(lambda x: x + 1)
        .apply(cachew.sleep(1000))
        .apply(cachew.distribute(running.endpoint, "readme", metrics_interval_s=0.1))
    )
    for _ in range(2):
        elements = []
        for element in dataset:
            elements.append(int(element))
            time.sleep(0.002)
        assert sorted(elements) == list(range(1, 101))
    eventually(lambda: [e.elements for e in running.epochs("readme")] == [100, 100])
    assert all(0 < epoch.wait_fraction < 1 for epoch in running.epochs("readme"))
    assert all(epoch.batch_time_ms >= 2 for epoch in running.epochs("readme"))


def test_keras_knows_the_steps_and_finishes_every_epoch(running: RealService) -> None:
    dataset = examples().apply(cachew.distribute(running.endpoint, metrics_interval_s=0.1))
    assert len(dataset) == 8
    job = running.status().jobs[-1].job_name
    history = model().fit(dataset, epochs=3, verbose=0, shuffle=False)
    assert len(history.history["loss"]) == 3
    eventually(lambda: states(running, job) == ["finished"] * 3)
    eventually(lambda: [epoch.elements for epoch in running.epochs(job)] == [8, 8, 8])


def test_keras_finishes_every_epoch_of_unknown_length(running: RealService) -> None:
    pipeline = examples().unbatch().filter(lambda x, y: x[0] >= 0).batch(8)
    dataset = pipeline.apply(cachew.distribute(running.endpoint, "unknown"))
    assert int(dataset.cardinality()) == tf.data.UNKNOWN_CARDINALITY
    slow = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs=None: time.sleep(0.05)
    )
    with pytest.warns(UserWarning, match="ran out of data"):
        model().fit(dataset, epochs=3, verbose=0, shuffle=False, callbacks=[slow])
    eventually(lambda: states(running, "unknown") == ["finished"] * 3)


@pytest.mark.parametrize(
    ("arguments", "pipeline", "length"),
    [
        ({}, examples(60), 8),
        ({}, tf.data.Dataset.range(10).repeat(3), 30),
        ({}, tf.data.Dataset.range(10).repeat(), tf.data.INFINITE_CARDINALITY),
        ({}, tf.data.Dataset.range(0), 0),
        ({}, tf.data.Dataset.range(9).filter(lambda i: i > 3), tf.data.UNKNOWN_CARDINALITY),
        ({"job_name": "shared"}, tf.data.Dataset.range(10), tf.data.UNKNOWN_CARDINALITY),
        (
            {"processing_mode": "parallel_epochs"},
            tf.data.Dataset.range(11),
            tf.data.UNKNOWN_CARDINALITY,
        ),
    ],
)
def test_a_length_is_told_only_where_it_is_certain(
    running: RealService, arguments: dict[str, Any], pipeline: tf.data.Dataset, length: int
) -> None:
    dataset = pipeline.apply(cachew.distribute(running.endpoint, **arguments))
    assert int(dataset.cardinality()) == length
    if length >= 0:
        assert sum(1 for _ in dataset) == length


def test_an_endless_repeat_opens_one_epoch_after_the_other(running: RealService) -> None:
    dataset = (
        tf.data.Dataset.range(5).repeat().apply(cachew.distribute(running.endpoint, "endless"))
    )
    taken = [int(i) for i in dataset.take(15)]
    assert [sorted(taken[i : i + 5]) for i in (0, 5, 10)] == [[0, 1, 2, 3, 4]] * 3
    assert len(running.epochs("endless")) >= 3


@pytest.mark.parametrize("prefetch", [None, 0, 3])
def test_every_way_of_reading_gives_the_elements(
    running: RealService, prefetch: int | None
) -> None:
    dataset = tf.data.Dataset.range(40).apply(
        cachew.distribute(running.endpoint, prefetch=prefetch, max_outstanding_requests=4)
    )

    @tf.function
    def total(numbers: tf.data.Dataset) -> tf.Tensor:
        result = tf.constant(0, tf.int64)
        for number in numbers:
            result += number
        return result

    assert sorted(dataset.as_numpy_iterator()) == list(range(40))
    assert sorted(dataset.prefetch(2).as_numpy_iterator()) == list(range(40))
    assert sorted(dataset.repeat(2).as_numpy_iterator()) == sorted([*range(40), *range(40)])
    assert int(total(dataset)) == sum(range(40))


def test_a_checkpoint_of_an_iterator_says_what_to_save_instead(
    running: RealService, tmp_path_factory: pytest.TempPathFactory
) -> None:
    iterator = iter(examples().apply(cachew.distribute(running.endpoint)))
    next(iterator)
    with pytest.raises(CheckpointError, match="number of finished epochs"):
        tf.train.Checkpoint(i=iterator).save(str(tmp_path_factory.mktemp("ck") / "ck"))


def test_a_private_job_ends_with_its_dataset(running: RealService) -> None:
    dataset = examples().apply(cachew.distribute(running.endpoint))
    job = running.status().jobs[-1].job_name
    next(iter(dataset))
    assert running.job(job).clients == 1
    del dataset
    gc.collect()
    eventually(lambda: running.job(job).clients == 0)


def test_two_threads_read_one_dataset_as_two_epochs(running: RealService) -> None:
    dataset = tf.data.Dataset.range(30).apply(cachew.distribute(running.endpoint, "threads"))
    taken: list[list[int]] = [[], []]
    threads = [
        threading.Thread(target=lambda into=into: into.extend(int(i) for i in dataset))
        for into in taken
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [sorted(numbers) for numbers in taken] == [list(range(30))] * 2


STRATEGIES = """
    import keras
    import tensorflow as tf
    import cachew_core as cachew

    cpu = tf.config.list_physical_devices("CPU")[0]
    two = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(cpu, two)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])

    def dataset(**arguments):
        x = tf.data.Dataset.range(64).map(lambda i: tf.cast(i, tf.float32)[None])
        return x.map(lambda x: (x, x)).batch(8).apply(cachew.distribute({endpoint!r}, **arguments))

    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        made_in_scope = dataset()
    history = model.fit(made_in_scope, epochs=2, verbose=0, shuffle=False)
    assert len(history.history["loss"]) == 2

    def rows(distributed):
        seen = []
        for x, _ in distributed:
            for part in strategy.experimental_local_results(x):
                seen += part.numpy()[:, 0].astype(int).tolist()
        return sorted(seen)

    assert rows(strategy.experimental_distribute_dataset(dataset())) == list(range(64))
    per_replica = strategy.distribute_datasets_from_function(lambda context: dataset())
    assert rows(per_replica) == list(range(64))
    print("all right")
"""


def test_a_mirrored_strategy_gets_every_example_once_in_every_way(running: RealService) -> None:
    script = textwrap.dedent(STRATEGIES).format(endpoint=running.endpoint)
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=240, check=False
    )
    assert result.stdout.endswith("all right\n"), result.stderr[-3000:]


WORKER_OF_TWO = """
    import faulthandler
    import tensorflow as tf
    import cachew_core as cachew

    # One that hangs says where.
    faulthandler.dump_traceback_later(180, exit=True)
    strategy = tf.distribute.MultiWorkerMirroredStrategy()

    def dataset(context):
        x = tf.data.Dataset.range(64).map(lambda i: tf.cast(i, tf.float32)[None])
        return x.batch(8).repeat().apply(cachew.distribute({endpoint!r}, "two trainers"))

    @tf.function
    def step(x):
        def replica(x):
            total = tf.reduce_sum(x)
            return tf.distribute.get_replica_context().all_reduce("sum", total)
        return strategy.run(replica, args=(x,))

    iterator = iter(strategy.distribute_datasets_from_function(dataset))
    print([float(step(next(iterator))) for _ in range(8)])
"""


def test_two_trainers_in_step_share_a_job_and_exit_in_the_middle_of_it(
    running: RealService,
) -> None:
    script = textwrap.dedent(WORKER_OF_TWO).format(endpoint=running.endpoint)
    cluster = {"worker": [f"127.0.0.1:{lasting_port()}" for _ in range(2)]}
    trainers = [
        subprocess.Popen(
            [sys.executable, "-c", script],
            env={**os.environ, "TF_CONFIG": json.dumps({"cluster": cluster, "task": task})},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for task in ({"type": "worker", "index": 0}, {"type": "worker", "index": 1})
    ]
    try:
        outputs = [trainer.communicate(timeout=240) for trainer in trainers]
    finally:
        for trainer in trainers:
            trainer.kill()
            trainer.wait()
    assert [trainer.returncode for trainer in trainers] == [0, 0], "\n".join(
        f"{out}\n{error[-3000:]}" for out, error in outputs
    )
    assert outputs[0][0] == outputs[1][0]
