"""An epoch that writes the cache gives all its elements, whatever becomes of the cache."""

from __future__ import annotations

import os
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest
import tensorflow as tf
from cached_jobs import Trainer, modes, multiset, reasons
from real_service import RealService, eventually

import cachew_core as cachew

VOLUME_BYTES = 112 * 2**20
MIB = 2**20


def served(service: RealService, dataset: tf.data.Dataset, job: str) -> tf.data.Dataset:
    return dataset.apply(cachew.distribute(service.endpoint, job_name=job, cache_policy="full"))


def blocks(count: int, microseconds: int = 5_000) -> tf.data.Dataset:
    """Elements of 1 MiB, all different."""
    numbers = tf.data.Dataset.range(count).map(lambda i: tf.fill([MIB // 8], i))
    return numbers.apply(cachew.sleep(microseconds))


def expected(count: int) -> Counter[str]:
    return multiset(blocks(count, 0))


def drops(service: RealService, job: str) -> list[str]:
    lines = service.log_text().splitlines()
    return [line for line in lines if f"job {job}: what epoch 1 wrote" in line]


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[Path]:
    """A small volume of its own."""
    folder = tmp_path / "volume"
    folder.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={VOLUME_BYTES}", "cachew-test", str(folder)]
    mounted = subprocess.run(["mount", *options], capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"a tmpfs can't be mounted here: {mounted.stderr.strip()}")
    yield folder
    while os.path.ismount(folder):
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture
def small(volume: Path, tmp_path: Path) -> Iterator[RealService]:
    """A service with two workers whose cache is that volume."""
    with RealService(tmp_path, f"--cache-dir={volume}") as running:
        running.add_agent(slots=2)
        yield running


def test_a_disk_that_fills_up_costs_the_cache_and_not_the_epoch(
    small: RealService, volume: Path
) -> None:
    dataset = served(small, blocks(240), "full disk")
    assert multiset(dataset) == expected(240)
    eventually(lambda: bool(drops(small, "full disk")))
    (line,) = drops(small, "full disk")
    assert "bytes are left on its volume" in line
    eventually(lambda: not any(volume.glob("writing/*")))
    assert not any(volume.glob("entries/*"))
    assert psutil.disk_usage(str(volume)).used < MIB
    assert multiset(dataset) == expected(240)
    assert multiset(dataset) == expected(240)
    assert modes(small, "full disk") == ["PUT", "PUT", "COMPUTE"]
    assert "wrote it in vain" in reasons(small, "full disk")


def test_a_mount_that_is_lost_costs_the_cache_and_not_the_epoch(
    small: RealService, volume: Path
) -> None:
    dataset = served(small, blocks(80, 20_000), "lost mount")
    trainer = Trainer(dataset)
    eventually(partial(trainer.has, 20))
    subprocess.run(["umount", "-l", str(volume)], check=True)
    assert trainer.done() == expected(80)
    eventually(lambda: bool(drops(small, "lost mount")))
    assert multiset(dataset) == expected(80)
    assert modes(small, "lost mount") == ["PUT", "COMPUTE"]
    assert not list(volume.rglob("*.snapshot"))


@pytest.mark.parametrize("what", ["*/*.shard/*.snapshot", "*/*.shard", "snapshot.metadata", ""])
def test_what_vanishes_before_the_commit_is_missed(
    caching: RealService, tmp_path: Path, what: str
) -> None:
    job = f"vanished {what or 'run'}"
    # What was written is known by its source file, so that no other job has written it.
    source = tmp_path / "source"
    tf.io.write_file(str(source), job)
    pipeline = blocks(120, 60_000).map(lambda x: (x, tf.io.read_file(str(source))))
    trainer = Trainer(served(caching, pipeline, job))
    writing = caching.folder / "cache" / "writing"
    done = "*/runs/*/00000000/*/*/*.snapshot"
    later = "*/runs/*/00000001/snapshot.metadata"
    eventually(lambda: any(writing.glob(done)) and any(writing.glob(later)))
    run = next(writing.glob(later)).parents[1]
    pattern = f"00000000/{what}" if what else ""
    target = next(run.glob(pattern)) if pattern else run
    target.rename(tmp_path / "gone")
    assert trainer.done() == multiset(pipeline)
    eventually(lambda: bool(drops(caching, job)))
    assert len(drops(caching, job)) == 1


def test_an_epoch_that_writes_much_takes_little_memory(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    with RealService(tmp_path, f"--cache-dir={cache}") as service:
        agent = service.add_agent()
        over = threading.Event()
        peak = 0

        def watch() -> None:
            nonlocal peak
            while not over.wait(0.05):
                for child in agent.children():
                    try:
                        peak = max(peak, child.memory_info().rss)
                    except psutil.NoSuchProcess:
                        continue

        watching = threading.Thread(target=watch)
        watching.start()
        try:
            seen = sum(1 for _ in served(service, blocks(2048, 0), "much"))
        finally:
            over.set()
            watching.join()
        assert seen == 2048
        assert modes(service, "much") == ["PUT"]
        eventually(lambda: "job much: epoch 1 stored 2048 elements" in service.log_text())
        assert 0 < peak < 2**30
