"""What a stock worker takes for its dispatcher: passes its calls on, and can run it dry.

One gate stands before one `WorkerServer`. Calls pass as bytes, and answers and errors come back as
they are, so a worker behaves as it would without. The exception is `GetSplit` during a drain: it is
answered with "no more splits", upon which a task ends in order after what it already holds; of a
further source that it had no split of yet, it gets one. (A `WorkerServer` keeps the GIL while it
registers, so a gate can't live in its process.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable

import grpc
import grpc.aio

from cachew_core.proto import stock_pb2
from cachew_core.rpc import SERVER_OPTIONS, STOCK_CHANNEL_OPTIONS

_END_OF_SPLITS = stock_pb2.GetSplitResponse(end_of_splits=True).SerializeToString()

_Context = grpc.aio.ServicerContext[bytes, bytes]
_Forward = Callable[[bytes, _Context], Awaitable[bytes]]


class Gate(grpc.GenericRpcHandler):
    """Stands between one worker and the stock dispatcher of its job."""

    def __init__(
        self,
        dispatch_address: str,
        *,
        on_serving: Callable[[], None],
        on_drained: Callable[[], None],
        on_dry: Callable[[int], None],
    ) -> None:
        """A closed gate.

        Args:
            dispatch_address: `host:port` of the stock dispatcher.
            on_serving: called once, when the dispatcher has accepted the worker's first heartbeat.
            on_drained: called once, when after `drain` the worker has delivered all it had.
            on_dry: called when the dispatcher has no more splits of an iteration, which it gets.
        """
        self.splits: Counter[tuple[int, int, int]] = Counter()
        """How many were handed out, by (iteration, repetition, split provider)."""
        self._channel = grpc.aio.insecure_channel(dispatch_address, options=STOCK_CHANNEL_OPTIONS)
        self._server = grpc.aio.server(options=SERVER_OPTIONS)
        self._handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {}
        self._on_serving = on_serving
        self._on_drained = on_drained
        self._on_dry = on_dry
        self._dry: set[int] = set()
        self._serving = False
        self._draining = False
        self._drained = False
        self._heartbeats_in_drain = 0
        self._completed: set[int] = set()
        self._begun: set[tuple[int, int]] = set()

    async def open(self) -> str:
        """Begins to listen, on this machine only, and returns the address (`host:port`)."""
        self._server.add_generic_rpc_handlers((self,))
        port = self._server.add_insecure_port("127.0.0.1:0")
        await self._server.start()
        return f"127.0.0.1:{port}"

    def drain(self) -> None:
        """Hands out no more splits. The worker still delivers what it holds."""
        self._draining = True

    async def close(self) -> None:
        """Breaks off what is under way."""
        await self._server.stop(None)
        await self._channel.close()

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler[bytes, bytes]:
        """The handler of any method; stock has none that streams."""
        method = handler_call_details.method
        if method not in self._handlers:
            self._handlers[method] = self._handler_of(method)
        return self._handlers[method]

    def _handler_of(self, method: str) -> grpc.RpcMethodHandler[bytes, bytes]:
        forward = self._forward(method)
        special = {
            "GetSplit": self._get_split,
            "WorkerHeartbeat": self._heartbeat,
            "WorkerUpdate": self._update,
        }.get(method.rpartition("/")[2])

        async def handle(request: bytes, context: _Context) -> bytes:
            if special is None:
                return await forward(request, context)
            return await special(forward, request, context)

        return grpc.unary_unary_rpc_method_handler(handle)

    def _forward(self, method: str) -> _Forward:
        call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]
        call = self._channel.unary_unary(method)

        async def forward(request: bytes, context: _Context) -> bytes:
            try:
                answer: bytes = await call(request, timeout=context.time_remaining())
            except grpc.aio.AioRpcError as error:
                # Stock's own retries depend on the code, and its error details travel as metadata.
                await context.abort(
                    error.code(), error.details() or "", tuple(error.trailing_metadata() or ())
                )
            return answer

        return forward

    async def _get_split(self, forward: _Forward, request: bytes, context: _Context) -> bytes:
        asked = stock_pb2.GetSplitRequest.FromString(request)
        source = asked.iteration_id, asked.split_provider_index
        # One split of a further source is no harm, and the end of what is written to a cache is one
        # that each worker takes from a source of its own. Not one each time that it is repeated: a
        # task that repeats for ever ends when a pass is empty.
        if self._draining and (not asked.split_provider_index or source in self._begun):
            return _END_OF_SPLITS
        answer = await forward(request, context)
        if not stock_pb2.GetSplitResponse.FromString(answer).end_of_splits:
            self._begun.add(source)
            self.splits[asked.iteration_id, asked.repetition, asked.split_provider_index] += 1
        elif asked.iteration_id not in self._dry:
            self._dry.add(asked.iteration_id)
            self._on_dry(asked.iteration_id)
        return answer

    async def _update(self, forward: _Forward, request: bytes, context: _Context) -> bytes:
        answer = await forward(request, context)
        for progress in stock_pb2.WorkerUpdateRequest.FromString(request).updates:
            if progress.completed:
                self._completed.add(progress.task_id)
        return answer

    async def _heartbeat(self, forward: _Forward, request: bytes, context: _Context) -> bytes:
        self._heartbeats_in_drain += self._draining
        # A worker sends one heartbeat at a time. The first that arrives during a drain may have
        # been written before it; the second one was written after the first was answered.
        knows_of_all_splits = self._heartbeats_in_drain >= 2
        answer = await forward(request, context)
        if not self._serving:
            self._serving = True
            self._on_serving()
        if knows_of_all_splits and not self._drained and self._is_dry(request, answer):
            self._drained = True
            self._on_drained()
        return answer

    def _is_dry(self, request: bytes, answer: bytes) -> bool:
        held = set(stock_pb2.WorkerHeartbeatRequest.FromString(request).current_tasks)
        given = stock_pb2.WorkerHeartbeatResponse.FromString(answer).new_tasks
        return not given and held <= self._completed
