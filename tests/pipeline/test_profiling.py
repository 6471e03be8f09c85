"""Profiles of pipelines whose costs are known: they sleep. Only orders and wide factors are
checked, so that a busy machine does not matter.
"""

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import pytest
import tensorflow as tf
from simulated_workers import prepared

from cachew_core import stock
from cachew_core.errors import PipelineError
from cachew_core.pipeline.graph import DatasetGraph, user_name
from cachew_core.pipeline.pace import measure_storage, take_sample
from cachew_core.pipeline.profiling import PipelineProfile, PointFigures, profile
from cachew_core.pipeline.variants import worker_variant

Dataset = tf.data.Dataset


def slept(dataset: tf.data.Dataset, milliseconds: float) -> tf.data.Dataset:
    return stock.SleepDataset(dataset, int(1000 * milliseconds))


def point(dataset: tf.data.Dataset, name: str) -> tf.data.Dataset:
    return dataset.take(-1, name=name)


def measured(
    dataset: tf.data.Dataset,
    names: list[str],
    folder: Path,
    *,
    budget_s: float,
    batches: int = 100,
    compression: str | None = None,
) -> PipelineProfile:
    """The profile of a pipeline at its takes of those names."""
    ready = prepared(dataset, compression=compression)
    graph = worker_variant(ready.graph, sharded=False, single=False, epoch=0)
    nodes = {user_name(node): node.name for node in DatasetGraph.parse(graph).operators()}
    result = profile(
        graph,
        [nodes[name] for name in names],
        scratch=folder / "scratch",
        budget_s=budget_s,
        batches=batches,
    )
    assert list(folder.iterdir()) == []
    return result


def about(value: float, expected: float) -> bool:
    return expected / 3 <= value <= expected * 3


def check_storage(figures: PointFigures, least_bytes: float) -> None:
    assert least_bytes <= figures.bytes_per_element <= 1.5 * least_bytes + 100
    assert 0 < figures.read_warm_s < 0.05
    assert 0 < figures.read_cold_s < 0.05
    assert 0 < figures.write_s < 0.1


def test_the_parts_around_a_mark_cost_what_they_sleep(tmp_path: Path) -> None:
    rows = point(slept(Dataset.range(100_000).map(lambda _: tf.zeros([1000])), 5), "rows")
    pipeline = point(slept(rows.batch(4), 10), "end")
    result = measured(pipeline, ["rows", "end"], tmp_path, budget_s=8)
    mark, end = result.points
    assert result.elements > 0
    assert not result.finished
    assert about(result.compute_s, 0.030)
    assert about(mark.prefix_s, 0.005)
    assert about(mark.suffix_s, 0.010)
    assert mark.prefix_s < mark.suffix_s < result.compute_s
    assert about(mark.per_batch, 4)
    assert (end.per_batch, end.suffix_s, end.prefix_s) == (1, 0, result.compute_s)
    check_storage(mark, 4000)
    check_storage(end, 16000)
    assert json.loads(json.dumps(asdict(result)))["points"][1]["sampled"] == end.sampled


def build_words() -> tf.data.Dataset:
    words = Dataset.range(10).map(
        lambda i: {
            "ragged": tf.RaggedTensor.from_row_lengths([i], [1]),
            "text": tf.strings.as_string(i),
        }
    )
    return point(point(words, "mark").shuffle(5).batch(3), "end")


def build_filtered() -> tf.data.Dataset:
    kept = point(Dataset.range(300), "mark").filter(lambda i: i > 290)
    return point(kept.prefetch(4), "end")


def build_multiplied() -> tf.data.Dataset:
    return point(point(Dataset.range(4), "mark").repeat(10).take(20), "end")


def build_cached() -> tf.data.Dataset:
    return point(point(slept(Dataset.range(100), 1), "mark").cache().batch(10), "end")


