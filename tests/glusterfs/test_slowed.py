"""A cache whose volume became slow after it was chosen: the choice is taken back, and stays so."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gluster_namespaces import TRAINER, Inside

from benchmarks.glusterfs import GlusterFS

EPOCH_TRAINER = TRAINER.with_name("epoch_trainer.py")
ELEMENTS = 300
WORK_US = 30_000
FAST_BYTES_PER_S = 400_000_000
SLOW_BYTES_PER_S = 2_000_000
"""An epoch is 30 MB: 15 s from then on, and 4.5 s to compute with two workers."""
MOST_EPOCHS = 20


class EpochTrainer:
    """A training that reads an epoch when it is told to."""

    def __init__(self, server: GlusterFS, environment: dict[str, str], service: str) -> None:
        command = [sys.executable, str(EPOCH_TRAINER), service, "job", str(ELEMENTS), str(WORK_US)]
        self._process = subprocess.Popen(
            server.inside(command),
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def read(self) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        epoch: dict[str, Any] = json.loads(self._process.stdout.readline())
        assert epoch["whole"], epoch
        return epoch

    def end(self) -> None:
        self._process.communicate()
        assert self._process.returncode == 0


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[GlusterFS]:
    with GlusterFS({"slowed": FAST_BYTES_PER_S}, folder=tmp_path) as server:
        yield server


@pytest.mark.timeout(900)
def test_a_cache_that_became_slow_is_given_up_within_two_epochs_and_in_the_next_run(
    volume: GlusterFS, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    inside = Inside(volume, home, tmp_path)
    environment = {**os.environ, "CACHEW_HOME": str(home)}
    flags = ["--store", "weekly", "--cache-dir", str(inside.path("slowed"))]
    try:
        assert (
            inside.cachew("up", "one", "--workers=2", "--cache-policy=auto", *flags).returncode == 0
        )
        trainer = EpochTrainer(volume, environment, "one")
        epochs = [trainer.read()]
        while epochs[-1]["mode"] != "GET":
            assert len(epochs) < MOST_EPOCHS, epochs[-1]["reasons"]
            epochs.append(trainer.read())

        _limit(inside, SLOW_BYTES_PER_S)
        assert [trainer.read()["mode"] for _ in range(2)] == ["GET", "GET"]
        after = [trainer.read() for _ in range(2)]
        assert [epoch["mode"] for epoch in after] == ["COMPUTE", "COMPUTE"], after[-1]["reasons"]
        assert "worse" in after[-1]["reasons"][-1]
        trainer.end()
        assert inside.cachew("down", "one").returncode == 0

        assert (
            inside.cachew("up", "two", "--workers=2", "--cache-policy=auto", *flags).returncode == 0
        )
        trainer = EpochTrainer(volume, environment, "two")
        next_run = [trainer.read() for _ in range(3)]
        assert [epoch["mode"] for epoch in next_run] == ["COMPUTE"] * 3, next_run[-1]["reasons"]
        trainer.end()
    finally:
        for name in ("one", "two"):
            inside.cachew("down", name)


def _limit(inside: Inside, bytes_per_s: int) -> None:
    for group in ("1:10", "1:11"):
        rate = ["rate", str(8 * bytes_per_s), "burst", "256k", "cburst", "256k", "quantum", "65536"]
        where = ["dev", "lo", "parent", "1:", "classid", group, "htb"]
        changed = inside.run("tc", "class", "change", *where, *rate)
        assert changed.returncode == 0, changed.stderr
