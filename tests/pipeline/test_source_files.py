"""Every kind of file that a pipeline reads is found in its graph, or it is said that one is not."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import tensorflow as tf
from simulated_workers import prepared

from cachew_core.pipeline.source_files import Sources, source_patterns

Dataset = tf.data.Dataset


def sources(dataset: tf.data.Dataset) -> Sources:
    return source_patterns(prepared(dataset).graph)


def vocabulary(path: str) -> tf.lookup.StaticHashTable:
    Path(path).write_text("x\n", encoding="utf-8")
    index = tf.lookup.TextFileIndex
    lines = tf.lookup.TextFileInitializer(
        path, tf.string, index.WHOLE_LINE, tf.int64, index.LINE_NUMBER
    )
    return tf.lookup.StaticHashTable(lines, -1)


def read(path: tf.Tensor) -> tf.Tensor:
    return tf.io.read_file(path)


@tf.function
def read_by_a_call(path: tf.Tensor) -> tf.Tensor:
    return tf.io.read_file(path)


def if_even(number: tf.Tensor) -> tf.Tensor:
    return tf.cond(number % 2 == 0, lambda: read("/d/a"), lambda: read("/d/b"))


def captured() -> tf.data.Dataset:
    path = tf.constant("/d/a")
    return Dataset.range(2).map(lambda number: read(path))


def labelled() -> tf.data.Dataset:
    dataset = Dataset.from_tensor_slices((["cat", "dog"], ["/d/a", "/d/b"]))
    return dataset.map(lambda label, path: (label, read(path)))


def swapped() -> tf.data.Dataset:
    dataset = Dataset.from_tensor_slices((["/d/a", "/d/b"], ["cat", "dog"]))
    return dataset.map(lambda path, label: (label, path)).map(lambda label, path: read(path))


def zipped() -> tf.data.Dataset:
    paths = Dataset.from_tensor_slices(["/d/a", "/d/b"]).shuffle(2).repeat(2)
    labels = Dataset.from_tensor_slices((["cat"] * 4, [1] * 4))
    return Dataset.zip((labels, paths)).map(lambda label, path: (label, read(path))).batch(2)


def listed() -> tf.data.Dataset:
    return Dataset.range(1).flat_map(
        lambda number: tf.data.TFRecordDataset(tf.io.matching_files("/d/*.x"))
    )


TWO = ("/d/a", "/d/b")
FOUND: dict[str, tuple[Callable[[], tf.data.Dataset], tuple[str, ...]]] = {
    "records": (lambda: tf.data.TFRecordDataset(list(TWO)), TWO),
    "records, read in parallel": (
        lambda: tf.data.TFRecordDataset(list(TWO), num_parallel_reads=2),
        TWO,
    ),
    "lines": (lambda: tf.data.TextLineDataset("/d/a"), ("/d/a",)),
    "records of one length": (lambda: tf.data.FixedLengthRecordDataset("/d/a", 4), ("/d/a",)),
    "comma-separated values": (
        lambda: tf.data.experimental.CsvDataset("/d/a", [tf.int32]),
        ("/d/a",),
    ),
    "a database": (
        lambda: tf.data.experimental.SqlDataset("sqlite", "/d/a", "select 1", (tf.int32,)),
        ("/d/a",),
    ),
    "files in an interleave": (
        lambda: (
            Dataset.from_tensor_slices(list(TWO))
            .shuffle(2)
            .interleave(tf.data.TFRecordDataset, num_parallel_calls=2)
        ),
        TWO,
    ),
    "files in a nested function": (
        lambda: Dataset.range(2).flat_map(
            lambda number: Dataset.from_tensor_slices(list(TWO)).flat_map(tf.data.TextLineDataset)
        ),
        TWO,
    ),
    "whole files": (lambda: Dataset.from_tensor_slices(list(TWO)).map(read), TWO),
    "whole files by a call": (
        lambda: Dataset.from_tensor_slices(list(TWO)).map(read_by_a_call),
        TWO,
    ),
    "batches of names": (
        lambda: Dataset.from_tensor_slices(list(TWO)).batch(2).map(lambda names: read(names[0])),
        TWO,
    ),
    "names in two datasets": (
        lambda: Dataset.from_tensors("/d/a").concatenate(Dataset.from_tensors("/d/b")).map(read),
        TWO,
    ),
    "a name in a function": (lambda: Dataset.range(2).map(lambda number: read("/d/a")), ("/d/a",)),
    "names in branches": (lambda: Dataset.range(2).map(if_even), TWO),
    "a captured name": (captured, ("/d/a",)),
    "names beside labels": (labelled, TWO),
    "names that a map moved": (swapped, TWO),
    "names in a zip": (zipped, TWO),
    "a glob": (listed, ("/d/*.x",)),
    "no file, but strings that look like one": (
        lambda: Dataset.from_tensor_slices(["/d/a"]).map(tf.strings.length),
        (),
    ),
}


@pytest.mark.parametrize(("build", "expected"), FOUND.values(), ids=FOUND)
def test_files_are_found(build: Callable[[], tf.data.Dataset], expected: tuple[str, ...]) -> None:
    found = sources(build())
    assert (found.patterns, found.remote, found.unknown) == (expected, (), "")


def test_the_files_of_a_listing_are_those_that_it_found(tmp_path: Path) -> None:
    names = [str(tmp_path / name) for name in ("a", "b")]
    for name in names:
        Path(name).write_text("x", encoding="utf-8")
    found = sources(Dataset.list_files(f"{tmp_path}/*").interleave(tf.data.TextLineDataset))
    assert (found.patterns, found.unknown) == (tuple(names), "")


def test_the_file_behind_a_table_is_found(tmp_path: Path) -> None:
    path = str(tmp_path / "words")
    table = vocabulary(path)
    assert sources(Dataset.from_tensors("x").map(table.lookup)).patterns == (path,)


def test_the_folder_of_saved_elements_is_found(tmp_path: Path) -> None:
    Dataset.range(3).save(str(tmp_path))
    assert str(tmp_path) in sources(Dataset.load(str(tmp_path))).patterns


def test_files_in_an_object_store_are_told_apart() -> None:
    found = sources(tf.data.TFRecordDataset(["gs://bucket/a", "/d/a", "file:///d/b"]))
    assert found.patterns == ("/d/a", "file:///d/b", "gs://bucket/a")
    assert found.remote == ("gs://bucket/a",)
    assert found.unknown == ""


def name_of(number: tf.Tensor) -> tf.Tensor:
    return tf.strings.join(["/d/", tf.strings.as_string(number)])


UNKNOWN: dict[str, tuple[Callable[[], tf.data.Dataset], str]] = {
    "joined from parts": (
        lambda: Dataset.range(2).map(lambda number: read(name_of(number))),
        r"`map`.*computes the names.*StringJoin.*sources=",
    ),
    "joined from parts in an earlier map": (
        lambda: Dataset.range(2).map(name_of).map(read),
        r"`map` \(function `read`\) computes the names",
    ),
    "read from a file": (
        lambda: tf.data.TextLineDataset("/d/list").map(read),
        r"`map` \(function `read`\) reads files whose names come out of other data",
    ),
    "counted on by a scan": (
        lambda: Dataset.from_tensors("/d/a").scan(0, lambda count, path: (count + 1, read(path))),
        r"`scan`.*names come from an operator that is not known",
    ),
}


@pytest.mark.parametrize(("build", "words"), UNKNOWN.values(), ids=UNKNOWN)
def test_names_that_are_computed_are_reported_with_the_operator(
    build: Callable[[], tf.data.Dataset], words: str
) -> None:

    assert re.search(words, sources(build()).unknown)
