"""An agent as a real process, before a scripted dispatcher."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
from command_post import CommandPost
from real_service import DEADLINE_S, eventually


class AgentProcess:
    """An agent, and everything that it started, in a folder of its own."""

    def __init__(self, folder: Path, port: int, **settings: object) -> None:
        self.log = folder / "agent.log"
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        given = {"dispatcher": f"grpc://127.0.0.1:{port}", **settings}
        own = {f"CACHEW_{name.upper()}": str(value) for name, value in given.items()}
        # A proxy that is down: no process of a service may ask it for another one.
        proxy = {"http_proxy": "http://127.0.0.1:9", "grpc_proxy": "http://127.0.0.1:9"}
        with self.log.open("wb") as stream:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "cachew_core.cli", "worker"],
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                env={**os.environ, **proxy, **own, "TMPDIR": str(self.temporary)},
                start_new_session=True,
            )
        self._family: set[psutil.Process] = set()

    @property
    def pid(self) -> int:
        return self.process.pid

    def family(self) -> set[psutil.Process]:
        """All processes that were ever seen below it."""
        if self.process.poll() is None:
            self._family |= set(psutil.Process(self.pid).children(recursive=True))
        return self._family

    def signal_its_group(self, number: signal.Signals) -> None:
        """What Ctrl-C in a terminal does."""
        os.killpg(self.pid, number)

    def wait(self) -> int:
        return self.process.wait(DEADLINE_S)

    def wait_until_nothing_is_left(self) -> None:
        """Fails the test if a process or a file of it stays."""
        assert self._family, "nothing was seen that could be left"
        eventually(lambda: not any(alive(process) for process in self._family))
        assert list(self.temporary.iterdir()) == []

    def end(self) -> None:
        self.family()
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        eventually(lambda: not any(alive(process) for process in self._family))


def alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def refuses(address: str) -> bool:
    """Whether nobody listens there."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except ConnectionRefusedError:
        return True
    return False


class Crew:
    """An agent of three slots and its dispatcher, shared by tests that leave them as they were."""

    def __init__(self, post: CommandPost, agent: AgentProcess) -> None:
        self.post = post
        self.agent = agent
        self._assigned = 0

    def assign(self, address: str, *, slot: int = 0) -> str:
        """Assigns, and returns the new assignment's id."""
        self._assigned += 1
        self.post.assign(f"a{self._assigned}", address, slot=slot)
        return f"a{self._assigned}"


StartAgent = Callable[..., AgentProcess]
