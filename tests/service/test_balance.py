"""How an epoch's files are spread over the workers."""

from __future__ import annotations

import re
from pathlib import Path

import tensorflow as tf
from real_service import RealService, eventually

import cachew_core as cachew

FILES, WORKERS = 64, 4
_ENDED = re.compile(r"slot (\d+), assignment \S+ of job balanced: RELEASED after (\d+) splits")


def test_sixty_four_files_are_balanced_over_four_workers(
    four_workers: RealService, tmp_path: Path
) -> None:
    paths = [str(tmp_path / f"{number}.tfrecord") for number in range(FILES)]
    for number, path in enumerate(paths):
        with tf.io.TFRecordWriter(path) as writer:
            for record in range(4):
                writer.write(f"{number}-{record}")
    files = tf.data.Dataset.from_tensor_slices(paths)
    # Work for each element: otherwise the first worker to begin could take most of them.
    pipeline = files.flat_map(tf.data.TFRecordDataset).apply(cachew.sleep(20_000))
    dataset = pipeline.apply(cachew.distribute(four_workers.endpoint, job_name="balanced"))
    assert len({element.numpy() for element in dataset}) == 4 * FILES
    del dataset
    eventually(lambda: len(splits_of_workers(four_workers)) == WORKERS)
    splits = splits_of_workers(four_workers)
    assert sum(splits.values()) == FILES
    assert min(splits.values()) >= FILES // WORKERS // 2
    assert max(splits.values()) <= 2 * FILES // WORKERS


def splits_of_workers(service: RealService) -> dict[int, int]:
    """Files that were handed to each worker of the job, by its slot, once they are released."""
    return {int(slot): int(count) for slot, count in _ENDED.findall(service.log_text())}
