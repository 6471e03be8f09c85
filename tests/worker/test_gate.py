"""The gate passes everything on as it is, and knows when a drained worker has nothing left."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import grpc
import grpc.aio
import pytest

from cachew_core.proto import stock_pb2
from cachew_core.worker.gate import Gate

PREFIX = "/tensorflow.data.DispatcherService/"
SPLIT = stock_pb2.GetSplitResponse(split=b"x").SerializeToString()
NO_MORE = stock_pb2.GetSplitResponse(end_of_splits=True).SerializeToString()
ASK = stock_pb2.GetSplitRequest(iteration_id=7, repetition=1, split_provider_index=2)


class Upstream(grpc.GenericRpcHandler):
    """A stock dispatcher that answers what the test says."""

    def __init__(self) -> None:
        self.answers: dict[str, bytes | grpc.StatusCode] = {}
        self.asked: list[tuple[str, bytes]] = []
        self.server = grpc.aio.server()
        self.server.add_generic_rpc_handlers((self,))
        self.address = f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        name = handler_call_details.method.rpartition("/")[2]

        async def handle(request: bytes, context: grpc.aio.ServicerContext) -> bytes:
            self.asked.append((name, request))
            answer = self.answers.get(name, b"")
            if isinstance(answer, grpc.StatusCode):
                context.set_trailing_metadata((("detail-bin", b"\x00\xff"),))
                await context.abort(answer, f"{name} went wrong")
            return answer

        return grpc.unary_unary_rpc_method_handler(handle)

    def names(self) -> list[str]:
        return [name for name, _ in self.asked]


class Scene:
    """A worker's view through an open gate."""

    def __init__(self, gate: Gate, upstream: Upstream, channel: grpc.aio.Channel) -> None:
        self.gate = gate
        self.upstream = upstream
        self.happened: list[str] = []
        self._channel = channel

    async def call(self, name: str, request: bytes = b"") -> bytes:
        call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = self._channel.unary_unary(
            PREFIX + name
        )
        return await call(request, timeout=30)

    async def heartbeat(self, *tasks: int) -> None:
        request = stock_pb2.WorkerHeartbeatRequest(worker_address="w:1", current_tasks=tasks)
        await self.call("WorkerHeartbeat", request.SerializeToString())

    async def complete(self, task: int) -> None:
        update = stock_pb2.TaskProgress(task_id=task, completed=True)
        request = stock_pb2.WorkerUpdateRequest(worker_address="w:1", updates=[update])
        await self.call("WorkerUpdate", request.SerializeToString())


@asynccontextmanager
async def scene() -> AsyncIterator[Scene]:
    upstream = Upstream()
    await upstream.server.start()
    happened: list[str] = []
    gate = Gate(
        upstream.address,
        on_serving=lambda: happened.append("serving"),
        on_drained=lambda: happened.append("drained"),
        on_dry=lambda iteration: happened.append(f"dry {iteration}"),
    )
    address = await gate.open()
    async with grpc.aio.insecure_channel(address) as channel:
        view = Scene(gate, upstream, channel)
        view.happened = happened
        yield view
    await gate.close()
    await upstream.server.stop(None)


