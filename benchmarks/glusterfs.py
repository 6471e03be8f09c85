"""A GlusterFS server for tests and benchmarks: real, on this machine, and gone at the end.

It has mount, network and process namespaces of its own, so nothing else on the machine sees it. Who
uses its volumes must be in there, too: `inside` says how to start a program there.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from cachew_components import stop_signals

_ROOT = Path(__file__).resolve().parent.parent
_PROGRAMS = ("unshare", "nsenter", "ip", "tc", "mount", "glusterd", "gluster", "mount.glusterfs")
_READY_S = 120.0
_END_S = 20.0


class GlusterError(Exception):
    """The server did not start, with what it said."""


def missing() -> str:
    """What this machine lacks for a server; empty: nothing."""
    if os.geteuid() != 0:
        return "GlusterFS can be mounted by root only"
    if not Path("/dev/fuse").exists():
        return "there is no /dev/fuse to mount GlusterFS with"
    lacking = [program for program in _PROGRAMS if shutil.which(program) is None]
    if lacking:
        return (
            f"there is no {', no '.join(lacking)} here (Debian: apt-get install glusterfs-server "
            "glusterfs-client iproute2 util-linux)"
        )
    return ""


class GlusterFS:
    """Runs while its context is open.

    Args:
        volumes: the bytes a second that can be read from each, and as many be written at the same
            time; 0: no limit. What is read from a volume with a limit is not kept in memory.
        folder: in which to make a folder for all of it, on a disk. None: the one for such files.
    """

    def __init__(self, volumes: Mapping[str, int], *, folder: Path | None = None) -> None:
        self._volumes = dict(volumes)
        self._parent = folder
        self._folder = Path()
        self._first_pid = 0
        self._process: subprocess.Popen[str] | None = None

    def path(self, volume: str) -> Path:
        """Where a volume is mounted, for programs `inside`."""
        return self._folder / volume

    @property
    def folder(self) -> Path:
        """For whatever must be gone when the server has ended, also if who made it was killed."""
        return self._folder

    def inside(self, command: Sequence[str]) -> list[str]:
        """The command that runs another one in the server's namespaces, in the folder that holds
        the benchmarks. It is killed when the server ends.
        """
        return ["nsenter", f"--target={self._first_pid}", "-m", "-n", "-p", "-w", *command]

    def __enter__(self) -> Self:
        """Starts the server and mounts its volumes.

        Raises:
            GlusterError: that did not work.
        """
        self._folder = Path(tempfile.mkdtemp(prefix="glusterfs-", dir=self._parent))
        try:
            self._start()
        except BaseException:
            with stop_signals.deferred():
                self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with stop_signals.deferred():
            self._end()

    def _start(self) -> None:
        namespaces = ["--mount", "--net", "--pid", "--fork", "--mount-proc", "--kill-child"]
        server = [sys.executable, str(Path(__file__).with_name("glusterfs_server.py"))]
        with (self._folder / "server.log").open("w") as log:
            self._process = subprocess.Popen(
                ["unshare", *namespaces, *server, str(self._folder), json.dumps(self._volumes)],
                cwd=_ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], _READY_S)
        if not ready or not self._process.stdout.readline():
            said = (self._folder / "server.log").read_text().strip()
            raise GlusterError(f"GlusterFS did not start: {said or f'not within {_READY_S:g} s'}")
        (first,) = psutil.Process(self._process.pid).children()
        self._first_pid = first.pid

    def _end(self) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.close()
            try:
                self._process.wait(_END_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process.stdout.close()
        shutil.rmtree(self._folder)
