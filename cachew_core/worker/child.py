"""What runs in the process of one assignment: a stock WorkerServer, until its agent lets go.

It is forked from the spawner, which has imported TensorFlow; the agent, which reads `ChildOrder`
from here, has not. So TensorFlow is imported inside the function.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
from dataclasses import dataclass

FAILED = 3
"""Exit code of a child that has written to its lifeline why it could not serve."""

MAX_ERROR_BYTES = 16_384

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildOrder:
    """What one child is to serve."""

    gate_address: str
    """`host:port` of what it takes for its dispatcher."""
    address: str
    """`host:port` that trainers are told."""
    port: int
    heartbeat_interval_ms: int


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


def serve(order: ChildOrder, lifeline: socket.socket) -> None:
    """Serves until the other end of the lifeline is closed, and ends the process. Never returns."""
    from cachew_core import stock

    try:
        server = stock.start_worker_server(
            dispatcher_address=order.gate_address,
            address=order.address,
            port=order.port,
            heartbeat_interval_ms=order.heartbeat_interval_ms,
        )
    except Exception as error:
        lifeline.sendall(str(error).encode()[:MAX_ERROR_BYTES])
        os._exit(FAILED)
    lifeline.recv(1)
    # Stopping the server in order would wait for its readers; `server` lives until here.
    del server
    os._exit(0)
