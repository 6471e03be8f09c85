"""An Airflow DAG that trains a classifier every week on a Cachew service of its own.

Copy this file into the DAGs folder, or import `dag` from it in a file there. The pictures are made
in the input pipeline, so it runs without any data: each shows a bright square, and the label says
in which quarter.

Each run starts a service, trains through it in a process of its own, and takes the service down,
whether the training succeeded or failed. Airflow itself never imports TensorFlow.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from airflow.providers.common.compat.sdk import DAG, Param

from cachew_operators import (
    CachewServiceOperator,
    CachewTeardownOperator,
    CachewTrainingOperator,
)

if TYPE_CHECKING:
    import tensorflow as tf

QUARTERS = 4
PIXELS = 32


def training_data(pictures: int) -> tf.data.Dataset:
    """The input pipeline; all of it before `distribute` runs on the service's workers.

    Args:
        pictures: how many in one epoch.

    Returns:
        Elements are (float32 pictures of [batch, 32, 32, 1], int64 labels of [batch]).
    """
    import tensorflow as tf

    import cachew_core as cachew

    return (
        tf.data.Dataset.range(pictures)
        .map(_picture, num_parallel_calls=tf.data.AUTOTUNE)
        .apply(cachew.mark(name="source_cache"))
        .shuffle(256)
        .batch(32)
        .apply(cachew.distribute(job_name="squares"))
        .prefetch(tf.data.AUTOTUNE)
    )


def _picture(number: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    import tensorflow as tf

    label = number % QUARTERS
    noise = tf.random.stateless_uniform([PIXELS, PIXELS], seed=[7, number])
    half = tf.one_hot([label // 2, label % 2], 2)
    square = tf.repeat(half[0], PIXELS // 2)[:, None] * tf.repeat(half[1], PIXELS // 2)[None, :]
    return ((noise + square) / 2)[..., None], label


def train(*, pictures: int, epochs: int, minimum_accuracy: float) -> dict[str, float]:
    """Trains the classifier; the service is found in the environment variable `CACHEW_SERVICE`.

    Args:
        pictures: how many in one epoch.
        epochs: passes over the data.
        minimum_accuracy: what the last epoch must reach, from 0 to 1.

    Returns:
        The last epoch's loss and accuracy. Airflow keeps it as the task's XCom.

    Raises:
        RuntimeError: the model is not good enough.
    """
    import keras

    model = keras.Sequential(
        [
            keras.Input((PIXELS, PIXELS, 1)),
            keras.layers.AveragePooling2D(8),
            keras.layers.Flatten(),
            keras.layers.Dense(QUARTERS),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=keras.optimizers.Adam(0.05), loss=loss, metrics=["accuracy"])
    history = model.fit(training_data(pictures), epochs=epochs, verbose=2).history
    reached = {name: float(history[name][-1]) for name in ("loss", "accuracy")}
    if reached["accuracy"] < minimum_accuracy:
        raise RuntimeError(f"the model is not good enough: {reached}, wanted {minimum_accuracy}")
    return reached


with DAG(
    "cachew_training",
    schedule="@weekly",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    params={
        "workers": Param(2, type="integer", minimum=1),
        "pictures": Param(1024, type="integer", minimum=1),
        "epochs": Param(3, type="integer", minimum=1),
        "minimum_accuracy": Param(0.9, type="number"),
    },
    # So that the parameters reach `train` as numbers.
    render_template_as_native_obj=True,
    tags=["cachew"],
    doc_md=__doc__,
) as dag:
    service = CachewServiceOperator(task_id="service", workers="{{ params.workers }}")
    training = CachewTrainingOperator(
        task_id="training",
        python_callable=train,
        op_kwargs={
            "pictures": "{{ params.pictures }}",
            "epochs": "{{ params.epochs }}",
            "minimum_accuracy": "{{ params.minimum_accuracy }}",
        },
    )
    teardown = CachewTeardownOperator(task_id="teardown")
    service.as_setup() >> training >> teardown.as_teardown(setups=service)
