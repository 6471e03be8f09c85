"""Which worker nodes are asked to carry what between a bucket and their disks, and what becomes of
their answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cachew_core.cache import Chunk, DamagedError, NotCompleteError
from cachew_core.dispatcher.generation import Generation
from cachew_core.dispatcher.pool import Agent, Pool
from cachew_core.dispatcher.staging import AgentCarrier
from cachew_core.errors import CacheError
from cachew_core.proto import cachew_pb2

Order, Result = cachew_pb2.StageOrder, cachew_pb2.StageResult

FILES = (Chunk(path="runs/one/a", bytes=10, crc32=1), Chunk(path="runs/one/b", bytes=20, crc32=2))


class World:
    """A pool whose agents are played by the test."""

    def __init__(self) -> None:
        self.pool = Pool(lambda: None)
        self.carrier = AgentCarrier(
            self.pool,
            asyncio.get_running_loop(),
            "gs://bucket/cache",
            Path("/stage"),
            known=["old"],
        )

    def connect(self, name: str) -> Agent:
        return self.pool.connect(cachew_pb2.AgentHello(agent_id=name, host="h", slots=1))

    def assign(self, agent: Agent) -> cachew_pb2.Assign:
        job = SimpleNamespace(name="job")
        generation = SimpleNamespace(
            job=job,
            members=[],
            server=SimpleNamespace(address="h:1"),
            closed=False,
            member_ended=lambda *_, **__: None,
        )
        self.pool.assign(agent.slots[0], cast(Generation, generation))
        return self.commands(agent)[-1].assign

    def commands(self, agent: Agent) -> list[cachew_pb2.AgentCommand]:
        found = []
        while not agent.commands.empty():
            found.append(agent.commands.get_nowait())
        return found

    async def order(self, agent: Agent) -> cachew_pb2.StageOrder:
        """The next order to that agent that wants an answer."""
        while True:
            command = await asyncio.wait_for(agent.commands.get(), 10)
            if command.stage.order_id:
                return command.stage

    def answer(self, agent: Agent, order: Any, **fields: Any) -> None:
        self.carrier.answered(agent, Result(order_id=order.order_id, **fields))


def play(scenario: Callable[[World], Awaitable[None]]) -> None:
    async def run() -> None:
        await asyncio.wait_for(scenario(World()), 30)

    asyncio.run(run())


def run_of(*names: str, elements: int = 5) -> cachew_pb2.StagedRun:
    files = [cachew_pb2.StagedFile(path=name, bytes=1, crc32=2) for name in names]
    return cachew_pb2.StagedRun(files=files, elements=elements)


def test_those_that_worked_meanwhile_send_and_nobody_else_is_asked() -> None:
    async def scenario(world: World) -> None:
        busy, later, idle = (world.connect(name) for name in ("busy", "later", "idle"))
        world.assign(busy)
        await asyncio.to_thread(world.carrier.begin, "k-t")
        world.assign(later)
        world.commands(idle)
        sending = asyncio.ensure_future(asyncio.to_thread(world.carrier.send, "k-t"))
        for agent in (busy, later):
            order = await world.order(agent)
            assert (order.send, order.bucket, order.folder) == (
                "k-t",
                "gs://bucket/cache",
                "/stage",
            )
            world.answer(agent, order, runs=[run_of("both"), run_of(agent.id)])
        paths = sorted(chunk.path for chunks, _ in await sending for chunk in chunks)
        # What both see lies on a disk that they share.
        assert paths == ["both", "busy", "later"]
        assert idle.commands.empty()

    play(scenario)


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_what_a_node_wrote_that_is_gone_is_not_complete(when: str) -> None:
    async def scenario(world: World) -> None:
        agent = world.connect("one")
        await asyncio.to_thread(world.carrier.begin, "k-t")
        world.assign(agent)
        if when == "before":
            world.pool.disconnect("one", "killed")
        sending = asyncio.ensure_future(asyncio.to_thread(world.carrier.send, "k-t"))
        if when == "meanwhile":
            await world.order(agent)
            world.pool.disconnect("one", "killed")
        with pytest.raises(NotCompleteError, match="worker node one is gone"):
            await sending

    play(scenario)


@pytest.mark.parametrize(
    ("failure", "error"),
    [
        (Result.INCOMPLETE, NotCompleteError),
        (Result.DAMAGED, DamagedError),
        (Result.FAILED, CacheError),
    ],
)
def test_a_failure_keeps_its_kind_and_its_words(
    failure: cachew_pb2.StageResult.Failure, error: type[Exception]
) -> None:
    async def scenario(world: World) -> None:
        agent = world.connect("one")
        world.assign(agent)
        await asyncio.to_thread(world.carrier.begin, "k-t")
        sending = asyncio.ensure_future(asyncio.to_thread(world.carrier.send, "k-t"))
        world.answer(agent, await world.order(agent), failure=failure, error="the words")
        with pytest.raises(error, match="the words"):
            await sending

    play(scenario)


def test_an_entry_in_use_is_fetched_by_all_and_first_of_all_by_those_that_come_later() -> None:
    async def scenario(world: World) -> None:
        agent = world.connect("one")
        world.carrier.hold("k-t", FILES)
        fetching = asyncio.ensure_future(asyncio.to_thread(world.carrier.fetch, "k-t", wait_s=20))
        order = await world.order(agent)
        assert [(file.path, file.bytes, file.crc32) for file in order.fetch.files] == [
            ("runs/one/a", 10, 1),
            ("runs/one/b", 20, 2),
        ]
        assert list(order.keep) == ["k-t"]
        world.answer(agent, order)
        assert await fetching
        (first,) = world.assign(world.connect("two")).first
        assert first.fetch == order.fetch
        world.carrier.let_go("k-t", remove=False)
        assert list(world.assign(world.connect("three")).first) == []

    play(scenario)


def test_what_takes_too_long_goes_on_and_is_not_asked_for_twice() -> None:
    async def scenario(world: World) -> None:
        agent = world.connect("one")
        world.commands(agent)
        world.carrier.hold("k-t", FILES)
        assert not await asyncio.to_thread(world.carrier.fetch, "k-t", wait_s=0.0)
        await world.order(agent)
        world.carrier.let_go("k-t", remove=False)
        world.carrier.hold("k-t", FILES)
        assert not await asyncio.to_thread(world.carrier.fetch, "k-t", wait_s=0.0)
        assert agent.commands.empty()

    play(scenario)


def test_a_node_that_comes_removes_all_but_what_is_known_and_what_is_dropped_later() -> None:
    async def scenario(world: World) -> None:
        await asyncio.to_thread(world.carrier.begin, "k-t")
        agent = world.connect("one")
        (command,) = world.commands(agent)
        assert sorted(command.stage.tidy.names) == ["k-t", "old"]
        await asyncio.to_thread(world.carrier.let_go, "old", remove=True)
        assert (await asyncio.wait_for(agent.commands.get(), 10)).stage.remove == "old"

    play(scenario)
