"""A real service of real processes for tests: one dispatcher, and agents that come and go."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import grpc
import psutil

from cachew_core.proto import cachew_pb2, cachew_pb2_grpc
from cachew_core.rpc import address_of

DEADLINE_S = 90.0  # a loaded machine imports TensorFlow for that long


def eventually(condition: Callable[[], bool], deadline_s: float = DEADLINE_S) -> None:
    """Waits until the condition holds; fails the test if it does not in time."""
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end, f"not within {deadline_s} s"
        time.sleep(0.02)


def _unless_said(flag: str, value: str, flags: tuple[str, ...]) -> list[str]:
    said = any(given.partition("=")[0] == flag for given in flags)
    return [] if said else [f"{flag}={value}"]


class Agent:
    """An agent process and all that it started."""

    def __init__(self, endpoint: str, slots: int, log: Path, *flags: str) -> None:
        command = [sys.executable, "-m", "cachew_core.cli", "worker"]
        command += ["--dispatcher", endpoint, "--slots", str(slots), *flags]
        with log.open("ab") as stream:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream
            )
        self.slots = slots

    def children(self) -> list[psutil.Process]:
        try:
            return psutil.Process(self.process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self, deadline_s: float = DEADLINE_S) -> int:
        return self.process.wait(deadline_s)


class RealService:
    """The dispatcher's process, its agents, and a view on its status."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self.folder = folder
        self._log = folder / "service.log"
        self.agents: list[Agent] = []
        endpoint_file = folder / "endpoint"
        command = [sys.executable, "-m", "cachew_core.cli", "dispatcher", "--name", "test"]
        # Most tests are about workers whose number they know, and epochs that are all alike.
        scaling = _unless_said("--scaling-policy", "all", flags)
        caching = _unless_said("--cache-policy", "compute", flags)
        # Tests that share a service may be hours apart.
        lasting = _unless_said("--idle-timeout", "86400", flags)
        command += ["--endpoint-file", str(endpoint_file), *scaling, *caching, *lasting, *flags]
        with self._log.open("ab") as stream:
            self.dispatcher = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                env=dict(os.environ),
            )
        eventually(endpoint_file.exists)
        self.endpoint = endpoint_file.read_text().strip()
        self._channel = grpc.insecure_channel(address_of(self.endpoint))
        self._stub = cachew_pb2_grpc.DispatcherStub(self._channel)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def add_agent(self, slots: int = 1, *flags: str) -> Agent:
        """One more agent; returns when its workers are in the pool."""
        before = {worker.id for worker in self.status().workers}
        agent = Agent(self.endpoint, slots, self._log, *flags)
        self.agents.append(agent)
        eventually(
            lambda: (
                agent.process.poll() is not None
                or len({worker.id for worker in self.status().workers} - before) >= slots
            )
        )
        assert agent.process.poll() is None, self.log_text()[-2000:]
        return agent

    def status(self) -> cachew_pb2.ServiceStatus:
        status: cachew_pb2.ServiceStatus = self._stub.GetStatus(
            cachew_pb2.StatusRequest(), timeout=DEADLINE_S
        )
        return status

    def job(self, name: str) -> cachew_pb2.JobStatus:
        return next(job for job in self.status().jobs if job.job_name == name)

    def epochs(self, name: str) -> list[cachew_pb2.EpochStatus]:
        return list(self.job(name).epochs)

    def workers_of(self, name: str) -> int:
        return self.job(name).workers

    def log_text(self) -> str:
        return self._log.read_text(errors="replace")

    def shutdown(self, *, drain: bool = False) -> None:
        self._stub.Shutdown(cachew_pb2.ShutdownRequest(drain=drain), timeout=DEADLINE_S)

    def stop(self) -> None:
        """Ends everything, and fails if a process survives."""
        family = [p for agent in self.agents for p in agent.children()]
        if self.dispatcher.poll() is None:
            family += psutil.Process(self.dispatcher.pid).children(recursive=True)
        if self.dispatcher.poll() is None:
            self.dispatcher.terminate()
        self.dispatcher.wait(DEADLINE_S)
        for agent in self.agents:
            if agent.process.poll() is None:
                agent.send(signal.SIGTERM)
            agent.wait()
        self._channel.close()
        _, alive = psutil.wait_procs(family, timeout=10)
        for process in alive:
            process.kill()
        assert not alive, f"left running: {alive}"
