"""A GlusterFS server with its volumes in namespaces of its own, and what runs in there."""

from collections.abc import Iterator
from pathlib import Path

import benchmarks_package  # noqa: F401
import pytest
import tensorflow as tf
from gluster_namespaces import Inside

from benchmarks.glusterfs import GlusterFS, missing

FILES = 16
RECORDS_OF_FILE = 25


@pytest.fixture(scope="session", autouse=True)
def can_be_served() -> None:
    if lacking := missing():
        pytest.skip(lacking)


@pytest.fixture(scope="session")
def server() -> Iterator[GlusterFS]:
    with GlusterFS({"cache": 0, "lost": 0, "broken": 0, "unmounted": 0}) as running:
        yield running


@pytest.fixture(scope="session")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lake")
    for file in range(FILES):
        with tf.io.TFRecordWriter(str(folder / f"part-{file}.tfrecord")) as writer:
            for record in range(RECORDS_OF_FILE):
                writer.write(f"{file}-{record}")
    return folder


@pytest.fixture(scope="session")
def records() -> list[str]:
    """All that is in the lake, sorted."""
    return sorted(f"{f}-{r}" for f in range(FILES) for r in range(RECORDS_OF_FILE))


@pytest.fixture
def inside(server: GlusterFS, tmp_path: Path, lake: Path) -> Iterator[Inside]:
    namespaces = Inside(server, tmp_path / "home", lake)
    yield namespaces
    for name in ("one", "two"):
        namespaces.cachew("down", name)
