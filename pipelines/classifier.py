"""A small image classifier, trained on a dataset that a Cachew service prepares.

`training_data` is an ordinary `tf.data` pipeline (read, decode, augment, batch) with two lines of
Cachew in it: `distribute` moves all the work before it onto the service's workers, and `mark` names
a place where they may store what they have done so far. It stands behind what is the same in every
epoch and before what is random.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import keras
import tensorflow as tf

import cachew_core as cachew
from cachew_core.cluster import status
from cachew_core.errors import ServiceError
from cachew_core.proto import cachew_pb2
from cachew_pipelines.training_report import EpochReport, TrainingReport

IMAGE_PIXELS = 128
"""Height and width of what the model sees, a random part of a record's picture."""

SHUFFLE_RECORDS = 256
"""Shuffle buffer: at about 20 kB a JPEG, 5 MB on each worker."""

METRICS_DEADLINE_S = 10.0
"""How long the service may take to hear of the last batches: clients report once a second."""

_RECORD = {
    "image": tf.io.FixedLenFeature([], tf.string),
    "label": tf.io.FixedLenFeature([], tf.int64),
}


def training_data(
    files: Sequence[str], *, service: str | None, job_name: str, batch_size: int
) -> tf.data.Dataset:
    """The input pipeline: batches of augmented pictures and their labels.

    Args:
        files: TFRecord files that the service's workers can read under the same paths.
        service: endpoint or name of the service; None runs the pipeline in this process.
        job_name: the job's name at the service.
        batch_size: records in a batch.

    Returns:
        Elements are (float32 pictures of [batch, 128, 128, 3] between 0 and 1, int64 labels of
        [batch]).
    """
    return (
        tf.data.Dataset.from_tensor_slices(list(files))
        .interleave(tf.data.TFRecordDataset, num_parallel_calls=tf.data.AUTOTUNE)
        .shuffle(SHUFFLE_RECORDS)
        .map(_decode, num_parallel_calls=tf.data.AUTOTUNE)
        .apply(cachew.mark("decoded"))
        .map(_augment, num_parallel_calls=tf.data.AUTOTUNE)
        .batch(batch_size)
        .apply(cachew.distribute(service=service, job_name=job_name))
    )


def _decode(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    example = tf.io.parse_single_example(record, _RECORD)
    return tf.io.decode_jpeg(example["image"], channels=3), example["label"]


def _augment(picture: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    picture = tf.image.random_crop(picture, [IMAGE_PIXELS, IMAGE_PIXELS, 3])
    picture = tf.image.random_flip_left_right(picture)
    picture = tf.image.convert_image_dtype(picture, tf.float32)
    picture = tf.image.random_brightness(picture, max_delta=0.1)
    return tf.clip_by_value(picture, 0.0, 1.0), label


def classifier(labels: int) -> keras.Model:
    """A small convolutional network, compiled, for pictures of [128, 128, 3]."""
    model = keras.Sequential(
        [
            keras.Input((IMAGE_PIXELS, IMAGE_PIXELS, 3)),
            keras.layers.Conv2D(16, 5, strides=4, activation="relu"),
            keras.layers.Conv2D(32, 3, strides=2, activation="relu"),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(32, activation="relu"),
            keras.layers.Dense(labels),
        ]
    )
    model.compile(
        optimizer=keras.optimizers.Adam(0.01),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


def train(
    files: Sequence[str],
    *,
    labels: Sequence[str],
    service: str,
    epochs: int,
    batch_size: int,
    job_name: str = "photographs",
) -> TrainingReport:
    """Trains the classifier on what the service prepares, and asks the service how each epoch went.

    Args:
        files: TFRecord files that the service's workers can read under the same paths.
        labels: the labels' names, in the order of their numbers.
        service: endpoint or name of the service.
        epochs: passes over the data.
        batch_size: records in a batch.
        job_name: the job's name at the service.

    Raises:
        CachewError: the pipeline can't be served, or the service is not there, or it did not
            report its epochs.
    """
    dataset = training_data(files, service=service, job_name=job_name, batch_size=batch_size)
    batches = _BatchesPerEpoch()
    model = classifier(len(labels))
    history = model.fit(
        dataset, epochs=epochs, callbacks=[batches], shuffle=False, verbose=2
    ).history
    # Asked while the dataset is still there: its client leaves with it, and the job ends.
    name, job = _job_after(batches.seen, service=service, job_name=job_name)
    return TrainingReport(
        service=name,
        job_name=job.job_name,
        fingerprint=job.fingerprint,
        labels=list(labels),
        epochs=[
            EpochReport(
                epoch=number,
                mode=seen.mode,
                elements=seen.elements,
                seconds=seen.seconds,
                batch_time_ms=seen.batch_time_ms,
                wait_share=seen.wait_fraction,
                workers=seen.workers,
                loss=loss,
                accuracy=accuracy,
            )
            for number, (seen, loss, accuracy) in enumerate(
                zip(_passes(job), history["loss"], history["accuracy"], strict=True), start=1
            )
        ],
    )


class _BatchesPerEpoch(keras.callbacks.Callback):
    """Counts what the model was trained on."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[int] = []

    def on_epoch_begin(self, epoch: int, logs: object = None) -> None:
        self.seen.append(0)

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        self.seen[-1] += 1


def _job_after(
    batches: Sequence[int], *, service: str, job_name: str
) -> tuple[str, cachew_pb2.JobStatus]:
    """The service's name, and what it says of the job once it has heard of all batches."""
    deadline = time.monotonic() + METRICS_DEADLINE_S
    while True:
        answer = status(service)
        jobs = [job for job in answer.jobs if job.job_name == job_name]
        counted = [epoch.elements for epoch in _passes(jobs[-1])] if jobs else []
        if counted == list(batches):
            return answer.name, jobs[-1]
        if time.monotonic() > deadline:
            raise ServiceError(
                f"service {answer.name!r} has counted {counted} elements in the epochs of job "
                f"{job_name!r} {METRICS_DEADLINE_S:g} s after their end, not {list(batches)}: "
                "its dispatcher's log says more"
            )
        time.sleep(0.1)


def _passes(job: cachew_pb2.JobStatus) -> list[cachew_pb2.EpochStatus]:
    return [epoch for epoch in job.epochs if epoch.state == "finished"]
