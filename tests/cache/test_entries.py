"""An entry is offered whole or not at all, and goes only when nobody reads it."""

import logging
import os
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from stock_snapshots import write_run

from cachew_core.cache import (
    CacheStore,
    Entry,
    NotCompleteError,
    durable,
    stored_entries,
    verification,
)
from cachew_core.cache.durable import Content
from cachew_core.errors import CacheError

OTHER = "cd" * 32
THIRD = "ef" * 32

PutEntry = Callable[..., Entry]


def test_what_was_committed_is_found(store: CacheStore, put: PutEntry, key: str) -> None:
    entry = put(pipeline="images")
    assert store.find(key) == entry
    assert store.entries() == [entry]
    assert store.verify(key) == []
    assert entry.elements == 80
    assert entry.facts == {"pipeline": "images"}
    assert entry.bytes == sum(chunk.bytes for chunk in entry.files)
    for chunk in entry.files:
        content = (entry.path / chunk.path).read_bytes()
        assert (len(content), zlib.crc32(content)) == (chunk.bytes, chunk.crc32)


def test_the_next_service_finds_it_too(
    store: CacheStore, put: PutEntry, key: str, open_store: Callable[..., CacheStore]
) -> None:
    entry = put()
    store.close()
    next_store = open_store()
    assert next_store.find(key) == entry
    assert next_store.store_id == store.store_id


