"""Entries in a bucket: whole or not there, whatever fails and whoever else writes."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from google.cloud import storage
from object_store import ADDRESS, ObjectStore, names
from one_node import open_bucket
from stock_snapshots import write_run

from cachew_core import gcs
from cachew_core.cache import (
    BucketStore,
    Chunk,
    Entry,
    NotCompleteError,
    Shelf,
    Stage,
    Writing,
)
from cachew_core.cache.claims import Claims
from cachew_core.cache.lease import Owner
from cachew_core.errors import CacheError

KEY, OTHER = "ab" * 32, "cd" * 32
ROWS = [b"x" * 100] * 40


OpenStore = Callable[..., BucketStore]


@pytest.fixture
def open_store(url: str, tmp_path: Path) -> Iterator[OpenStore]:
    """Opens the store of the test's bucket, as a service with a stage of that name does."""
    with ExitStack() as stack:

        def open_(service: str = "one", *, capacity_bytes: int | None = None) -> BucketStore:
            store = open_bucket(url, tmp_path / service, capacity_bytes=capacity_bytes)
            stack.callback(store.close)
            return store

        yield open_


def write(store: BucketStore, key: str = KEY, *, finalized: bool = True) -> Writing:
    writing = store.begin(key)
    assert writing is not None
    write_run(writing.path / "one", ROWS)
    write_run(writing.path / "two", ROWS, finalized=finalized)
    return writing


def put(store: BucketStore, key: str = KEY) -> Entry:
    return store.commit(write(store, key), least_runs=2, facts={"point": "end"})


def contents(entry: Entry) -> dict[str, bytes]:
    return {chunk.path: (entry.path / chunk.path).read_bytes() for chunk in entry.files}


def object_of(bucket: storage.Bucket, chunk: Chunk) -> storage.Blob:
    (name,) = [name for name in names(bucket) if name.endswith(chunk.path)]
    return bucket.blob(name)


def read(store: BucketStore, entry: Entry) -> dict[str, bytes]:
    with store.use(entry.key):
        assert store.make_ready(entry, wait_s=30)
        return contents(entry)


def test_another_service_with_an_empty_stage_reads_what_one_has_stored(
    open_store: OpenStore,
) -> None:
    stored = put(open_store("one"))
    second = open_store("two")
    found = second.find(KEY)
    assert found is not None
    assert found.path != stored.path
    assert not found.path.exists()
    assert read(second, found) == contents(stored)
    assert (found.elements, found.bytes, found.facts) == (80, stored.bytes, {"point": "end"})


