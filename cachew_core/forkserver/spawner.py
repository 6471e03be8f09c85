"""The process that has TensorFlow imported and forks a child for each stock server and for each
measurement.

Importing TensorFlow takes seconds; a fork of a process that has it serves after some hundredths of
one. `multiprocessing`'s forkserver would do the same, but leaves its socket's folder behind when
its maker is killed, adds a resource tracker, and runs the maker's main module in each child.

An agent, which has no TensorFlow, runs this as a module, with a socket's number and its own pid; a
dispatcher, which has it, forks itself. Each message is one JSON object in one packet; the
children's ends of their lifelines, and other files for them, travel beside it. The spawner ends
when its maker's end of the socket closes or the maker dies, and its children die with it.
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
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any, TypeAlias

from cachew_core.forkserver.child import (
    DispatchOrder,
    ExamineOrder,
    MeasureOrder,
    WorkerOrder,
    die_with_parent,
    dispatch,
    examine,
    measure,
    work,
)

MAX_MESSAGE_BYTES = 65_536
MAX_FILES = 3

LOG_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
"""The least severe of TensorFlow's lines that are wanted: 0 information, 1 warnings, 2 errors."""

Order: TypeAlias = WorkerOrder | DispatchOrder | ExamineOrder | MeasureOrder

_WORK: dict[str, tuple[type[Order], Callable[..., None]]] = {
    "WorkerOrder": (WorkerOrder, work),
    "DispatchOrder": (DispatchOrder, dispatch),
    "ExamineOrder": (ExamineOrder, examine),
    "MeasureOrder": (MeasureOrder, measure),
}


def environment(own: Mapping[str, str]) -> dict[str, str]:
    """The environment of a spawner and its children.

    Args:
        own: that of their maker.
    """
    no_proxy = own.get("no_grpc_proxy", own.get("no_proxy", ""))
    return {
        **own,
        # What `ignore_errors` swallows is a warning; an agent leaves out what nobody asked for.
        LOG_LEVEL: "0" if own.get(LOG_LEVEL) == "0" else "1",
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
    """Forks, kills and buries children as its maker says."""

    def __init__(self, control: socket.socket) -> None:
        """A spawner without children.

        Args:
            control: the connection to its maker.
        """
        self._control = control
        self._selector = selectors.DefaultSelector()
        self._selector.register(control, selectors.EVENT_READ)
        self._pids: dict[int, int] = {}
        self._pidfds: dict[int, int] = {}

    def run(self) -> None:
        """Serves its maker until that one closes its end."""
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is not self._control:
                    self._bury(key.data)
                elif not self._obey():
                    return

    def _obey(self) -> bool:
        packet, fds, _, _ = socket.recv_fds(self._control, MAX_MESSAGE_BYTES, MAX_FILES)
        if not packet:
            return False
        message = decode(packet)
        if message["do"] == "start":
            order_type, function = _WORK[message["type"]]
            order = order_type(**message["order"])
            self._start(message["child"], partial(function, order), fds)
        elif message["child"] in self._pids:
            os.kill(self._pids[message["child"]], signal.SIGKILL)
        return True

    def _start(self, child: int, function: Callable[..., None], files: list[int]) -> None:
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._become_child(parent, function, files)
        for file in files:
            os.close(file)
        self._pids[child] = pid
        self._pidfds[child] = os.pidfd_open(pid)
        self._selector.register(self._pidfds[child], selectors.EVENT_READ, data=child)
        self._control.send(encode({"event": "started", "child": child, "pid": pid}))

    def _become_child(self, parent: int, function: Callable[..., None], files: list[int]) -> None:
        # Nothing may unwind into the spawner's loop, which this process is a copy of.
        try:
            die_with_parent(parent)
            self._selector.close()
            self._control.close()
            for pidfd in self._pidfds.values():
                os.close(pidfd)
            function(socket.socket(fileno=files[0]), *files[1:])
        finally:
            os._exit(70)

    def _bury(self, child: int) -> None:
        pidfd = self._pidfds.pop(child)
        self._selector.unregister(pidfd)
        os.close(pidfd)
        _, status = os.waitpid(self._pids.pop(child), 0)
        code = os.waitstatus_to_exitcode(status)
        self._control.send(encode({"event": "ended", "child": child, "code": code}))


def main(control_fd: int, maker_pid: int) -> None:
    """Imports TensorFlow, says so, and serves its maker.

    Args:
        control_fd: a connected SOCK_SEQPACKET socket.
        maker_pid: the process to die with.
    """
    die_with_parent(maker_pid)
    # Ctrl-C and a service manager's SIGTERM are for the maker, which ends the children in order.
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
    # A maker that is gone needs no answer.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        Spawner(control).run()


def start_message(child: int, order: Order) -> bytes:
    """The packet that has a child forked."""
    kind = type(order).__name__
    return encode({"do": "start", "child": child, "type": kind, "order": asdict(order)})


def kill_message(child: int) -> bytes:
    """The packet that has a child killed."""
    return encode({"do": "kill", "child": child})


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
