"""Bad records, files and flags: one clear error or a count, no hang, and nothing stored of it."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import tensorflow as tf
from cached_jobs import Trainer, modes, multiset, reasons
from real_service import RealService, eventually

import cachew_core as cachew
from cachew_core.cache import stored_entries

RECORDS, FILES = 100, 4


@pytest.fixture
def compressed(tmp_path: Path) -> list[str]:
    """Four compressed files of 100 records; the third one was cut in half."""
    paths = [str(tmp_path / f"part-{number}.tfrecord.gz") for number in range(FILES)]
    for path in paths:
        with tf.io.TFRecordWriter(path, "GZIP") as writer:
            for _ in range(RECORDS):
                writer.write(tf.random.uniform([64]).numpy().tobytes())
    third = Path(paths[2])
    third.write_bytes(third.read_bytes()[: third.stat().st_size // 2])
    return paths


def reading(paths: list[str]) -> tf.data.Dataset:
    files = tf.data.Dataset.from_tensor_slices(paths)
    return files.interleave(lambda path: tf.data.TFRecordDataset(path, "GZIP"))


def served(
    service: RealService, dataset: tf.data.Dataset, job: str, policy: str = "full"
) -> tf.data.Dataset:
    return dataset.apply(cachew.distribute(service.endpoint, job_name=job, cache_policy=policy))


def test_errors_that_the_pipeline_ignores_are_counted_and_their_epoch_is_not_stored(
    caching: RealService, compressed: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    pipeline = reading(compressed).ignore_errors()
    dataset = served(caching, pipeline, "ignoring")
    expected = multiset(pipeline)
    assert 3 * RECORDS < expected.total() < FILES * RECORDS
    assert Trainer(dataset).done() == expected
    eventually(lambda: any("stored nothing" in n for n in caching.job("ignoring").notices))
    assert Trainer(dataset).done() == expected
    assert [epoch.ignored_errors for epoch in caching.epochs("ignoring")] == [1, 1]
    assert modes(caching, "ignoring") == ["PUT", "PUT"]
    notices = "\n".join(caching.job("ignoring").notices)
    assert "ignore_errors swallowed 1 errors in epoch 1" in notices
    assert "epoch 1 stored nothing at 'end': ignore_errors swallowed errors in it" in notices
    eventually(lambda: "ignore_errors swallows errors in epoch 1, first on worker" in caplog.text)


@pytest.mark.parametrize("policy", ["compute", "full"])
def test_a_file_that_is_tried_for_ever_ends_the_epoch_with_one_error(
    caching: RealService, compressed: list[str], policy: str
) -> None:
    # On its own or by a local run, this never ends: tf.data does not get past such a file.
    gone = [f"{compressed[0]}.{number}.none" for number in range(2)]
    pipeline = reading([*compressed[:2], *gone]).ignore_errors()
    job = f"tried for ever {policy}"
    dataset = served(caching, pipeline, job, policy)
    with pytest.raises(tf.errors.OpError, match=r"same errors on worker \S+ .*none; No such file"):
        Trainer(dataset).done()
    assert caching.epochs(job)[0].state == "failed"
    eventually(lambda: not caching.workers_of(job))
    # The job goes on once the pipeline is mended.
    mended = reading(compressed[:2]).ignore_errors()
    assert Trainer(served(caching, mended, f"{job}, mended", policy)).done() == multiset(mended)


def test_records_of_another_kind_that_are_ignored_are_counted(
    caching: RealService, compressed: list[str]
) -> None:
    def parsed(record: tf.Tensor) -> tf.Tensor:
        return tf.io.parse_single_example(record, {"x": tf.io.FixedLenFeature([], tf.int64)})["x"]

    pipeline = reading(compressed[:1]).map(parsed).ignore_errors()
    assert not Trainer(served(caching, pipeline, "another kind")).done()
    eventually(lambda: caching.epochs("another kind")[0].ignored_errors == RECORDS)
    eventually(lambda: any("stored nothing" in n for n in caching.job("another kind").notices))


def test_two_trainers_hear_of_what_was_ignored(caching: RealService, compressed: list[str]) -> None:
    pipeline = reading(compressed).ignore_errors().apply(cachew.sleep(2_000))
    readers = [Trainer(served(caching, pipeline, "both ignore")) for _ in range(2)]
    assert readers[0].done() + readers[1].done() == multiset(pipeline)
    eventually(lambda: caching.epochs("both ignore")[0].ignored_errors == 1)
    assert "ignore_errors swallowed 1 errors" in "\n".join(caching.job("both ignore").notices)


def test_a_mark_with_ignored_errors_behind_it_stores_nothing_and_every_epoch_has_the_rest(
    caching: RealService, compressed: list[str]
) -> None:
    whole = [path for path in compressed if "part-2" not in path]

    def parsed(record: tf.Tensor) -> tf.Tensor:
        # One record in about a hundred begins with a byte that is taken for damage.
        damaged = tf.strings.substr(record, 0, 1) == tf.strings.substr(worst, 0, 1)
        with tf.control_dependencies([tf.debugging.Assert(tf.logical_not(damaged), ["damaged"])]):
            return tf.identity(record)

    worst = next(iter(reading(whole)))
    pipeline = reading(whole).ignore_errors().apply(cachew.mark("records"))
    pipeline = pipeline.map(parsed).ignore_errors()
    expected = multiset(pipeline)
    assert 0 < 3 * RECORDS - expected.total() < RECORDS
    dataset = served(caching, pipeline, "from a mark", "source")
    for _ in range(3):
        assert Trainer(dataset).done() == expected
    assert modes(caching, "from a mark") == ["COMPUTE"] * 3
    assert "`ignore_errors` stands behind it" in reasons(caching, "from a mark")
    # What is told late counts in the epoch after.
    lost = 3 * (3 * RECORDS - expected.total())
    epochs = caching.epochs("from a mark")
    assert 0 < sum(epoch.ignored_errors for epoch in epochs) <= lost


CASES: dict[str, tuple[Callable[[list[str]], tf.data.Dataset], type[Exception], str]] = {
    "cut in half": (
        lambda paths: reading(paths),
        tf.errors.DataLossError,
        r"worker \S+ on \S+ can't read \S+part-2.tfrecord.gz: truncated record.*"
        r"Failed to get element from worker [\d.]+:\d+",
    ),
    "wrong compression": (
        lambda paths: tf.data.TFRecordDataset(paths[:1]),
        tf.errors.DataLossError,
        r"worker \S+ on \S+ can't read \S+part-0.tfrecord.gz: corrupted record at 0",
    ),
    "missing": (
        lambda paths: reading([paths[0], f"{paths[0]}.none"]),
        tf.errors.NotFoundError,
        r"Failed to get element from worker [\d.]+:\d+.*part-0.tfrecord.gz.none; No such file",
    ),
    "record of another kind": (
        lambda paths: reading(paths[:1]).map(
            lambda record: tf.io.parse_single_example(record, {"x": tf.io.VarLenFeature(tf.int64)})
        ),
        tf.errors.InvalidArgumentError,
        r"Failed to get element from worker [\d.]+:\d+.*Could not parse example input",
    ),
}


@pytest.mark.parametrize("policy", ["compute", "full"])
@pytest.mark.parametrize("case", CASES)
def test_bad_input_is_one_error_that_names_file_and_worker_and_nothing_is_stored(
    caching: RealService, compressed: list[str], case: str, policy: str
) -> None:
    make, kind, words = CASES[case]
    job = f"{case} {policy}"
    dataset = served(caching, make(compressed), job, policy)
    with pytest.raises(kind) as raised:
        Trainer(dataset).done()
    assert re.search(words, str(raised.value), re.DOTALL)
    eventually(lambda: caching.epochs(job)[0].state in ("failed", "abandoned"))
    jobs_stored = [e.facts["job"] for e in stored_entries(caching.folder / "cache")]
    assert job not in jobs_stored


TRAINING = """
import sys, tensorflow as tf, cachew_core as cachew
files = tf.data.Dataset.from_tensor_slices(sys.argv[2:])
reading = files.interleave(lambda path: tf.data.TFRecordDataset(path, "GZIP"))
dataset = reading.apply(cachew.distribute(sys.argv[1], job_name="in a function"))
@tf.function
def train():
    for _ in dataset:
        pass
train()
"""


def test_an_error_inside_of_a_function_is_explained_when_the_training_ends(
    caching: RealService, compressed: list[str], tmp_path: Path
) -> None:
    # TensorFlow rewrites a function's loops by its source, so that must lie in a file.
    program = tmp_path / "train.py"
    program.write_text(TRAINING)
    command = [sys.executable, str(program), caching.endpoint, *compressed]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert ended.returncode == 1
    assert "DataLossError" in ended.stderr
    assert re.search(
        r"the training ended with an error because worker \S+ on \S+ can't read "
        r"\S+part-2.tfrecord.gz: truncated record",
        ended.stderr,
    )
