"""Source files as this node sees them: what they are now, and which of them can't be read.

Workers read them, so it counts what is mounted here, whatever the dispatcher sees.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from contextlib import AsyncExitStack

from cachew_core.errors import CachewError
from cachew_core.forkserver.child import ExamineOrder
from cachew_core.forkserver.nursery import Child, Nursery
from cachew_core.proto import cachew_pb2
from cachew_core.sources import identify

__all__ = ["looked_at"]

_log = logging.getLogger(__name__)

START_S = 5.0
"""What a child has, on top of its time, to begin on a busy machine."""


async def looked_at(command: cachew_pb2.SeeSources, nursery: Nursery) -> cachew_pb2.SourcesSeen:
    """Looks at source files; leaves no process behind.

    Args:
        command: with a graph, files that its readers can't read are looked for; else only what
            identifies the files.
        nursery: to fork a child from that reads files.

    Returns:
        The answer; one that could not be found says why as its problem.
    """
    seen = cachew_pb2.SourcesSeen(request_id=command.request_id)
    try:
        if command.graph:
            seen.broken.extend(await _broken(command, nursery))
        else:
            identity = await asyncio.to_thread(identify, command.patterns)
            seen.digest, seen.problem = identity.digest, identity.problem
    except (CachewError, OSError, ValueError) as error:
        seen.problem = str(error)
    except Exception as error:
        _log.exception("look at source files")
        seen.problem = f"the agent failed: {type(error).__name__}: {error}"
    return seen


async def _broken(command: cachew_pb2.SeeSources, nursery: Nursery) -> list[str]:
    order = ExamineOrder(patterns=tuple(command.patterns), budget_s=command.budget_s)
    async with AsyncExitStack() as belongings:
        graph, result = os.memfd_create("cachew-graph"), os.memfd_create("cachew-broken")
        belongings.callback(os.close, graph)
        belongings.callback(os.close, result)
        with open(os.dup(graph), "wb") as file:
            file.write(command.graph)
        child = await nursery.start(order, (graph, result))
        belongings.push_async_callback(_end, child)
        try:
            async with asyncio.timeout(command.budget_s + START_S):
                how = await child.ended()
        except TimeoutError:
            how = "it took too long"
        with open(os.dup(result), encoding="utf-8") as file:
            file.seek(0)
            text = file.read()
        if not text:
            raise CachewError(f"the files could not be examined: {how}")
        found: list[str] = json.loads(text)
        return found


async def _end(child: Child) -> None:
    child.kill()
    await child.ended()
