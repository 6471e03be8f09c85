"""A folder that can't hold the cache is refused with the setting's name."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from stock_snapshots import write_run

from cachew_core.cache import CacheStore
from cachew_core.errors import CacheError


def test_a_root_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CacheError, match=r"cache_dir .*missing is no folder"):
        CacheStore.open(tmp_path / "missing")


def test_a_root_that_can_not_be_written_is_refused() -> None:
    # Nobody can make folders there, not even root, whom a folder's mode does not stop.
    with pytest.raises(CacheError, match="cache_dir /sys/kernel can't be written"):
        CacheStore.open("/sys/kernel")


def test_a_root_that_is_no_mount_is_refused_if_it_should_be_one(tmp_path: Path) -> None:
    with pytest.raises(CacheError, match=r"cache_dir .* is not a mount point"):
        CacheStore.open(tmp_path, require_mount=True)
    assert list(tmp_path.iterdir()) == []


def test_a_capacity_under_one_chunk_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CacheError, match="cache_capacity_bytes is 1048575"):
        CacheStore.open(tmp_path, capacity_bytes=(1 << 20) - 1)


@pytest.mark.parametrize(
    ("content", "reason"),
    [(json.dumps({"id": "a", "layout": 2}), "has layout 2"), ("{", "can't be read")],
)
def test_a_store_of_another_kind_is_refused_and_left_as_it_is(
    tmp_path: Path, content: str, reason: str
) -> None:
    (tmp_path / "cachew-store.json").write_text(content)
    with pytest.raises(CacheError, match=reason):
        CacheStore.open(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["cachew-store.json"]


def test_a_mount_that_was_lost_is_not_written_below(
    store: CacheStore, put: Callable[..., object], key: str
) -> None:
    put()
    writing = store.begin("cd" * 32)
    assert writing is not None
    write_run(writing.path / "run", [b"x"])
    shutil.move(store.root, store.root.with_name("elsewhere"))
    store.root.mkdir()
    assert store.find(key) is None
    assert store.entries() == []
    with pytest.raises(CacheError, match="was its mount lost"):
        store.begin("ef" * 32)
    with pytest.raises(CacheError, match="can't commit cache entry cdcd"):
        store.commit(writing, least_runs=1, facts={})
    assert list(store.root.iterdir()) == []