@pytest.mark.parametrize(
    ("build", "per_batch"),
    [(build_words, 10 / 4), (build_filtered, 300 / 9), (build_multiplied, 1), (build_cached, 10)],
)
def test_a_short_pipeline_is_measured_whole(
    build: Callable[[], tf.data.Dataset], per_batch: float, tmp_path: Path
) -> None:
    result = measured(build(), ["mark", "end"], tmp_path, budget_s=20)
    assert result.finished
    assert result.elements > 0
    mark, end = result.points
    assert mark.per_batch == pytest.approx(per_batch)
    assert 0 < mark.suffix_s <= result.compute_s
    assert min(mark.sampled, end.sampled) > 0


def test_a_suffix_that_drops_the_whole_sample_counts_like_the_pipeline(tmp_path: Path) -> None:
    rows = point(slept(Dataset.range(300), 1), "mark")
    result = measured(
        point(rows.filter(lambda i: i > 290), "end"), ["mark", "end"], tmp_path, budget_s=3
    )
    assert result.elements > 0
    assert result.points[0].suffix_s == result.compute_s


def test_tables_and_files_come_along_and_compression_behind_the_end_does_not(
    tmp_path: Path,
) -> None:
    file = tmp_path / "rows.tfrecord"
    with tf.io.TFRecordWriter(str(file)) as writer:
        for number in range(500):
            writer.write(str(number).encode())
    keys = tf.constant([str(number) for number in range(500)])
    table = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(keys, tf.range(500, dtype=tf.int64)), -1
    )
    rows = tf.data.TFRecordDataset([str(file)]).map(lambda key: (key, table.lookup(key)))
    looked_up = point(rows, "mark").map(lambda key, value: value + table.lookup(key))
    pipeline = point(looked_up.batch(10), "end")
    folder = tmp_path / "cache"
    folder.mkdir()
    result = measured(pipeline, ["mark", "end"], folder, budget_s=20, compression="AUTO")
    assert result.finished
    assert result.points[0].per_batch == 10
    assert 10 * 8 <= result.points[1].bytes_per_element <= 10 * 8 + 50


def test_what_is_made_once_is_no_part_of_what_a_disk_takes(tmp_path: Path) -> None:
    first_s = 1.0
    made: list[Sequence[str]] = []

    def read(files: Sequence[str]) -> tf.data.Dataset:
        made.append(files)
        values = Dataset.from_tensor_slices(list(files)).map(tf.strings.length)
        return slept(values, 1000 * first_s) if len(made) == 1 else values

    sample = take_sample(Dataset.range(5).map(lambda n: (n,)), limit_bytes=1 << 20, limit_s=1)
    # The first round alone takes longer than all may.
    storage = measure_storage(
        sample, tmp_path, read=read, files=1, limit_bytes=1 << 20, limit_s=first_s
    )
    assert len(made) > 1
    assert storage.read_cold_s < first_s / sample.elements


def test_an_empty_pipeline_says_so(tmp_path: Path) -> None:
    nothing = point(point(Dataset.range(10), "mark").filter(lambda i: i > 100), "end")
    result = measured(nothing, ["mark", "end"], tmp_path, budget_s=2)
    assert (result.elements, result.points) == (0, ())


def test_a_pipeline_that_fails_leaves_no_files(tmp_path: Path) -> None:
    broken = point(Dataset.range(1000).map(lambda i: 1 // (i - 500)), "end")
    with pytest.raises(tf.errors.OpError):
        measured(broken, ["end"], tmp_path, budget_s=2)
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_point_and_a_folder_that_is_there_are_refused(tmp_path: Path) -> None:
    graph = prepared(Dataset.range(3)).graph
    with pytest.raises(PipelineError, match="nowhere"):
        profile(graph, ["nowhere"], scratch=tmp_path / "new", budget_s=1, batches=1)
    end = DatasetGraph.parse(graph).sink.name
    (tmp_path / "mine").touch()
    with pytest.raises(FileExistsError):
        profile(graph, [end], scratch=tmp_path, budget_s=1, batches=1)
    assert os.listdir(tmp_path) == ["mine"]