def play(act: Callable[[Scene], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with scene() as view:
            await act(view)

    asyncio.run(whole())


@pytest.mark.parametrize("name", ["GetVersion", "GetSplit", "WorkerUpdate", "SomethingNew"])
def test_calls_and_answers_pass_byte_for_byte(name: str) -> None:
    # Fields that this side does not know must come through, too.
    payload = b"\xc2\x3e\x03abc"

    async def act(view: Scene) -> None:
        view.upstream.answers[name] = payload
        assert await view.call(name, payload) == payload
        assert view.upstream.asked == [(name, payload)]

    play(act)


@pytest.mark.parametrize("code", [grpc.StatusCode.NOT_FOUND, grpc.StatusCode.UNAVAILABLE])
@pytest.mark.parametrize("name", ["GetVersion", "GetSplit", "WorkerHeartbeat", "WorkerUpdate"])
def test_errors_pass_with_code_text_and_details(name: str, code: grpc.StatusCode) -> None:
    async def act(view: Scene) -> None:
        view.upstream.answers[name] = code
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await view.call(name)
        assert caught.value.code() == code
        assert caught.value.details() == f"{name} went wrong"
        assert ("detail-bin", b"\x00\xff") in tuple(caught.value.trailing_metadata())
        assert view.happened == []

    play(act)


def test_a_dispatcher_that_is_gone_looks_unavailable() -> None:
    async def act(view: Scene) -> None:
        await view.upstream.server.stop(None)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await view.call("GetSplit")
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE

    play(act)


def test_the_first_accepted_heartbeat_and_only_that_one_means_serving() -> None:
    async def act(view: Scene) -> None:
        view.upstream.answers["WorkerHeartbeat"] = grpc.StatusCode.UNAVAILABLE
        with pytest.raises(grpc.aio.AioRpcError):
            await view.heartbeat()
        assert view.happened == []
        view.upstream.answers["WorkerHeartbeat"] = b""
        await view.heartbeat()
        await view.heartbeat()
        assert view.happened == ["serving"]

    play(act)


def test_splits_are_counted_by_iteration_repetition_and_provider() -> None:
    async def act(view: Scene) -> None:
        view.upstream.answers["GetSplit"] = SPLIT
        await view.call("GetSplit", ASK.SerializeToString())
        await view.call("GetSplit", ASK.SerializeToString())
        view.upstream.answers["GetSplit"] = NO_MORE
        assert await view.call("GetSplit", ASK.SerializeToString()) == NO_MORE
        assert dict(view.gate.splits) == {(7, 1, 2): 2}

    play(act)


def test_a_drain_answers_for_splits_and_leaves_the_dispatchers_to_others() -> None:
    async def act(view: Scene) -> None:
        view.upstream.answers["GetSplit"] = SPLIT
        view.gate.drain()
        first = stock_pb2.GetSplitRequest(iteration_id=7, repetition=1, split_provider_index=0)
        assert await view.call("GetSplit", first.SerializeToString()) == NO_MORE
        assert view.upstream.asked == []
        assert not view.gate.splits

    play(act)


def test_a_worker_in_a_drain_gets_one_split_of_a_further_source_that_it_had_none_of() -> None:
    async def act(view: Scene) -> None:
        view.upstream.answers["GetSplit"] = SPLIT
        view.gate.drain()
        again = stock_pb2.GetSplitRequest(iteration_id=7, repetition=2, split_provider_index=2)
        asked = [call.SerializeToString() for call in (ASK, ASK, again)]
        answers = [await view.call("GetSplit", call) for call in asked]
        assert answers == [SPLIT, NO_MORE, NO_MORE]
        assert dict(view.gate.splits) == {(7, 1, 2): 1}

    play(act)


def test_a_worker_is_dry_when_a_heartbeat_of_the_drain_lists_completed_tasks_only() -> None:
    async def act(view: Scene) -> None:
        view.gate.drain()
        await view.heartbeat(1, 2)
        await view.complete(1)
        await view.heartbeat(1, 2)
        assert "drained" not in view.happened
        await view.complete(2)
        await view.heartbeat(1, 2)
        assert view.happened == ["serving", "drained"]
        await view.heartbeat()
        assert view.happened == ["serving", "drained"]

    play(act)


def test_a_heartbeat_that_may_have_been_written_before_the_drain_does_not_count() -> None:
    async def act(view: Scene) -> None:
        await view.heartbeat()
        view.gate.drain()
        await view.heartbeat()
        assert "drained" not in view.happened
        await view.heartbeat()
        assert "drained" in view.happened

    play(act)


def test_a_completion_that_the_dispatcher_did_not_take_does_not_count() -> None:
    async def act(view: Scene) -> None:
        view.gate.drain()
        view.upstream.answers["WorkerUpdate"] = grpc.StatusCode.UNAVAILABLE
        with pytest.raises(grpc.aio.AioRpcError):
            await view.complete(1)
        for _ in range(3):
            await view.heartbeat(1)
        assert "drained" not in view.happened

    play(act)


def test_a_task_that_comes_with_the_answer_keeps_a_worker_from_being_dry() -> None:
    async def act(view: Scene) -> None:
        view.gate.drain()
        task = stock_pb2.TaskDef(task_id=3)
        answer = stock_pb2.WorkerHeartbeatResponse(new_tasks=[task])
        view.upstream.answers["WorkerHeartbeat"] = answer.SerializeToString()
        for _ in range(3):
            await view.heartbeat()
        assert "drained" not in view.happened
        view.upstream.answers["WorkerHeartbeat"] = b""
        await view.heartbeat()
        assert "drained" in view.happened

    play(act)


def test_a_closed_gate_listens_no_more() -> None:
    async def act(view: Scene) -> None:
        await view.gate.close()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await view.call("GetVersion")
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE

    play(act)
