"""An object store for all tests of this folder, and a bucket for each."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from google.cloud import storage
from object_store import ADDRESS, ObjectStore

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    """A running object store."""
    with ObjectStore(tmp_path_factory.mktemp("objects") / "server.log") as running:
        yield running


@pytest.fixture
def bucket(objects: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> Iterator[storage.Bucket]:
    """An empty bucket, which this process and its children find."""
    monkeypatch.setenv(ADDRESS, objects.url)
    client = storage.Client(project="test")
    yield client.create_bucket(f"bucket-{next(_numbers)}")
    client.close()


@pytest.fixture
def url(bucket: storage.Bucket) -> str:
    """A place in the bucket for a cache."""
    return f"gs://{bucket.name}/some/cache"
