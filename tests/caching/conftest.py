"""One real service with a cache for all tests of this folder that don't need to break it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import tensorflow as tf
from real_service import RealService


@pytest.fixture(scope="session")
def caching(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealService]:
    """A service with two workers that stores below its folder's `cache`."""
    folder = tmp_path_factory.mktemp("caching")
    (folder / "cache").mkdir()
    with RealService(folder, f"--cache-dir={folder / 'cache'}") as running:
        running.add_agent(slots=2)
        yield running


@pytest.fixture
def records(tmp_path: Path) -> list[str]:
    """Four files of 25 records each."""
    paths = []
    for number in range(4):
        path = str(tmp_path / f"part-{number}.tfrecord")
        with tf.io.TFRecordWriter(path) as writer:
            for record in range(25):
                writer.write(f"{number}-{record}")
        paths.append(path)
    return paths


@pytest.fixture(autouse=True)
def through_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainers that don't say otherwise read through workers, also on this one machine."""
    monkeypatch.setenv("CACHEW_DIRECT_READS", "never")
