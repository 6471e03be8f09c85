"""Who measures a pipeline, and what becomes of its answer: the pool, agents played by the test."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import cast

import pytest

from cachew_core.dispatcher.generation import Generation
from cachew_core.dispatcher.pool import Agent, Assignment, Pool
from cachew_core.errors import ServiceError
from cachew_core.proto import cachew_pb2


def connected(pool: Pool, name: str, *, slots: int = 1) -> Agent:
    return pool.connect(cachew_pb2.AgentHello(agent_id=name, host="host", slots=slots))


def occupy(agent: Agent) -> None:
    for slot in agent.slots:
        # The pool only looks whether there is an assignment.
        slot.assignment = Assignment(id="a", slot=slot, generation=cast(Generation, None))


def asked(pool: Pool) -> "asyncio.Task[str]":
    return asyncio.create_task(pool.profile(b"graph", ["mark", "end"], "/cache/new", 5, 100))


async def order(agent: Agent) -> cachew_pb2.Profile:
    """The next command, which is an order to measure."""
    command = await asyncio.wait_for(agent.commands.get(), 5)
    assert command.HasField("profile")
    return command.profile


def result(profile_id: str, *, json: str = "", error: str = "") -> cachew_pb2.ProfileResult:
    return cachew_pb2.ProfileResult(profile_id=profile_id, json=json, error=error)


Scene = Callable[[Pool], Coroutine[None, None, None]]


def run(scene: Scene) -> None:
    asyncio.run(scene(Pool(lambda: None)))


def test_an_agent_with_an_idle_slot_measures_and_answers() -> None:
    async def scene(pool: Pool) -> None:
        busy, idle = connected(pool, "busy"), connected(pool, "idle", slots=2)
        occupy(busy)
        asking = asked(pool)
        command = await order(idle)
        assert (command.graph, list(command.points)) == (b"graph", ["mark", "end"])
        assert (command.scratch, command.budget_s, command.batches) == ("/cache/new", 5, 100)
        assert len(pool.free()) == 2
        pool.profiled(idle, result(command.profile_id, json='{"elements": 1}'))
        assert await asking == '{"elements": 1}'

    run(scene)


def test_a_busy_agent_measures_where_none_is_idle_and_a_leaving_one_never() -> None:
    async def scene(pool: Pool) -> None:
        leaving, busy = connected(pool, "leaving"), connected(pool, "busy")
        pool.leave(leaving)
        occupy(busy)
        asking = asked(pool)
        pool.profiled(busy, result((await order(busy)).profile_id, json="{}"))
        assert await asking == "{}"

    run(scene)


def test_measurements_are_spread_and_answers_do_not_mix() -> None:
    async def scene(pool: Pool) -> None:
        agents = connected(pool, "one"), connected(pool, "two")
        asking = [asked(pool), asked(pool)]
        orders = [await order(agent) for agent in agents]
        # Not this one's to answer.
        pool.profiled(agents[0], result(orders[1].profile_id, json='"wrong"'))
        for agent, command in reversed(list(zip(agents, orders, strict=True))):
            pool.profiled(agent, result(command.profile_id, json=f'"{agent.id}"'))
        assert await asyncio.gather(*asking) == ['"one"', '"two"']

    run(scene)


def test_a_failure_and_a_lost_agent_are_errors_that_say_why() -> None:
    async def scene(pool: Pool) -> None:
        agent = connected(pool, "one")
        failing = asked(pool)
        pool.profiled(agent, result((await order(agent)).profile_id, error="it hangs"))
        with pytest.raises(ServiceError, match="it hangs"):
            await failing
        lost = asked(pool)
        command = await order(agent)
        pool.disconnect("one", "its connection ended")
        with pytest.raises(ServiceError, match="its connection ended"):
            await lost
        pool.profiled(agent, result(command.profile_id, json="{}"))
        with pytest.raises(ServiceError, match="no worker node"):
            await asked(pool)

    run(scene)
