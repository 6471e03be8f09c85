"""A dispatcher that answers what a test tells it to, over real gRPC, and remembers what it was
told.
"""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self

import grpc

from cachew_core import rpc
from cachew_core.proto import cachew_pb2, cachew_pb2_grpc, stock_pb2

_STOCK = "/tensorflow.data.DispatcherService/"


def client_threads() -> list[str]:
    """The threads of this process that hold a membership."""
    return [t.name for t in threading.enumerate() if t.name.startswith("cachew-client")]


class Stream:
    """One stream of one client: what came, whether it ended, and what to send."""

    def __init__(self) -> None:
        self.messages: list[cachew_pb2.ClientMessage] = []
        self.ended = threading.Event()
        self.close = threading.Event()

    @property
    def said_bye(self) -> bool:
        return any(message.HasField("bye") for message in self.messages)

    @property
    def totals(self) -> dict[int, cachew_pb2.EpochMetrics]:
        return {row.iterator: row for m in self.messages for row in m.metrics.epochs}


class ScriptedDispatcher(cachew_pb2_grpc.DispatcherServicer):
    """One dispatcher on a free port.

    Attributes:
        info: what it says of itself.
        refusal: how it refuses registrations; None: it takes them.
        stream_refusal: the same for streams.
        notices: that it sends on each stream.
        registered: the registrations that it took.
        streams: all streams so far.
    """

    def __init__(self, *, port: int = 0) -> None:
        self.info = cachew_pb2.ServiceInfo(
            versions=rpc.own_versions(), name="scripted", workers=1, max_graph_bytes=1 << 30
        )
        self.refusal: tuple[grpc.StatusCode, str] | None = None
        self.stream_refusal: tuple[grpc.StatusCode, str] | None = None
        self.response = cachew_pb2.RegisterPipelineResponse(job_id="job-1", job_name="scripted")
        self.notices: list[cachew_pb2.ClientNotice] = []
        self.registered: list[cachew_pb2.RegisterPipelineRequest] = []
        self.streams: list[Stream] = []
        self.greeted = 0
        self._server = grpc.server(ThreadPoolExecutor(16), options=rpc.SERVER_OPTIONS)
        cachew_pb2_grpc.add_DispatcherServicer_to_server(self, self._server)
        self._server.add_generic_rpc_handlers((_StockFront(self),))
        self.port = self._server.add_insecure_port(f"127.0.0.1:{port}")
        self.endpoint = f"grpc://127.0.0.1:{self.port}"
        self._server.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        for stream in self.streams:
            stream.close.set()
        self._server.stop(None).wait()

    def GetServiceInfo(self, request: Any, context: Any) -> cachew_pb2.ServiceInfo:  # noqa: N802
        self.greeted += 1
        return self.info

    def RegisterPipeline(self, request: Any, context: Any) -> Any:  # noqa: N802
        if self.refusal:
            context.abort(*self.refusal)
        self.registered.append(request)
        return self.response

    def ConnectClient(self, requests: Any, context: Any) -> Iterator[Any]:  # noqa: N802
        stream = Stream()
        self.streams.append(stream)
        if self.stream_refusal:
            context.abort(*self.stream_refusal)
        yield from self.notices
        reader = threading.Thread(target=_listen, args=(stream, requests), daemon=True)
        reader.start()
        while not stream.ended.is_set() and not stream.close.wait(0.02):
            pass


def _listen(stream: Stream, requests: Iterator[cachew_pb2.ClientMessage]) -> None:
    try:
        for message in requests:
            stream.messages.append(message)
    except grpc.RpcError:
        pass
    except Exception:  # gRPC raises a bare one when the call is over
        pass
    finally:
        stream.ended.set()


class _StockFront(grpc.GenericRpcHandler):
    """As much of stock's dispatcher as making a dataset asks."""

    def __init__(self, dispatcher: ScriptedDispatcher) -> None:
        self._dispatcher = dispatcher

    def service(self, handler_call_details: Any) -> Any:
        method = handler_call_details.method.removeprefix(_STOCK)
        answer = {
            "GetVersion": self._version,
            "GetDataServiceMetadata": self._metadata,
            "GetDataServiceConfig": self._config,
        }.get(method)
        return grpc.unary_unary_rpc_method_handler(answer) if answer else None

    def _version(self, request: bytes, context: Any) -> bytes:
        return stock_pb2.GetVersionResponse(version=9).SerializeToString()

    def _metadata(self, request: bytes, context: Any) -> bytes:
        metadata = stock_pb2.DataServiceMetadata(
            element_spec=self._dispatcher.registered[-1].element_spec,
            compression=stock_pb2.COMPRESSION_OFF,
            cardinality=-2,
        )
        return stock_pb2.GetDataServiceMetadataResponse(metadata=metadata).SerializeToString()

    def _config(self, request: bytes, context: Any) -> bytes:
        remote = stock_pb2.DataServiceConfig.DEPLOYMENT_MODE_REMOTE
        config = stock_pb2.DataServiceConfig(deployment_mode=remote)
        return stock_pb2.GetDataServiceConfigResponse(config=config).SerializeToString()
