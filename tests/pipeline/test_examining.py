"""Which files of a pipeline can't be read, found without its graph being run."""

from __future__ import annotations

from pathlib import Path

import pytest
import tensorflow as tf

from cachew_core import stock
from cachew_core.pipeline.examining import broken_files


@pytest.fixture
def paths(tmp_path: Path) -> list[str]:
    """Five compressed files of 50 records; all but the first were cut in half."""
    made = [str(tmp_path / f"{number}.tfrecord") for number in range(5)]
    for path in made:
        with tf.io.TFRecordWriter(path, "GZIP") as writer:
            for _ in range(50):
                writer.write(tf.random.uniform([64]).numpy().tobytes())
    for cut in map(Path, made[1:]):
        cut.write_bytes(cut.read_bytes()[: cut.stat().st_size // 2])
    return made


def graph_of(dataset: tf.data.Dataset) -> bytes:
    return bytes(stock.graph_of(dataset).SerializeToString())


def read_by(paths: list[str], compression: str) -> bytes:
    files = tf.data.Dataset.from_tensor_slices(paths)
    return graph_of(files.interleave(lambda path: tf.data.TFRecordDataset(path, compression)))


def test_the_first_three_broken_files_are_named_with_what_is_wrong(paths: list[str]) -> None:
    found = broken_files(read_by(paths, "GZIP"), paths, budget_s=60)
    assert [text.partition(": ")[0] for text in found] == paths[1:4]
    assert all("truncated record" in text for text in found)


@pytest.mark.parametrize("inside", [True, False], ids=["in a function", "captured"])
def test_a_file_is_read_as_the_graph_reads_it(paths: list[str], inside: bool) -> None:
    wrong = read_by(paths[:1], "") if inside else graph_of(tf.data.TFRecordDataset(paths[:1]))
    (text,) = broken_files(wrong, paths[:1], budget_s=60)
    assert text.startswith(f"{paths[0]}: corrupted record at 0")
    assert broken_files(read_by(paths[:1], "GZIP"), paths[:1], budget_s=60) == []


def test_files_of_other_readers_are_not_read(paths: list[str]) -> None:
    lines = graph_of(tf.data.TextLineDataset(paths))
    assert broken_files(lines, paths, budget_s=60) == []


def test_no_file_is_begun_when_the_time_is_over(paths: list[str]) -> None:
    assert broken_files(read_by(paths, "GZIP"), paths, budget_s=-1) == []