def test_what_was_written_here_is_read_from_here(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store()
    entry = put(store)
    monkeypatch.setattr(gcs.Bucket, "download", lambda *_: pytest.fail("it is here"))
    assert store.find(KEY) == entry
    assert len(read(store, entry)) == 4


def test_nothing_is_found_before_all_of_it_is_in_the_bucket(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, reader = open_store("one"), open_store("two")
    writing = write(store)
    uploaded: list[str] = []
    upload = gcs.Bucket.upload

    def fail_at_the_third(self: gcs.Bucket, path: Path, name: str) -> None:
        if len(uploaded) == 2:
            raise CacheError("the line is cut")
        uploaded.append(name)
        upload(self, path, name)

    monkeypatch.setattr(gcs.Bucket, "upload", fail_at_the_third)
    with pytest.raises(CacheError, match="the line is cut"):
        store.commit(writing, least_runs=2, facts={})
    assert reader.find(KEY) is None
    monkeypatch.setattr(gcs.Bucket, "upload", upload)
    entry = store.commit(writing, least_runs=2, facts={})
    assert read(reader, entry_in(reader)) == contents(entry)


def entry_in(store: BucketStore) -> Entry:
    entry = store.find(KEY)
    assert entry is not None
    return entry


def test_a_writing_that_is_given_up_leaves_nothing_in_the_bucket(
    open_store: OpenStore, bucket: storage.Bucket, tmp_path: Path
) -> None:
    store = open_store()
    writing = write(store, finalized=False)
    with pytest.raises(NotCompleteError, match="to its end"):
        store.commit(writing, least_runs=2, facts={})
    store.abandon(writing)
    assert names(bucket) == []
    assert not writing.folder.exists()
    assert put(store).elements == 80


def test_of_two_services_one_writes_and_the_other_may_after_it_gave_up(
    open_store: OpenStore,
) -> None:
    one, two = open_store("one"), open_store("two")
    writing = write(one)
    assert two.begin(KEY) is None
    one.abandon(writing)
    put(two)
    assert one.begin(KEY) is None
    assert one.find(KEY) is not None


def test_of_many_that_begin_at_once_one_writes(open_store: OpenStore) -> None:
    stores = [open_store(f"service-{number}") for number in range(6)]
    got: list[Writing | None] = []
    threads = [
        threading.Thread(target=lambda store=store: got.append(store.begin(KEY)))
        for store in stores
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 6
    assert sum(writing is not None for writing in got) == 1


ELSEWHERE = Owner(token="f" * 32, host="another machine", pid=1, started=0.0)


def claim_elsewhere(url: str) -> None:
    """A service on another machine claims the key, whoever has it."""
    assert gcs.Bucket(url).write(f"writing/{KEY}.json", ELSEWHERE.model_dump_json().encode())


def test_a_writer_that_was_taken_over_commits_nothing(open_store: OpenStore, url: str) -> None:
    slow = open_store()
    writing = write(slow)
    claim_elsewhere(url)
    with pytest.raises(CacheError, match="taken over"):
        slow.commit(writing, least_runs=2, facts={})
    assert slow.find(KEY) is None


def test_a_writer_that_was_killed_is_followed_at_once_and_its_objects_go(
    open_store: OpenStore, bucket: storage.Bucket, url: str
) -> None:
    program = """
import sys
from cachew_core.cache import Shelf
shelf = Shelf.open(sys.argv[1])
claim = shelf.claims.take(sys.argv[2])
shelf.bucket.write(f"data/{claim.key}/{claim.token}/runs/one/half.snapshot", b"half")
print("written", flush=True)
sys.stdin.read()
"""
    command = [sys.executable, "-c", program, url, KEY]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"written\n"
        store = open_store()
        assert store.begin(KEY) is None
        writer.kill()
        writer.wait()
    half = [name for name in names(bucket) if name.endswith("half.snapshot")]
    assert len(half) == 1
    entry = put(store)
    assert [name for name in names(bucket) if name.endswith("half.snapshot")] == []
    assert store.find(KEY) == entry


def test_a_writer_out_of_sight_is_dead_when_it_is_silent_for_too_long(url: str) -> None:
    bucket = gcs.Bucket(url)
    writer = Claims(bucket)
    claim = writer.take(KEY)
    assert claim is not None
    claim_elsewhere(url)
    patient, impatient = Claims(bucket, dead_after_s=60), Claims(bucket, dead_after_s=-1)
    assert patient.take(KEY) is None
    assert patient.living() == {ELSEWHERE.token}
    taken = impatient.take(KEY)
    assert taken is not None
    assert taken.replaced == ELSEWHERE.token
    with pytest.raises(CacheError, match="taken over"):
        writer.check(claim)
    for claims in (writer, patient, impatient):
        claims.close()
    assert bucket.listed() == []


@pytest.mark.parametrize("damage", ["missing", "short"])
def test_an_entry_whose_objects_are_not_there_is_given_up(
    open_store: OpenStore,
    bucket: storage.Bucket,
    damage: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    entry = put(open_store("one"))
    blob = object_of(bucket, entry.files[0])
    if damage == "missing":
        blob.delete()
    else:
        blob.upload_from_string(b"short")
    reader = open_store("two")
    assert reader.find(KEY) is None
    assert caplog.text.count(f"Cache entry {KEY} is given up") == 1
    assert names(bucket) == []
    assert put(reader).key == KEY


def test_an_object_with_other_content_is_found_when_it_is_fetched(
    open_store: OpenStore, bucket: storage.Bucket
) -> None:
    entry = put(open_store("one"))
    object_of(bucket, entry.files[0]).upload_from_string(b"y" * entry.files[0].bytes)
    reader = open_store("two")
    found = entry_in(reader)
    with reader.use(KEY), pytest.raises(CacheError, match="another content"):
        reader.make_ready(found, wait_s=30)
    assert reader.find(KEY) is None
    assert names(bucket) == []


def test_a_damaged_copy_is_fetched_again(open_store: OpenStore) -> None:
    entry = put(open_store("one"))
    expected = contents(entry)
    reader = open_store("two")
    found = entry_in(reader)
    read(reader, found)
    for chunk, content in zip(found.files, (b"", b"y" * found.files[1].bytes), strict=False):
        (found.path / chunk.path).write_bytes(content)
    assert read(reader, found) == expected


def test_a_damaged_manifest_is_no_entry_and_its_key_can_be_written_again(
    open_store: OpenStore, bucket: storage.Bucket
) -> None:
    store = open_store()
    put(store)
    (name,) = names(bucket, "some/cache/entries/")
    bucket.blob(name).upload_from_string(b"{}")
    assert store.entries() == []
    assert store.find(KEY) is None
    assert put(store).elements == 80


def test_an_entry_in_use_goes_with_its_last_reader(
    open_store: OpenStore, bucket: storage.Bucket
) -> None:
    store = open_store()
    entry = put(store)
    with store.use(KEY):
        assert store.make_ready(entry, wait_s=30)
        assert not store.drop(KEY)
        assert store.find(KEY) is None
        assert len(contents(entry)) == 4
    assert names(bucket) == []
    assert not entry.path.exists()


def test_least_worth_goes_first_and_what_is_in_use_stays(open_store: OpenStore) -> None:
    size_bytes = put(open_store()).bytes
    store = open_store(capacity_bytes=2 * size_bytes)
    put(store, OTHER)
    third = put(store, "ef" * 32)
    worth = {KEY: 1.0, OTHER: 2.0, third.key: 3.0}
    with store.use(KEY):
        assert store.make_room(0, lambda entry: worth[entry.key])
    assert [entry.key for entry in store.entries()] == [KEY, third.key]
    assert not store.make_room(3 * size_bytes, lambda entry: worth[entry.key])
    assert len(store.entries()) == 2


def test_what_dead_writers_left_is_collected_and_nothing_else(
    open_store: OpenStore, bucket: storage.Bucket, url: str
) -> None:
    store = open_store()
    put(store)
    living = write(store, OTHER)
    bucket.blob(f"some/cache/data/{KEY}/{'0' * 32}/runs/one/x.snapshot").upload_from_string(b"123")
    bucket.blob(f"some/cache/entries/{'ef' * 32}.json").upload_from_string(b"{")
    with Shelf.open(url) as shelf:
        reclaimed = shelf.collect()
    assert (reclaimed.bytes, reclaimed.writings, reclaimed.leftovers) == (4, 1, 1)
    assert store.find(KEY) is not None
    assert store.commit(living, least_runs=2, facts={}).key == OTHER


def test_all_of_an_entry_is_verified(
    open_store: OpenStore, bucket: storage.Bucket, url: str
) -> None:
    entry = put(open_store())
    with Shelf.open(url) as shelf:
        assert shelf.verify(KEY) == []
        object_of(bucket, entry.files[1]).upload_from_string(b"y" * entry.files[1].bytes)
        object_of(bucket, entry.files[2]).delete()
        assert sorted(shelf.verify(KEY)) == sorted(
            [
                f"chunk {entry.files[1].path} has another content than was written",
                f"chunk {entry.files[2].path} is missing",
            ]
        )
        assert shelf.verify(OTHER) == ["there is no such entry"]


def test_a_full_stage_gives_up_the_oldest_copies_and_says_so_if_that_is_not_enough(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    writer = open_store("one")
    old, new = put(writer, KEY), put(writer, OTHER)
    reader = open_store("two")
    found_old, found_new = reader.find(KEY), reader.find(OTHER)
    assert found_old is not None
    assert found_new is not None
    read(reader, found_old)
    free_bytes = iter([0, 1 << 40, 1 << 40])
    monkeypatch.setattr(Stage, "_free_bytes", lambda _: next(free_bytes))
    assert read(reader, found_new) == contents(new)
    assert not found_old.path.exists()
    monkeypatch.setattr(Stage, "_free_bytes", lambda _: 0)
    with reader.use(KEY), pytest.raises(CacheError, match="set cache_stage_dir"):
        reader.make_ready(found_old, wait_s=30)
    assert contents(old)


def test_a_bucket_that_is_not_there_is_one_error_that_names_the_setting(
    bucket: storage.Bucket,
) -> None:
    with pytest.raises(CacheError, match="cache_dir gs://no-such-bucket/x can't be used"):
        Shelf.open("gs://no-such-bucket/x")
    with pytest.raises(CacheError, match="names no bucket"):
        Shelf.open("gs://")


def test_a_bucket_that_is_lost_is_not_asked_again_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gcs, "RETRY_S", 0.5)
    with ObjectStore(tmp_path / "server.log") as objects:
        monkeypatch.setenv(ADDRESS, objects.url)
        with closing(storage.Client(project="test")) as client:
            client.create_bucket("lost")
        store = open_bucket("gs://lost/cache", tmp_path / "stage")
        put(store)
    assert store.find(KEY) is None
    monkeypatch.setattr("requests.Session.request", lambda *_, **__: pytest.fail("asked again"))
    assert store.find(KEY) is None
    assert store.entries() == []
    with pytest.raises(CacheError, match="gs://lost/cache failed"):
        store.begin(OTHER)
    store.close()
