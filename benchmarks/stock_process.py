"""One server of stock tf.data service in a process of its own, as its documentation sets it up.

It ends when its standard input does, so that none outlives a benchmark that was killed.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Literal

import tensorflow as tf

service = tf.data.experimental.service

Role = Literal["dispatcher", "worker"]


def main() -> None:
    """Reads a line (a worker's: where its dispatcher is), serves, and writes a line: where."""
    role = sys.argv[1]
    address = sys.stdin.readline().strip()
    server: Any
    if role == "dispatcher":
        server = service.DispatchServer(service.DispatcherConfig(port=0))
        where = server.target
    else:
        server = service.WorkerServer(service.WorkerConfig(dispatcher_address=address, port=0))
        where = "a worker"
    print(where, flush=True)
    sys.stdin.read()
    # Stopping in order would wait for readers; `server` lives until here.
    del server
    os._exit(0)


if __name__ == "__main__":
    main()
