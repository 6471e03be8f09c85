"""Stands in for `cachew`: a dispatcher and an agent without TensorFlow, and with faults on demand.

Run as `fake_cachew.py dispatcher|worker --flag=value...`. `FAKE_FAULT` names a fault:
`dispatcher-crashes`, `dispatcher-hangs`, `worker-crashes`, `worker-hangs`, `worker-gives-up`
(as soon as the dispatcher is gone), `deaf` (both ignore SIGTERM, and Shutdown does nothing).
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path

import grpc

from cachew_core import rpc
from cachew_core.cluster.runs import last_one_tidies_up
from cachew_core.proto import cachew_pb2, cachew_pb2_grpc

FAULT = os.environ.get("FAKE_FAULT", "")


class _Dispatcher(cachew_pb2_grpc.DispatcherServicer):
    def __init__(self, name: str) -> None:
        self.name = name
        self.endpoint = ""
        self.slots = 0
        self.state = "running"
        self.ended = threading.Event()

    def GetStatus(self, request: object, context: object) -> cachew_pb2.ServiceStatus:  # noqa: N802
        workers = [cachew_pb2.WorkerStatus(id=f"agent/{slot}") for slot in range(self.slots)]
        return cachew_pb2.ServiceStatus(
            name=self.name, endpoint=self.endpoint, state=self.state, workers=workers
        )

    def ConnectAgent(  # noqa: N802
        self, requests: Iterator[cachew_pb2.AgentMessage], context: object
    ) -> Iterator[cachew_pb2.AgentCommand]:
        self.slots = next(requests).hello.slots
        self.ended.wait()
        yield cachew_pb2.AgentCommand(shutdown=cachew_pb2.AgentShutdown(reason="ended"))

    def Shutdown(  # noqa: N802
        self, request: cachew_pb2.ShutdownRequest, context: object
    ) -> cachew_pb2.ShutdownResponse:
        if request.drain:
            self.state = "draining"
        elif FAULT != "deaf":
            self.ended.set()
        return cachew_pb2.ShutdownResponse(pid=os.getpid())


def _dispatch(flags: dict[str, str]) -> None:
    servicer = _Dispatcher(flags["name"])
    server = grpc.server(futures.ThreadPoolExecutor(8), options=rpc.SERVER_OPTIONS)
    cachew_pb2_grpc.add_DispatcherServicer_to_server(servicer, server)
    port = server.add_insecure_port(f"127.0.0.1:{flags.get('port', '0')}")
    server.start()
    servicer.endpoint = f"grpc://127.0.0.1:{port}"
    Path(flags["work-dir"]).mkdir()
    tempfile.mkdtemp(prefix="left-behind-")
    Path(flags["endpoint-file"]).write_text(servicer.endpoint)
    servicer.ended.wait(float(flags.get("first-client-timeout", "600")))
    servicer.ended.set()
    server.stop(1).wait()


def _work(flags: dict[str, str]) -> None:
    hello = cachew_pb2.AgentHello(agent_id="agent", slots=int(flags["slots"]))
    with grpc.insecure_channel(rpc.address_of(flags["dispatcher"])) as channel:
        stub = cachew_pb2_grpc.DispatcherStub(channel)
        quiet = threading.Event()

        def messages() -> Iterator[cachew_pb2.AgentMessage]:
            yield cachew_pb2.AgentMessage(hello=hello)
            quiet.wait()

        try:
            grpc.channel_ready_future(channel).result(timeout=60)
            list(stub.ConnectAgent(messages()))
        except grpc.RpcError:
            # The dispatcher is gone. A real agent tries again for a while.
            if FAULT != "worker-gives-up":
                quiet.wait()
        finally:
            quiet.set()


def main() -> None:
    part, flags = sys.argv[1], dict(flag[2:].split("=", 1) for flag in sys.argv[2:])
    if f"{part}-crashes" == FAULT:
        sys.exit(f"error: this {part} was told to crash")
    signal.signal(signal.SIGTERM, signal.SIG_IGN if FAULT == "deaf" else lambda *_: sys.exit())
    if f"{part}-hangs" == FAULT:
        threading.Event().wait()
    with last_one_tidies_up():
        _dispatch(flags) if part == "dispatcher" else _work(flags)


if __name__ == "__main__":
    main()
