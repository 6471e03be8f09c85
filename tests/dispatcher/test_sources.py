"""What is made of the source files that several hosts see."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from cachew_core.dispatcher.pool import Agent, Pool
from cachew_core.dispatcher.sources import SourceView
from cachew_core.errors import ServiceError
from cachew_core.proto import cachew_pb2
from cachew_core.sources import identify


def looked_at(
    patterns: list[str], hosts: Mapping[str, cachew_pb2.SourcesSeen | None]
) -> tuple[str, str]:
    """What a view says, when each host's agent answers that; None: it is gone instead."""

    async def whole() -> tuple[str, str]:
        pool = Pool(lambda: None)
        view = SourceView(pool)

        async def answer(agent: Agent, seen: cachew_pb2.SourcesSeen | None) -> None:
            asked = (await agent.commands.get()).sources
            assert list(asked.patterns) == patterns
            if seen is None:
                pool.disconnect(agent.id, "it was killed")
                return
            seen.request_id = asked.request_id
            view.answered(seen)

        answers = []
        for number, (host, said) in enumerate(hosts.items()):
            hello = cachew_pb2.AgentHello(agent_id=f"agent-{number}", host=host, slots=1)
            answers.append(asyncio.ensure_future(answer(pool.connect(hello), said)))
        try:
            return await view.identity(patterns)
        finally:
            await asyncio.gather(*answers)

    return asyncio.run(asyncio.wait_for(whole(), 30))


def seen(digest: str = "", problem: str = "") -> cachew_pb2.SourcesSeen:
    return cachew_pb2.SourcesSeen(digest=digest, problem=problem)


def test_hosts_that_see_the_same_files_agree() -> None:
    assert looked_at(["/data"], {"a": seen("one"), "b": seen("one")}) == ("one", "")


def test_hosts_that_see_other_files_are_named() -> None:
    digest, problem = looked_at(["/data"], {"a": seen("one"), "b": seen("two")})
    assert digest == ""
    assert problem.startswith("hosts a and b see different source files")


def test_what_one_host_does_not_see_is_said_with_its_name() -> None:
    digest, problem = looked_at(["/data"], {"a": seen("one"), "b": seen(problem="'/data' is gone")})
    assert (digest, problem) == ("", "'/data' is gone (seen on host b)")


def test_an_agent_that_goes_instead_of_looking_is_named() -> None:
    with pytest.raises(ServiceError, match="agent agent-0 is gone"):
        looked_at(["/data"], {"a": None})


def test_without_any_worker_the_dispatcher_looks(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("content")
    assert looked_at([str(tmp_path)], {}) == (identify([str(tmp_path)]).digest, "")
