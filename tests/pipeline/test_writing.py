"""What an epoch that writes (PUT) leaves on disk: a whole run, or one that is seen not to be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import tensorflow as tf
from simulated_workers import prepared, run_graph

from cachew_core.cache import NotCompleteError
from cachew_core.cache.snapshot import Run, read_run
from cachew_core.pipeline.graph import DatasetGraph, user_name
from cachew_core.pipeline.writing import writing_graph

RECORDS = 50


def written_by(dataset: tf.data.Dataset, folder: Path) -> tuple[int, int]:
    """Writes at the dataset's end as one worker does; the elements and errors that came out.

    A stock worker asks for more after an error, so this does, too.
    """
    ready = prepared(dataset.take(-1, name="point"))
    nodes = {user_name(node): node.name for node in DatasetGraph.parse(ready.graph).operators()}
    graph = writing_graph(ready.graph, nodes["point"], str(folder), "")
    return _drain(iter(run_graph(graph, ready.element_spec)))


def _drain(elements: Iterator[object]) -> tuple[int, int]:
    came = errors = 0
    while True:
        try:
            next(elements)
        except StopIteration:
            return came, errors
        except tf.errors.OpError:
            errors += 1
        else:
            came += 1


def run_in(folder: Path) -> Run:
    (path,) = folder.glob("run-*")
    return read_run(path, folder)


@pytest.fixture
def torn(tmp_path: Path) -> str:
    """A file that ends within a record."""
    path = tmp_path / "torn.tfrecord"
    with tf.io.TFRecordWriter(str(path)) as writer:
        for number in range(RECORDS):
            writer.write(b"x" * number)
    path.write_bytes(path.read_bytes()[:-3])
    return str(path)


@pytest.fixture
def whole(tmp_path: Path) -> str:
    path = str(tmp_path / "whole.tfrecord")
    with tf.io.TFRecordWriter(path) as writer:
        for _ in range(RECORDS):
            writer.write(b"x")
    return path


@pytest.fixture
def other(tmp_path: Path) -> str:
    """A file that can't be read from its first byte on."""
    path = tmp_path / "other"
    path.write_bytes(b"no record at all, but text that is long enough to be a header")
    return str(path)


def test_a_run_without_an_error_is_whole(whole: str, tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    assert written_by(tf.data.TFRecordDataset([whole, whole]), folder) == (2 * RECORDS, 0)
    assert run_in(folder).elements == 2 * RECORDS


def test_a_run_of_nothing_is_whole(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    assert written_by(tf.data.Dataset.range(0), folder) == (0, 0)
    assert run_in(folder).elements == 0


@pytest.mark.parametrize(
    "behind",
    [
        pytest.param(lambda records: records, id="alone"),
        pytest.param(lambda records: records.prefetch(4), id="prefetch"),
        pytest.param(lambda records: records.shuffle(8), id="shuffle"),
    ],
)
@pytest.mark.parametrize("order", ["bad", "bad good", "good bad"])
@pytest.mark.parametrize("bad", ["torn", "other"])
def test_a_run_with_an_error_is_never_whole_though_the_input_goes_on_to_its_end(
    torn: str,
    whole: str,
    other: str,
    bad: str,
    order: str,
    behind: Callable[[tf.data.Dataset], tf.data.Dataset],
    tmp_path: Path,
) -> None:
    folder, kinds = tmp_path / "cache", {"good": whole, "bad": {"torn": torn, "other": other}[bad]}
    paths = [kinds[word] for word in order.split()]
    _, errors = written_by(behind(tf.data.TFRecordDataset(paths)), folder)
    assert errors == 1
    with pytest.raises(NotCompleteError):
        run_in(folder)


def test_an_element_that_fails_alone_is_missed(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    numbers = tf.data.Dataset.range(100)
    failing = numbers.map(
        lambda x: tf.debugging.check_numerics(1 / tf.cast(x - 60, tf.float32), "one")
    )
    _, errors = written_by(failing, folder)
    assert errors == 1
    with pytest.raises(NotCompleteError):
        run_in(folder)
