"""Measurements of pipelines: each in a child of its own, beside the slots."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
from contextlib import AsyncExitStack
from pathlib import Path

from cachew_core.errors import CachewError, ServiceError
from cachew_core.forkserver.child import MeasureOrder
from cachew_core.forkserver.nursery import Child, Nursery
from cachew_core.proto import cachew_pb2

_log = logging.getLogger(__name__)

START_S = 5.0
"""What a child has, on top of twice its budget, to begin on a busy machine."""


async def measured(command: cachew_pb2.Profile, nursery: Nursery) -> cachew_pb2.ProfileResult:
    """Has a child measure a pipeline; leaves no process and no file, whatever becomes of it.

    Args:
        command: its scratch folder may not be there yet.
        nursery: to fork the child from.

    Returns:
        The profile, or why there is none.
    """
    result = cachew_pb2.ProfileResult(profile_id=command.profile_id)
    try:
        result.json = await _figures(command, nursery)
    except (CachewError, OSError) as error:
        result.error = f"the pipeline could not be measured: {error}"
    except Exception as error:
        _log.exception("profile %s", command.profile_id)
        result.error = f"the agent failed: {type(error).__name__}: {error}"
    return result


async def _figures(command: cachew_pb2.Profile, nursery: Nursery) -> str:
    scratch = Path(command.scratch)
    if scratch.exists():
        raise FileExistsError(f"the scratch folder {scratch} is there already")
    order = MeasureOrder(
        points=tuple(command.points),
        scratch=str(scratch),
        budget_s=command.budget_s,
        batches=command.batches,
    )
    async with AsyncExitStack() as belongings:
        graph, result = os.memfd_create("cachew-graph"), os.memfd_create("cachew-profile")
        belongings.callback(os.close, graph)
        belongings.callback(os.close, result)
        await asyncio.to_thread(_fill, graph, command.graph)
        belongings.push_async_callback(_remove, scratch)
        child = await nursery.start(order, (graph, result))
        belongings.push_async_callback(_end, child)
        how = await _how_it_ended(child, 2 * command.budget_s + START_S)
        return _answer(result, how)


async def _how_it_ended(child: Child, limit_s: float) -> str:
    try:
        async with asyncio.timeout(limit_s):
            return await child.ended()
    except TimeoutError:
        return f"it was not done after {limit_s:g} s, and was ended"


def _answer(result: int, how: str) -> str:
    with open(os.dup(result), encoding="utf-8") as file:
        file.seek(0)
        text = file.read()
    try:
        json.loads(text)
    except json.JSONDecodeError:
        raise ServiceError(how) from None
    return text


def _fill(descriptor: int, content: bytes) -> None:
    with open(os.dup(descriptor), "wb") as file:
        file.write(content)


async def _end(child: Child) -> None:
    child.kill()
    await child.ended()


async def _remove(folder: Path) -> None:
    await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
