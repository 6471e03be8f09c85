"""What runs in a process that is forked from the spawner: a stock server, until its maker lets go;
or the measurement of one pipeline.

The spawner has imported TensorFlow; an agent, which reads the orders from here, has not. So
TensorFlow is imported inside the functions.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import socket
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NoReturn

FAILED = 3
"""Exit code of a child that has written to its lifeline why it could not do its work."""

MAX_ERROR_BYTES = 16_384

ARENAS = 2
TRIM_S = 2.0
"""Threads allocate from so many arenas, and what is free there goes back to the system that often.
By default glibc has eight for each core, and keeps what each held at most: a worker grew from 26 to
106 MB in 60 epochs of a shuffle, and stays at 28 MB so.
"""

_M_ARENA_MAX = -8
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOrder:
    """The stock WorkerServer of one assignment."""

    gate_address: str
    """`host:port` of what it takes for its dispatcher."""
    address: str
    """`host:port` that trainers are told."""
    port: int
    heartbeat_interval_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchOrder:
    """The stock DispatchServer of one generation; see `stock.start_dispatch_server`."""

    port: int
    work_dir: str
    client_timeout_ms: int
    job_gc_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureOrder:
    """What one child is to measure; see `cachew_core.pipeline.profiling.profile`."""

    points: tuple[str, ...]
    scratch: str
    budget_s: float
    batches: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExamineOrder:
    """Which files one child is to read; see `cachew_core.pipeline.examining.broken_files`."""

    patterns: tuple[str, ...]
    budget_s: float


def die_with_parent(parent_pid: int) -> None:
    """Has Linux kill this process when the thread that made it ends.

    Args:
        parent_pid: who made it; if that one is gone already, this process ends here.
    """
    if _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"prctl(PR_SET_PDEATHSIG): {os.strerror(code)}")
    if os.getppid() != parent_pid:
        os._exit(0)


def work(order: WorkerOrder, lifeline: socket.socket, log: int) -> None:
    """Serves as a worker until the lifeline's other end is closed, and ends the process.

    Args:
        order: what to serve.
        lifeline: gets the reason of a failure.
        log: descriptor that takes the place of the standard error.
    """
    from cachew_core import stock

    os.dup2(log, 2)
    os.close(log)
    _serve(
        lambda: stock.start_worker_server(
            dispatcher_address=order.gate_address,
            address=order.address,
            port=order.port,
            heartbeat_interval_ms=order.heartbeat_interval_ms,
        ),
        lifeline,
    )


def dispatch(order: DispatchOrder, lifeline: socket.socket) -> None:
    """Serves as a dispatcher until the lifeline's other end is closed, and ends the process.

    Args:
        order: what to serve.
        lifeline: gets the reason of a failure.
    """
    from cachew_core import stock

    _serve(lambda: stock.start_dispatch_server(**asdict(order)), lifeline)


def _serve(start: Callable[[], object], lifeline: socket.socket) -> NoReturn:
    _libc.mallopt(_M_ARENA_MAX, ARENAS)
    try:
        server = start()
    except Exception as error:
        lifeline.sendall(str(error).encode()[:MAX_ERROR_BYTES])
        os._exit(FAILED)
    while not select.select([lifeline], [], [], TRIM_S)[0]:
        _libc.malloc_trim(0)
    # Stopping the server in order would wait for its readers; `server` lives until here.
    del server
    os._exit(0)


def measure(order: MeasureOrder, lifeline: socket.socket, graph: int, result: int) -> None:
    """Measures a pipeline and ends the process. Never returns.

    Args:
        order: what to measure.
        lifeline: gets the reason of a failure.
        graph: descriptor of a file with the pipeline's graph.
        result: descriptor of an empty file that gets the profile as JSON.
    """

    def figures(serialized: bytes) -> object:
        from cachew_core.pipeline.profiling import profile

        return asdict(
            profile(
                serialized,
                order.points,
                scratch=Path(order.scratch),
                budget_s=order.budget_s,
                batches=order.batches,
            )
        )

    _answer(figures, lifeline, graph, result)


def examine(order: ExamineOrder, lifeline: socket.socket, graph: int, result: int) -> None:
    """Reads a pipeline's files and ends the process. Never returns.

    Args:
        order: which files.
        lifeline: gets the reason of a failure.
        graph: descriptor of a file with the pipeline's graph.
        result: descriptor of an empty file that gets the broken ones as JSON.
    """

    def broken(serialized: bytes) -> object:
        from cachew_core.pipeline.examining import broken_files

        return broken_files(serialized, order.patterns, budget_s=order.budget_s)

    _answer(broken, lifeline, graph, result)


def _answer(
    work: Callable[[bytes], object], lifeline: socket.socket, graph: int, result: int
) -> NoReturn:
    try:
        with open(graph, "rb") as file:
            file.seek(0)
            answer = work(file.read())
        with open(result, "w") as file:
            json.dump(answer, file)
    except Exception as error:
        lifeline.sendall(f"{type(error).__name__}: {error}".encode()[:MAX_ERROR_BYTES])
        os._exit(FAILED)
    os._exit(0)
