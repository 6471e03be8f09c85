"""The process that has TensorFlow imported and forks a child for each assignment.

Importing TensorFlow takes seconds; a fork of a process that has it serves after some hundredths of
one. `multiprocessing`'s forkserver would do the same, but leaves its socket's folder behind when
the agent is killed, adds a resource tracker, and runs the agent's main module in each child.

Run as a module by the agent, with a socket's number and the agent's pid. Each message is one JSON
object in one packet; the children's ends of their lifelines travel beside it. The spawner ends when
the agent's end of the socket closes or the agent dies, and its children die with it.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from cachew_core.worker.child import ChildOrder, die_with_parent, serve

MAX_MESSAGE_BYTES = 65_536


def environment(own: Mapping[str, str]) -> dict[str, str]:
    """The environment of a spawner and its children.

    Args:
        own: that of the agent.
    """
    no_proxy = own.get("no_grpc_proxy", own.get("no_proxy", ""))
    return {
        "TF_CPP_MIN_LOG_LEVEL": "2",
        **own,
        # A pool of threads made at import would not live on in a forked child.
        "OPENBLAS_NUM_THREADS": "1",
        # Workers use the processor; a context on the device would take trainers' memory.
        "CUDA_VISIBLE_DEVICES": "",
        # Pipelines may need the environment's proxy to reach their files; the gate is not there.
        "no_grpc_proxy": ",".join(filter(None, (no_proxy, "127.0.0.1"))),
    }


def encode(message: dict[str, Any]) -> bytes:
    """One packet."""
    return json.dumps(message).encode()


def decode(packet: bytes) -> dict[str, Any]:
    """The message of one packet."""
    message: dict[str, Any] = json.loads(packet)
    return message


class Spawner:
    """Forks, kills and buries children as the agent says."""

    def __init__(self, control: socket.socket) -> None:
        """A spawner without children.

        Args:
            control: the connection to the agent.
        """
        self._control = control
        self._selector = selectors.DefaultSelector()
        self._selector.register(control, selectors.EVENT_READ)
        self._pids: dict[int, int] = {}
        self._pidfds: dict[int, int] = {}

    def run(self) -> None:
        """Serves the agent until it closes its end."""
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is not self._control:
                    self._bury(key.data)
                elif not self._obey():
                    return

    def _obey(self) -> bool:
        packet, fds, _, _ = socket.recv_fds(self._control, MAX_MESSAGE_BYTES, 1)
        if not packet:
            return False
        message = decode(packet)
        if message["do"] == "start":
            self._start(message["child"], ChildOrder(**message["order"]), fds[0])
        elif message["child"] in self._pids:
            os.kill(self._pids[message["child"]], signal.SIGKILL)
        return True

    def _start(self, child: int, order: ChildOrder, lifeline: int) -> None:
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._become_child(parent, order, lifeline)
        os.close(lifeline)
        self._pids[child] = pid
        self._pidfds[child] = os.pidfd_open(pid)
        self._selector.register(self._pidfds[child], selectors.EVENT_READ, data=child)
        self._control.send(encode({"event": "started", "child": child, "pid": pid}))

    def _become_child(self, parent: int, order: ChildOrder, lifeline: int) -> None:
        # Nothing may unwind into the spawner's loop, which this process is a copy of.
        try:
            die_with_parent(parent)
            self._selector.close()
            self._control.close()
            for pidfd in self._pidfds.values():
                os.close(pidfd)
            serve(order, socket.socket(fileno=lifeline))
        finally:
            os._exit(70)

    def _bury(self, child: int) -> None:
        pidfd = self._pidfds.pop(child)
        self._selector.unregister(pidfd)
        os.close(pidfd)
        _, status = os.waitpid(self._pids.pop(child), 0)
        code = os.waitstatus_to_exitcode(status)
        self._control.send(encode({"event": "ended", "child": child, "code": code}))


def main(control_fd: int, agent_pid: int) -> None:
    """Imports TensorFlow, says so, and serves the agent.

    Args:
        control_fd: a connected SOCK_SEQPACKET socket.
        agent_pid: the process to die with.
    """
    die_with_parent(agent_pid)
    # Ctrl-C and a service manager's SIGTERM are for the agent, which drains the children first.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    control = socket.socket(fileno=control_fd)
    began = time.monotonic()
    try:
        importlib.import_module("cachew_core.stock")
    except Exception as error:
        control.send(encode({"event": "broken", "error": f"{type(error).__name__}: {error}"}))
        return
    # Objects that the collector never touches stay shared between all children.
    gc.collect()
    gc.freeze()
    control.send(encode({"event": "ready", "import_s": time.monotonic() - began}))
    # An agent that is gone needs no answer.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        Spawner(control).run()


def start_message(child: int, order: ChildOrder) -> bytes:
    """The packet that has a child forked."""
    return encode({"do": "start", "child": child, "order": asdict(order)})


def kill_message(child: int) -> bytes:
    """The packet that has a child killed."""
    return encode({"do": "kill", "child": child})


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
