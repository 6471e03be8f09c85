"""When stored data is used, when it is not, and that no failure of the cache harms a training."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from cached_jobs import Trainer, await_stored, modes, multiset, reasons, text_of
from real_service import RealService, eventually

import cachew_core as cachew


def served(
    service: RealService, dataset: tf.data.Dataset, job: str, policy: str = "full", **options: Any
) -> tf.data.Dataset:
    return dataset.apply(
        cachew.distribute(service.endpoint, job_name=job, cache_policy=policy, **options)
    )


def write(path: str | Path, *rows: str) -> None:
    with tf.io.TFRecordWriter(str(path)) as writer:
        for row in rows:
            writer.write(row)


def texts(*rows: str) -> Counter[str]:
    return Counter(f"string () {row.encode()!r}" for row in rows)


def entry_of(cache: Path, job: str) -> Path:
    """The folder of what a job has stored."""
    for manifest in cache.glob("entries/*/manifest.json"):
        if json.loads(manifest.read_text())["manifest"]["facts"]["job"] == job:
            return manifest.parent
    raise AssertionError(f"job {job} has no entry")


def slow_records(folder: Path, rows: int = 40) -> tf.data.Dataset:
    """Twenty files with so many records each, and 5 ms of work for each record."""
    for number in range(20):
        write(folder / f"slow-{number}.tfrecord", *(f"{number}-{row}" for row in range(rows)))
    reading = tf.data.Dataset.from_tensor_slices(files(folder)).interleave(tf.data.TFRecordDataset)
    return reading.apply(cachew.sleep(5_000))


def files(folder: Path) -> list[str]:
    return [str(folder / f"slow-{number}.tfrecord") for number in range(20)]


# Source files


def test_a_file_that_is_added_or_removed_behind_a_glob_is_seen_by_the_next_run(
    caching: RealService, tmp_path: Path
) -> None:
    def run(job: str) -> tuple[Counter[str], list[str]]:
        found = tf.data.Dataset.list_files(str(tmp_path / "*.tfrecord"))
        dataset = served(caching, found.interleave(tf.data.TFRecordDataset), job)
        got = multiset(dataset)
        if modes(caching, job) == ["PUT"]:
            await_stored(caching, job)
        return got, modes(caching, job)

    write(tmp_path / "a.tfrecord", "a0", "a1")
    write(tmp_path / "b.tfrecord", "b0")
    assert run("glob 1") == (texts("a0", "a1", "b0"), ["PUT"])
    assert run("glob 2") == (texts("a0", "a1", "b0"), ["GET"])
    write(tmp_path / "c.tfrecord", "c0")
    assert run("added") == (texts("a0", "a1", "b0", "c0"), ["PUT"])
    (tmp_path / "a.tfrecord").unlink()
    assert run("removed") == (texts("b0", "c0"), ["PUT"])


def test_nothing_is_stored_of_files_that_changed_while_they_were_read(
    caching: RealService, tmp_path: Path
) -> None:
    for path in files(tmp_path):
        write(Path(path), *(f"old {number}" for number in range(10)))
    pipeline = tf.data.Dataset.from_tensor_slices(files(tmp_path)).interleave(
        tf.data.TFRecordDataset, cycle_length=1
    )
    dataset = served(caching, pipeline.apply(cachew.sleep(5_000)), "changed while it was read")
    trainer = Trainer(dataset, hold_at=20)
    eventually(lambda: trainer.has(20))
    for path in files(tmp_path):
        write(tmp_path / "new", "new")
        (tmp_path / "new").rename(path)
    trainer.go_on()
    trainer.done()
    news = Counter({text: 20 for text in texts("new")})
    assert multiset(dataset) == news
    await_stored(caching, "changed while it was read", epoch=2)
    assert multiset(dataset) == news
    assert modes(caching, "changed while it was read") == ["PUT", "PUT", "GET"]
    assert "is dropped: source files changed while they were read" in caching.log_text()


def test_files_that_are_trusted_are_read_from_the_cache_although_they_changed(
    caching: RealService, records: list[str]
) -> None:
    pipeline = tf.data.TFRecordDataset(records)
    dataset = served(caching, pipeline, "trusted", trust_sources=True)
    before = multiset(dataset)
    await_stored(caching, "trusted")
    write(records[0], "new")
    assert multiset(dataset) == before
    assert modes(caching, "trusted") == ["PUT", "GET"]


@pytest.mark.parametrize("how", ["rewritten", "removed", "added"])
def test_named_sources_are_looked_at_although_the_pipeline_does_not_name_them(
    caching: RealService, tmp_path: Path, how: str
) -> None:
    folder = tmp_path / "named"
    folder.mkdir()
    for row in ("x", "y"):
        (folder / row).write_text(row)
    read = tf.data.Dataset.range(20).map(
        lambda i: tf.strings.join(
            [tf.strings.as_string(i), tf.strings.reduce_join(read_all(str(folder)))]
        )
    )
    job = f"named {how}"
    dataset = served(caching, read, job, sources=[folder])
    before = multiset(dataset)
    await_stored(caching, job)
    assert multiset(dataset) == before
    CHANGES[how](folder)
    after = multiset(dataset)
    assert after == multiset(read)
    assert after != before
    assert modes(caching, job) == ["PUT", "GET", "PUT"]


def read_all(folder: str) -> tf.Tensor:
    found = tf.io.matching_files(f"{folder}/*")
    return tf.map_fn(tf.io.read_file, found)


CHANGES: dict[str, Callable[[Path], Any]] = {
    "rewritten": lambda folder: (folder / "x").write_text("other"),
    "removed": lambda folder: (folder / "x").unlink(),
    "added": lambda folder: (folder / "z").write_text("z"),
}


# Random numbers


def drawn(element: tf.Tensor) -> tf.Tensor:
    return element + tf.random.uniform([], maxval=1 << 40, dtype=tf.int64)


@pytest.mark.parametrize("policy", ["full", "source"])
def test_random_numbers_are_not_stored_and_the_decision_names_what_draws_them(
    caching: RealService, policy: str
) -> None:
    job = f"random {policy}"
    pipeline = tf.data.Dataset.range(30).map(drawn).apply(cachew.mark())
    dataset = served(caching, pipeline, job, policy)
    epochs = [multiset(dataset) for _ in range(3)]
    assert not any(one & other for one, other in combinations(epochs, 2))
    assert modes(caching, job) == ["COMPUTE"] * 3
    assert "`map` (function `drawn`) draws random numbers (RandomUniformInt)" in reasons(
        caching, job
    )


def test_random_numbers_behind_the_mark_are_drawn_anew_in_each_epoch_that_is_read(
    caching: RealService,
) -> None:
    pipeline = tf.data.Dataset.range(30).apply(cachew.mark()).map(drawn)
    dataset = served(caching, pipeline, "random behind", "source")
    multiset(dataset)
    await_stored(caching, "random behind")
    epochs = [multiset(dataset) for _ in range(2)]
    assert not epochs[0] & epochs[1]
    assert modes(caching, "random behind") == ["PUT_SOURCE", "GET_SOURCE", "GET_SOURCE"]


def test_random_numbers_are_stored_where_the_mark_allows_it(caching: RealService) -> None:
    pipeline = tf.data.Dataset.range(30).map(drawn).apply(cachew.mark(allow_random=True))
    dataset = served(caching, pipeline, "allowed", "source")
    first = multiset(dataset)
    await_stored(caching, "allowed")
    assert [multiset(dataset) for _ in range(2)] == [first] * 2
    assert modes(caching, "allowed") == ["PUT_SOURCE", "GET_SOURCE", "GET_SOURCE"]


# Damage


def cut(chunk: Path) -> None:
    content = chunk.read_bytes()
    chunk.write_bytes(content[: len(content) // 2])


def flip(chunk: Path) -> None:
    content = bytearray(chunk.read_bytes())
    content[len(content) // 2] ^= 1
    chunk.write_bytes(content)


DAMAGES: dict[str, Callable[[Path], None]] = {"missing": Path.unlink, "short": cut, "other": flip}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_chunk_is_found_before_the_epoch_and_written_again(
    caching: RealService, records: list[str], damage: str
) -> None:
    pipeline, job = tf.data.TFRecordDataset(records), f"damaged {damage}"
    dataset = served(caching, pipeline, job)
    expected = multiset(pipeline)
    assert multiset(dataset) == expected
    await_stored(caching, job)
    entry = entry_of(caching.folder / "cache", job)
    DAMAGES[damage](max(entry.rglob("*.snapshot"), key=lambda path: path.stat().st_size))
    assert multiset(dataset) == expected
    await_stored(caching, job, 2)
    assert multiset(dataset) == expected
    assert modes(caching, job) == ["PUT", "PUT", "GET"]
    assert caching.log_text().count(f"Cache entry {entry.name} is given up") == 1


def cut_behind_the_first_record(chunk: Path) -> None:
    with chunk.open("rb+") as stream:
        length = int.from_bytes(stream.read(8), "little")
        # Its length and that one's checksum stand in front of a record, another checksum behind it.
        stream.truncate(length + 16)


@pytest.mark.parametrize("damage", [Path.unlink, cut_behind_the_first_record])
def test_a_chunk_that_is_damaged_while_it_is_read_never_makes_an_epoch_short(
    caching: RealService, damage: Callable[[Path], None]
) -> None:
    job = f"read, then {damage.__name__}"
    blocks = tf.data.Dataset.range(256).map(lambda i: tf.fill([2**17], i + len(job)))
    dataset = served(caching, blocks, job)
    expected = multiset(blocks)
    assert multiset(dataset) == expected
    await_stored(caching, job)
    elements = iter(dataset)
    got = Counter([text_of(next(elements))])
    for chunk in entry_of(caching.folder / "cache", job).rglob("*.snapshot"):
        damage(chunk)
    try:
        for element in elements:
            got[text_of(element)] += 1
    except tf.errors.OpError:
        assert got < expected
    else:
        assert got == expected
        assert damage is Path.unlink
    assert multiset(dataset) == expected
    assert modes(caching, job) == ["PUT", "GET", "PUT"]


# Several at a time


def test_of_two_jobs_with_the_same_pipeline_one_writes_and_the_other_computes(
    caching: RealService, tmp_path: Path
) -> None:
    pipeline = slow_records(tmp_path)
    first, second = (served(caching, pipeline, f"twin {n}") for n in (1, 2))
    writing = Trainer(first)
    eventually(partial(writing.has, 1))
    computing = Trainer(second)
    eventually(partial(computing.has, 1))
    assert modes(caching, "twin 1") == ["PUT"]
    assert modes(caching, "twin 2") == ["COMPUTE"]
    assert "another epoch is writing the same data" in reasons(caching, "twin 2")
    expected = writing.done()
    assert expected.total() == 800 == len(expected)
    assert computing.done() == expected
    await_stored(caching, "twin 1")
    assert multiset(second) == expected
    assert modes(caching, "twin 2") == ["COMPUTE", "GET"]


def test_a_second_trainer_that_joins_an_epoch_that_writes_leaves_it_whole(
    caching: RealService, tmp_path: Path
) -> None:
    pipeline = slow_records(tmp_path)
    trainers = []
    for _ in range(2):
        trainers.append(Trainer(served(caching, pipeline, "joined")))
        eventually(partial(trainers[-1].has, 10))
    parts = [trainer.done() for trainer in trainers]
    both = parts[0] + parts[1]
    assert all(parts)
    assert both.total() == 800 == len(both)
    await_stored(caching, "joined")
    assert multiset(served(caching, pipeline, "joined alone")) == both
    assert modes(caching, "joined") == ["PUT"]
    assert modes(caching, "joined alone") == ["GET"]


# The life of services and folders

TRAINER = """
import sys, tensorflow as tf, cachew_core as cachew
reading = tf.data.Dataset.from_tensor_slices(sys.argv[2:]).interleave(tf.data.TFRecordDataset)
service = cachew.distribute(sys.argv[1], job_name="first", cache_policy="full")
list(reading.apply(cachew.sleep(5_000)).apply(service))
"""


def kill(service: RealService, trainer: subprocess.Popen[bytes]) -> None:
    """The end of a machine: nothing is told, nothing is cleaned up."""
    agents = [agent.process for agent in service.agents]
    family = [child.pid for agent in service.agents for child in agent.children()]
    roots = [process.pid for process in (service.dispatcher, trainer, *agents)]
    for pid in [*roots, *family]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    service.dispatcher.wait(10)
    for agent in agents:
        agent.wait(10)


def test_a_killed_service_leaves_nothing_that_harms_the_next_ones(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    pipeline = slow_records(tmp_path, rows=30)
    with ExitStack() as stack:

        def start(name: str) -> RealService:
            (tmp_path / name).mkdir()
            flags = (f"--cache-dir={cache}", f"--name={name}")
            service = stack.enter_context(RealService(tmp_path / name, *flags))
            service.add_agent()
            return service

        killed = start("killed")
        command = [sys.executable, "-c", TRAINER, killed.endpoint, *files(tmp_path)]
        with (tmp_path / "trainer.log").open("wb") as log:
            trainer = subprocess.Popen(command, stdout=log, stderr=log)
        stack.callback(trainer.wait)
        stack.callback(trainer.kill)
        eventually(lambda: any(cache.glob("writing/*/runs/*/*/*/*/*.snapshot")))
        (dead,) = cache.glob("writing/*")
        kill(killed, trainer)

        successor = start("successor")
        assert not dead.exists()
        expected = multiset(served(successor, pipeline, "second"))
        assert expected.total() == 600 == len(expected)
        await_stored(successor, "second")
        assert modes(successor, "second") == ["PUT"]
        assert dead.name.startswith(entry_of(cache, "second").name)
        assert list(cache.glob("writing/*")) == list(cache.glob("trash/*")) == []
        successor.stop()

        third = start("third")
        assert multiset(served(third, pipeline, "later")) == expected
        assert modes(third, "later") == ["GET"]


@pytest.fixture(scope="module")
def breaking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealService]:
    """A service with one worker whose cache may be broken."""
    folder = tmp_path_factory.mktemp("breaking")
    (folder / "cache").mkdir()
    with RealService(folder, f"--cache-dir={folder / 'cache'}") as running:
        running.add_agent()
        yield running


def test_training_goes_on_when_the_cache_can_not_be_written(
    breaking: RealService, records: list[str]
) -> None:
    pipeline = tf.data.TFRecordDataset(records)
    dataset = served(breaking, pipeline, "unwritable")
    # Modes are nothing to a superuser, so a file stands where a folder should be.
    writing = breaking.folder / "cache" / "writing"
    shutil.rmtree(writing)
    writing.write_text("not a folder")
    expected = multiset(pipeline)
    assert [multiset(dataset) for _ in range(2)] == [expected] * 2
    assert modes(breaking, "unwritable") == ["COMPUTE"] * 2
    assert "the cache can't be used" in reasons(breaking, "unwritable")
    writing.unlink()


def test_training_goes_on_when_the_cache_is_lost_while_it_is_written(
    breaking: RealService, tmp_path: Path
) -> None:
    dataset = served(breaking, slow_records(tmp_path), "lost")
    trainer = Trainer(dataset)
    eventually(partial(trainer.has, 50))
    shutil.rmtree(breaking.folder / "cache")
    got = trainer.done()
    assert got.total() == 800 == len(got)
    assert multiset(dataset) == got
    assert modes(breaking, "lost") == ["PUT", "COMPUTE"]
    assert "the cache can't be used" in reasons(breaking, "lost")
