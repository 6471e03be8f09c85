"""The pipelines of the autocaching study, and the records that they read."""

from __future__ import annotations

import os
from pathlib import Path

import tensorflow as tf

import cachew_core as cachew
from benchmarks.studies import BATCH_RECORDS, EXPANSION, FILES, MARK, RECORD_BYTES, Study

_READERS = 4


def write_records(folder: Path, study: Study, batches: int) -> None:
    """Writes what gives so many batches of a study.

    Args:
        folder: is made.
        study: whose records they are.
        batches: a multiple of `FILES`.
    """
    folder.mkdir()
    for number in range(FILES):
        with tf.io.TFRecordWriter(str(folder / f"part-{number}.tfrecord")) as writer:
            for _ in range(batches * BATCH_RECORDS // FILES):
                writer.write(os.urandom(study.record_bytes))


def pipeline(study: Study, folder: Path) -> tf.data.Dataset:
    """The study's batches of byte strings, from the records in a folder."""
    files = sorted(str(path) for path in folder.iterdir())
    records = tf.data.Dataset.from_tensor_slices(files).interleave(
        tf.data.TFRecordDataset, cycle_length=_READERS, num_parallel_calls=_READERS
    )
    if study.expands:
        records = records.map(_expanded)
    records = records.prefetch(tf.data.AUTOTUNE).apply(cachew.mark(MARK))
    if not study.expands:
        records = records.map(_inflated)
    return records.batch(BATCH_RECORDS).apply(cachew.sleep(1000 * study.sleep_ms))


def _inflated(record: tf.Tensor) -> tf.Tensor:
    half = tf.strings.substr(record, 0, RECORD_BYTES // 2)
    return tf.strings.join([record, record, half])


def _expanded(record: tf.Tensor) -> tf.Tensor:
    return tf.strings.join([record] * EXPANSION)
