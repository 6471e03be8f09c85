"""Source files as worker nodes see them: the dispatcher may not have them mounted."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from cachew_core.dispatcher.pool import Agent, Pool
from cachew_core.errors import ServiceError
from cachew_core.proto import cachew_pb2
from cachew_core.sources import identify

__all__ = ["TRUSTED", "SourceLook", "SourceView"]

LOOK_S = 60.0
"""Looking at some millions of files takes so long."""

EXAMINE_S = 20.0
"""How long a worker node reads files to find a broken one."""

POLL_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLook:
    """What files looked like at one time.

    Attributes:
        patterns: paths and globs; none where nobody looks.
        identity: equal if the files are.
    """

    patterns: tuple[str, ...]
    identity: str


TRUSTED = SourceLook(patterns=(), identity="trusted")
"""The user says that they never change."""


class SourceView:
    """Asks agents about files.

    Args:
        pool: the agents.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._asked: dict[str, asyncio.Future[cachew_pb2.SourcesSeen]] = {}

    async def identity(self, patterns: Sequence[str]) -> tuple[str, str]:
        """What identifies files now, and why nothing does; one of both is empty.

        Every host with an agent looks. Without any, as before a direct read, this process does.
        """
        by_host = {agent.host: agent for agent in self._pool.agents.values() if not agent.leaving}
        if not by_host:
            here = await asyncio.to_thread(identify, patterns)
            return here.digest, here.problem
        command = cachew_pb2.SeeSources(patterns=patterns)
        seen = await asyncio.gather(
            *(self._ask(agent, command, LOOK_S) for agent in by_host.values())
        )
        answers = dict(zip(by_host, seen, strict=True))
        for host, answer in answers.items():
            if answer.problem:
                return "", f"{answer.problem} (seen on host {host})"
        (first, expected), *others = answers.items()
        for host, answer in others:
            if answer.digest != expected.digest:
                return "", (
                    f"hosts {first} and {host} see different source files (paths, sizes, times or "
                    "inodes): mount the same volume at the same path on all worker nodes"
                )
        return expected.digest, ""

    async def broken_files(self, agent: Agent, graph: bytes, patterns: Sequence[str]) -> list[str]:
        """Files that a worker node can't read, each with what is wrong.

        Raises:
            ServiceError: it could not look for them.
        """
        command = cachew_pb2.SeeSources(patterns=patterns, graph=graph, budget_s=EXAMINE_S)
        answer = await self._ask(agent, command, 2 * EXAMINE_S)
        if answer.problem:
            raise ServiceError(answer.problem)
        return list(answer.broken)

    def answered(self, seen: cachew_pb2.SourcesSeen) -> None:
        """What an agent says; nobody may be waiting for it any more."""
        asked = self._asked.get(seen.request_id)
        if asked is not None and not asked.done():
            asked.set_result(seen)

    async def _ask(
        self, agent: Agent, command: cachew_pb2.SeeSources, wait_s: float
    ) -> cachew_pb2.SourcesSeen:
        question = cachew_pb2.SeeSources()
        question.CopyFrom(command)
        question.request_id = secrets.token_hex(8)
        answer: asyncio.Future[cachew_pb2.SourcesSeen] = asyncio.get_running_loop().create_future()
        self._asked[question.request_id] = answer
        agent.commands.put_nowait(cachew_pb2.AgentCommand(sources=question))
        try:
            async with asyncio.timeout(wait_s):
                while self._pool.agents.get(agent.id) is agent:
                    done, _ = await asyncio.wait({answer}, timeout=POLL_S)
                    if done:
                        return answer.result()
        except TimeoutError:
            raise ServiceError(f"agent {agent.id} has not looked at the files in time") from None
        finally:
            del self._asked[question.request_id]
        raise ServiceError(f"agent {agent.id} is gone before it had looked at the files")