def test_only_what_looks_otherwise_than_when_it_was_stored_is_read_by_the_next_service(
    store: CacheStore,
    put: PutEntry,
    key: str,
    open_store: Callable[..., CacheStore],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[Path] = []

    def read_through(path: Path) -> Content:
        read.append(path)
        return durable.read_through(path)

    entry = put()
    store.close()
    monkeypatch.setattr(verification, "read_through", read_through)
    with open_store() as second:
        assert second.find(key) == entry
        second.doubt(entry, entry.files[1:2])
        assert read == []
        assert second.find(key) == entry
    assert read == [entry.path / entry.files[1].path]
    copied = entry.path / entry.files[0].path
    shutil.copy2(copied, copied.with_name("copy"))
    copied.with_name("copy").replace(copied)
    assert open_store().find(key) == entry
    assert read[1:] == [copied]


def test_entries_are_listed_while_a_service_uses_them(store: CacheStore, put: PutEntry) -> None:
    entry = put()
    assert stored_entries(store.root) == [entry]


def test_a_folder_without_a_store_has_no_list(tmp_path: Path) -> None:
    for root in (tmp_path, tmp_path / "missing"):
        with pytest.raises(CacheError, match="holds no cache"):
            stored_entries(root)


def test_nothing_is_found_before_the_commit(store: CacheStore, key: str) -> None:
    writing = store.begin(key)
    assert writing is not None
    write_run(writing.path / "run", [b"x"])
    assert store.find(key) is None
    assert store.entries() == []


def test_a_key_has_one_writer(store: CacheStore, put: PutEntry, key: str) -> None:
    writing = store.begin(key)
    assert writing is not None
    assert store.begin(key) is None
    store.abandon(writing)
    assert not writing.folder.exists()
    put()
    assert store.begin(key) is None


def test_an_unfinished_run_keeps_the_data_from_becoming_an_entry(
    store: CacheStore, key: str
) -> None:
    writing = store.begin(key)
    assert writing is not None
    write_run(writing.path / "one", [b"x"])
    write_run(writing.path / "two", [b"x"], finalized=False)
    with pytest.raises(NotCompleteError, match="two/00000000-last was not written to its end"):
        store.commit(writing, least_runs=1, facts={})
    assert store.find(key) is None


@pytest.mark.parametrize(("runs", "least_runs"), [(1, 2), (0, 0)])
def test_too_few_runs_keep_the_data_from_becoming_an_entry(
    store: CacheStore, key: str, runs: int, least_runs: int
) -> None:
    writing = store.begin(key)
    assert writing is not None
    for run in range(runs):
        write_run(writing.path / str(run), [b"x"])
    with pytest.raises(NotCompleteError, match=f"{runs} runs wrote"):
        store.commit(writing, least_runs=least_runs, facts={})
    assert store.find(key) is None


def test_a_commit_that_was_too_early_can_be_repeated(store: CacheStore, key: str) -> None:
    writing = store.begin(key)
    assert writing is not None
    write_run(writing.path / "one", [b"x"])
    with pytest.raises(NotCompleteError):
        store.commit(writing, least_runs=2, facts={})
    write_run(writing.path / "two", [b"x"])
    assert store.commit(writing, least_runs=2, facts={}).elements == 2


def test_a_cache_point_without_elements_is_an_entry(store: CacheStore, key: str) -> None:
    writing = store.begin(key)
    assert writing is not None
    write_run(writing.path / "one", [], shards=0)
    entry = store.commit(writing, least_runs=1, facts={})
    assert (entry.elements, entry.files) == (0, ())
    assert store.find(key) == entry


def test_an_abandoned_writing_can_not_be_committed(store: CacheStore, key: str) -> None:
    writing = store.begin(key)
    assert writing is not None
    store.abandon(writing)
    with pytest.raises(CacheError, match="not open any more"):
        store.commit(writing, least_runs=1, facts={})


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def flip_a_bit_in_another_file(path: Path) -> None:
    status = path.stat()
    other = path.with_suffix(".other")
    other.write_bytes(path.read_bytes())
    flip_a_bit(other)
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
    other.replace(path)


DAMAGES = {
    truncate: "bytes and not",
    Path.unlink: "is missing",
    flip_a_bit: "another content",
    flip_a_bit_in_another_file: "another content",
}


@pytest.mark.parametrize(("damage", "reason"), DAMAGES.items())
@pytest.mark.parametrize("seen_before", [True, False])
def test_a_damaged_chunk_ends_the_entry(
    store: CacheStore,
    put: PutEntry,
    key: str,
    damage: Callable[[Path], None],
    reason: str,
    seen_before: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    entry = put()
    if seen_before:
        assert store.find(key) == entry
    damage(entry.path / entry.files[1].path)
    assert [reason in problem for problem in store.verify(key)] == [True]
    with caplog.at_level(logging.WARNING):
        assert store.find(key) is None
    assert [reason in record.getMessage() for record in caplog.records] == [True]
    assert not entry.path.exists()
    assert put().elements == 80


def test_damage_from_before_the_service_began_is_found_without_a_change_of_size(
    store: CacheStore, put: PutEntry, key: str, open_store: Callable[..., CacheStore]
) -> None:
    entry = put()
    store.close()
    chunk = entry.path / entry.files[0].path
    status = chunk.stat()
    flip_a_bit(chunk)
    os.utime(chunk, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert open_store().find(key) is None


@pytest.mark.parametrize("content", [b"", b"{}", b"[" * 100_000, b"\xff", None])
def test_a_damaged_manifest_ends_the_entry(
    store: CacheStore, put: PutEntry, key: str, content: bytes | None
) -> None:
    manifest = put().path / "manifest.json"
    if content is None:
        manifest.unlink()
    else:
        manifest.write_bytes(content)
    assert store.entries() == []
    assert store.verify(key) != []
    assert store.find(key) is None
    assert not manifest.parent.exists()


def test_a_changed_number_in_the_manifest_is_found(
    store: CacheStore, put: PutEntry, key: str
) -> None:
    manifest = put().path / "manifest.json"
    changed = manifest.read_text().replace('"elements": 80', '"elements": 70')
    assert changed != manifest.read_text()
    manifest.write_text(changed)
    assert store.find(key) is None


def test_an_entry_in_use_is_dropped_when_its_last_reader_is_done(
    store: CacheStore, put: PutEntry, key: str
) -> None:
    entry = put()
    with store.use(key):
        with store.use(key):
            assert not store.drop(key)
            assert store.find(key) is None
            assert store.begin(key) is None
        assert (entry.path / entry.files[0].path).exists()
    assert not entry.path.exists()
    assert put() is not None


def test_damage_does_not_take_an_entry_from_under_its_reader(
    store: CacheStore, put: PutEntry, key: str
) -> None:
    entry = put()
    with store.use(key):
        (entry.path / entry.files[0].path).unlink()
        assert store.find(key) is None
        assert (entry.path / entry.files[1].path).exists()
    assert not entry.path.exists()


def test_room_is_made_from_the_entries_of_least_benefit_that_are_not_in_use(
    open_store: Callable[..., CacheStore], put: PutEntry, store: CacheStore, key: str
) -> None:
    entries = {name: put(name, element_bytes=10_000) for name in (key, OTHER, THIRD)}
    store.close()
    store = open_store(capacity_bytes=3 << 20)
    benefit = {key: 1.0, OTHER: 2.0, THIRD: 3.0}
    with store.use(key):
        assert store.make_room(1 << 20, lambda entry: benefit[entry.key])
        assert [entry.key for entry in store.entries()] == [key, THIRD]
        assert not store.make_room(5 << 19, lambda entry: benefit[entry.key])
        assert store.find(THIRD) == entries[THIRD]
    assert store.make_room(5 << 19, lambda entry: benefit[entry.key])
    assert store.entries() == []


def test_what_is_being_written_takes_room(open_store: Callable[..., CacheStore], key: str) -> None:
    store = open_store(capacity_bytes=1 << 20)
    assert store.make_room(1 << 20, lambda _: 0.0)
    writing = store.begin(key)
    assert writing is not None
    write_run(writing.path / "run", [b"x" * 1000])
    assert not store.make_room(1 << 20, lambda _: 0.0)


def test_collect_removes_what_is_no_entry_and_keeps_what_is(
    store: CacheStore, put: PutEntry, key: str
) -> None:
    entry = put()
    writing = store.begin(OTHER)
    dead = store.root / "writing" / f"{THIRD}-dead"
    write_run(dead / "runs" / "run", [b"x" * 1000])
    (store.root / "entries" / "unknown").mkdir()
    damaged = store.root / "entries" / THIRD
    shutil.copytree(entry.path, damaged)
    (store.root / "trash" / "half-removed").mkdir()
    (store.root / "users-own.txt").write_text("kept")
    reclaimed = store.collect()
    assert (reclaimed.writings, reclaimed.leftovers) == (1, 3)
    assert reclaimed.bytes > 1000
    assert not dead.exists()
    assert not damaged.exists()
    assert store.find(key) == entry
    assert writing is not None
    assert writing.path.exists()
    assert (store.root / "users-own.txt").exists()


def test_the_next_writer_reclaims_what_a_dead_one_left(
    store: CacheStore, key: str, open_store: Callable[..., CacheStore]
) -> None:
    dead = store.begin(key)
    store.close()
    writing = open_store().begin(key)
    assert dead is not None
    assert writing is not None
    assert not dead.folder.exists()


@pytest.mark.parametrize("key", ["", "ab", "AB" * 32, "../" + "a" * 61])
def test_what_is_no_key_is_refused(store: CacheStore, key: str) -> None:
    with pytest.raises(CacheError, match="no cache key"):
        store.find(key)
