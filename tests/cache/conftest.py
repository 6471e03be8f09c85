"""Stores on folders of the test's own."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from stock_snapshots import write_run

from cachew_core.cache import CacheStore, Entry

KEY = "ab" * 32

OpenStore = Callable[..., CacheStore]
PutEntry = Callable[..., Entry]


@pytest.fixture
def key() -> str:
    return KEY


@pytest.fixture
def open_store(tmp_path: Path) -> Iterator[OpenStore]:
    """Opens the store in the test's folder; closes it in the end."""
    (tmp_path / "cache").mkdir()
    with ExitStack() as stack:

        def open_(**settings: Any) -> CacheStore:
            return stack.enter_context(CacheStore.open(tmp_path / "cache", **settings))

        yield open_


@pytest.fixture
def store(open_store: OpenStore) -> CacheStore:
    return open_store()


@pytest.fixture
def put(store: CacheStore) -> PutEntry:
    """Writes an entry of two runs with 40 elements each."""

    def put_(key: str = KEY, *, element_bytes: int = 100, **facts: str) -> Entry:
        writing = store.begin(key)
        assert writing is not None
        for run in ("one", "two"):
            write_run(writing.path / run, [b"x" * element_bytes] * 40)
        return store.commit(writing, least_runs=2, facts=facts)

    return put_
