"""Services and trainings in the namespaces of a GlusterFS server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import benchmarks_package  # noqa: F401

from benchmarks.glusterfs import GlusterFS

TRAINER = Path(__file__).resolve().with_name("gluster_trainer.py")
COMMAND_S = 240.0


class Trainer:
    """A training inside; it holds where it was told to, until it may go on."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def await_hold(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline().strip() == "holds"

    def go_on(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def done(self) -> dict[str, Any]:
        """What it read and what was decided, once it is through."""
        out, error = self._process.communicate(timeout=COMMAND_S)
        assert self._process.returncode == 0, error[-3000:]
        read: dict[str, Any] = json.loads(out.strip().splitlines()[-1])
        return read


class Inside:
    """The namespaces of a server, with a folder for services."""

    def __init__(self, server: GlusterFS, home: Path, lake: Path) -> None:
        self._server = server
        self._environment = {**os.environ, "CACHEW_HOME": str(home)}
        self._lake = lake

    def path(self, volume: str) -> Path:
        return self._server.path(volume)

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self._server.inside(command),
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )

    def cachew(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.run(sys.executable, "-m", "cachew_core.cli", *arguments)

    def up(self, name: str, volume: str) -> subprocess.CompletedProcess[str]:
        """A service that stores on a volume; its store has the volume's name."""
        flags = ["--store", volume, "--cache-dir", str(self.path(volume)), "--cache-needs-mount"]
        return self.cachew("up", name, "--workers", "2", "--cache-policy", "full", *flags)

    def train(self, service: str, job: str, *, epochs: int, hold_at: int = 0) -> Trainer:
        """A training of so many epochs; it holds at that element of the last one."""
        command = [sys.executable, str(TRAINER), service, job, str(self._lake), str(epochs)]
        return Trainer(
            subprocess.Popen(
                self._server.inside([*command, *[str(hold_at)] * bool(hold_at)]),
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )

    def kill_brick(self, volume: str) -> None:
        """The volume's only server dies: what is asked of its mount fails from now on."""
        killed = self.run("pkill", "--signal", "KILL", "--full", f"glusterfsd.*brick-{volume}")
        assert killed.returncode == 0, killed.stderr
