"""Epochs that write a cache and epochs that read it, on a real service with real files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import tensorflow as tf
from cached_jobs import Calls, await_stored, modes, multiset
from real_service import RealService, eventually

import cachew_core as cachew


@pytest.mark.parametrize(
    ("policy", "put", "get"), [("full", "PUT", "GET"), ("source", "PUT_SOURCE", "GET_SOURCE")]
)
def test_the_second_epoch_reads_what_the_first_one_wrote(
    caching: RealService, records: list[str], tmp_path: Path, policy: str, put: str, get: str
) -> None:
    calls = Calls(tmp_path / "calls")
    pipeline = calls.counted(tf.data.TFRecordDataset(records)).apply(cachew.mark("raw"))
    pipeline = pipeline.map(lambda record: (record, tf.strings.length(record)))
    name = f"second-{policy}"
    dataset = pipeline.apply(
        cachew.distribute(caching.endpoint, job_name=name, cache_policy=policy)
    )
    local = multiset(pipeline)
    calls.taken()
    assert multiset(dataset) == local
    await_stored(caching, name)
    assert calls.taken() == 100
    assert [multiset(dataset) for _ in range(2)] == [local] * 2
    assert modes(caching, name) == [put, get, get]
    assert calls.taken() == 0


def test_epochs_that_follow_at_once_wait_for_the_commit(
    caching: RealService, records: list[str]
) -> None:
    dataset = tf.data.TFRecordDataset(records).apply(
        cachew.distribute(caching.endpoint, job_name="at-once", cache_policy="full")
    )
    for _ in range(3):
        assert len(list(dataset)) == 100
    assert modes(caching, "at-once") == ["PUT", "GET", "GET"]


def test_each_pass_of_a_repeat_is_an_epoch_that_reads_what_the_one_before_it_wrote(
    caching: RealService, records: list[str]
) -> None:
    dataset = (
        tf.data.TFRecordDataset(records)
        .repeat()
        .apply(cachew.distribute(caching.endpoint, job_name="repeated", cache_policy="full"))
    )
    assert len(list(dataset.take(300))) == 300
    assert modes(caching, "repeated")[:3] == ["PUT", "GET", "GET"]


def test_another_job_with_the_same_pipeline_reads_from_its_first_epoch(
    caching: RealService, records: list[str], tmp_path: Path
) -> None:
    calls = Calls(tmp_path / "calls")

    def dataset(name: str) -> tf.data.Dataset:
        pipeline = calls.counted(tf.data.TFRecordDataset(records))
        return pipeline.apply(
            cachew.distribute(caching.endpoint, job_name=name, cache_policy="full")
        )

    first = multiset(dataset("writer"))
    await_stored(caching, "writer")
    assert calls.taken() == 100
    second = multiset(dataset("reader"))
    assert first == second
    assert modes(caching, "reader") == ["GET"]
    assert calls.taken() == 0


def test_a_trainer_that_joins_a_job_reads_and_leaves_the_others_reading(
    caching: RealService, records: list[str]
) -> None:
    def dataset() -> tf.data.Dataset:
        return tf.data.TFRecordDataset(records).apply(
            cachew.distribute(caching.endpoint, job_name="rejoined", cache_policy="full")
        )

    first = dataset()
    assert len(list(first)) == 100
    await_stored(caching, "rejoined")
    # Its graph is the same, with other names of nodes.
    second = dataset()
    for reader in (second, first, second):
        assert len(list(reader)) == 100
    assert modes(caching, "rejoined") == ["PUT", "GET", "GET", "GET"]


def test_an_entry_that_was_written_anew_is_read_from_its_new_files(
    caching: RealService, records: list[str]
) -> None:
    def dataset(name: str) -> tf.data.Dataset:
        return tf.data.TFRecordDataset(records).apply(
            cachew.distribute(caching.endpoint, job_name=name, cache_policy="full")
        )

    writer, reader = dataset("anew-writer"), dataset("anew-reader")
    assert len(list(writer)) == 100
    await_stored(caching, "anew-writer")
    assert len(list(reader)) == 100
    entries = (caching.folder / "cache" / "entries").iterdir()
    newest = max(entries, key=lambda folder: folder.stat().st_mtime_ns)
    next(newest.rglob("*.snapshot")).unlink()
    assert len(list(writer)) == 100
    await_stored(caching, "anew-writer", epoch=2)
    assert len(list(reader)) == 100
    assert modes(caching, "anew-writer") == ["PUT", "PUT"]
    assert modes(caching, "anew-reader") == ["GET", "GET"]


def test_changed_source_files_are_read_again(caching: RealService, records: list[str]) -> None:
    pipeline = tf.data.TFRecordDataset(records)
    dataset = pipeline.apply(
        cachew.distribute(caching.endpoint, job_name="changing", cache_policy="full")
    )
    multiset(dataset)
    await_stored(caching, "changing")
    with tf.io.TFRecordWriter(records[0]) as writer:
        writer.write("new")
    assert multiset(dataset) == multiset(pipeline)
    assert modes(caching, "changing") == ["PUT", "PUT"]


def test_an_epoch_that_was_left_half_way_stores_nothing(
    caching: RealService, records: list[str]
) -> None:
    dataset = (
        tf.data.TFRecordDataset(records)
        .repeat(50)
        .apply(
            cachew.distribute(caching.endpoint, job_name="left", cache_policy="full", prefetch=0)
        )
    )
    for _ in dataset.take(3):
        pass
    eventually(lambda: "job left: what epoch 1 wrote at 'end' is dropped" in caching.log_text())
    eventually(lambda: list((caching.folder / "cache").glob("writing/*")) == [])


ENDS_EARLY: dict[str, Callable[[tf.data.Dataset], tf.data.Dataset]] = {
    "take": lambda rows: rows.take(10),
    "take_while": lambda rows: rows.take_while(lambda row: row != "0-10"),
    "a short zip": lambda rows: tf.data.Dataset.zip(rows, tf.data.Dataset.range(10)),
}


@pytest.mark.parametrize("how", ENDS_EARLY)
def test_what_did_not_reach_the_end_of_the_point_is_not_stored(
    caching: RealService, records: list[str], how: str
) -> None:
    # Slow enough that the end is further away than what an epoch that writes reads ahead.
    slow = tf.data.TFRecordDataset(records).apply(cachew.sleep(50_000))
    pipeline = ENDS_EARLY[how](slow.apply(cachew.mark("before")))
    job = f"short by {how}"
    dataset = pipeline.apply(
        cachew.distribute(caching.endpoint, job_name=job, cache_policy="source")
    )
    assert sum(multiset(dataset).values()) == 10
    eventually(
        lambda: f"job {job}: what epoch 1 wrote at 'before' is dropped" in caching.log_text()
    )
    assert sum(multiset(dataset).values()) == 10
