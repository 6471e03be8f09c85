"""The demo's data set: real photographs, cut, labelled and spread over files."""

from collections import Counter
from pathlib import Path

import pytest
import tensorflow as tf

from cachew_pipelines.classifier import training_data
from cachew_pipelines.photographs import CROP_PIXELS, PHOTOGRAPHS, kept_records, write_records

FEATURES = {
    "image": tf.io.FixedLenFeature([], tf.string),
    "label": tf.io.FixedLenFeature([], tf.int64),
}


def records_of(path: Path) -> list[dict[str, tf.Tensor]]:
    """The parsed records of one file."""
    return [
        tf.io.parse_single_example(record, FEATURES)
        for record in tf.data.TFRecordDataset(str(path))
    ]


def test_every_file_holds_jpegs_of_all_labels(tmp_path: Path) -> None:
    paths = write_records(tmp_path / "records", crops=30, files=3)
    assert sorted((tmp_path / "records").iterdir()) == paths
    for path in paths:
        records = records_of(path)
        labels = Counter(int(record["label"]) for record in records)
        assert labels == Counter(2 * list(range(len(PHOTOGRAPHS))))
        for record in records:
            assert record["image"].numpy().startswith(b"\xff\xd8")
            picture = tf.io.decode_jpeg(record["image"])
            assert picture.shape == (CROP_PIXELS, CROP_PIXELS, 3)


def test_no_record_is_lost_where_the_numbers_do_not_divide(tmp_path: Path) -> None:
    paths = write_records(tmp_path, crops=23, files=4)
    assert sum(len(records_of(path)) for path in paths) == 23


def test_the_same_seed_gives_the_same_records(tmp_path: Path) -> None:
    (first,), (second,), (other,) = (
        write_records(tmp_path / name, crops=5, files=1, seed=seed)
        for name, seed in (("first", 1), ("second", 1), ("other", 2))
    )
    assert first.read_bytes() == second.read_bytes()
    assert first.read_bytes() != other.read_bytes()


def test_records_that_are_kept_stay_the_same_files(tmp_path: Path) -> None:
    def look(folder: Path) -> list[tuple[Path, int, int]]:
        return [(p, p.stat().st_ino, p.stat().st_mtime_ns) for p in sorted(folder.iterdir())]

    folder = kept_records(tmp_path, crops=6, files=2)
    made = look(folder)
    assert len(made) == 2
    assert look(kept_records(tmp_path, crops=6, files=2)) == made
    assert kept_records(tmp_path, crops=7, files=2) != folder


def test_records_that_can_not_be_made_leave_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="crops=1 can't be spread over files=2"):
        kept_records(tmp_path, crops=1, files=2)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("crops", "files"), [(2, 3), (5, 0), (0, 0)])
def test_files_without_a_crop_are_refused(tmp_path: Path, crops: int, files: int) -> None:
    with pytest.raises(ValueError, match=f"crops={crops} can't be spread over files={files}"):
        write_records(tmp_path, crops=crops, files=files)
    assert list(tmp_path.iterdir()) == []


def test_without_a_service_the_pipeline_gives_every_picture_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CACHEW_SERVICE", raising=False)
    paths = write_records(tmp_path, crops=20, files=2)
    files = [str(path) for path in paths]
    batches = list(training_data(files, service=None, job_name="local", batch_size=8))
    assert [int(labels.shape[0]) for _, labels in batches] == [8, 8, 4]
    labels = Counter(int(label) for _, labels in batches for label in labels)
    assert labels == Counter(4 * list(range(len(PHOTOGRAPHS))))
    pictures = tf.concat([pictures for pictures, _ in batches], axis=0)
    assert 0.0 <= float(tf.reduce_min(pictures)) < float(tf.reduce_max(pictures)) <= 1.0
