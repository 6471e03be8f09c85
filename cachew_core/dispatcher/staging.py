"""Has the worker nodes carry data between a bucket and their own disks.

The store calls from threads; agents are talked to in the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
from collections.abc import Coroutine, Iterable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

import platformdirs

from cachew_core.cache import (
    BucketStore,
    Chunk,
    DamagedError,
    NotCompleteError,
    Shelf,
    check_capacity,
    staged_name,
)
from cachew_core.dispatcher.pool import Agent, Pool
from cachew_core.errors import CacheError
from cachew_core.proto import cachew_pb2
from cachew_core.settings import DispatcherSettings

log = logging.getLogger(__name__)

Order = cachew_pb2.StageOrder
Result = cachew_pb2.StageResult

SEND_S = 3600.0
"""Nothing waits for it but the commit."""

T = TypeVar("T")


class AgentCarrier:
    """A `Carrier` that orders agents.

    Args:
        pool: has the agents.
        loop: in which the pool lives; this object is made there.
        bucket: `gs://bucket/prefix`.
        folder: of each node's copy.
        known: names of entries in the bucket, whose copies need not go.
    """

    def __init__(
        self,
        pool: Pool,
        loop: asyncio.AbstractEventLoop,
        bucket: str,
        folder: Path,
        *,
        known: Iterable[str] = (),
    ) -> None:
        self._pool = pool
        self._loop = loop
        self._bucket = bucket
        self._folder = folder
        self._lock = threading.Lock()
        self._held: dict[str, Order] = {}
        self._writers: dict[str, set[str]] = {}
        self._fetching: dict[str, Future[list[Result]]] = {}
        self._waiting: dict[str, tuple[Agent, asyncio.Future[Result]]] = {}
        self._known = set(known)
        pool.watch = self

    # What the store asks for, in any thread

    def begin(self, name: str) -> None:
        """See `Carrier`."""
        self._run(self._begin(name)).result()

    def send(self, name: str) -> list[tuple[Sequence[Chunk], int]]:
        """See `Carrier`."""
        results = self._run(self._send(name)).result()
        _raise_failure(results)
        with self._lock:
            self._writers.pop(name, None)
            self._known.add(name)
        # Two agents on one machine may have the same folder, and tell of the same files.
        runs = {}
        for result in results:
            for run in result.runs:
                chunks = tuple(
                    Chunk(path=file.path, bytes=file.bytes, crc32=file.crc32) for file in run.files
                )
                runs[chunks] = run.elements
        return list(runs.items())

    def hold(self, name: str, files: Sequence[Chunk]) -> None:
        """See `Carrier`."""
        order = self._order()
        order.fetch.name = name
        order.fetch.files.extend(
            cachew_pb2.StagedFile(path=chunk.path, bytes=chunk.bytes, crc32=chunk.crc32)
            for chunk in files
        )
        with self._lock:
            self._held[name] = order
            self._known.add(name)

    def fetch(self, name: str, *, wait_s: float) -> bool:
        """See `Carrier`."""
        with self._lock:
            order = self._held[name]
            fetching = self._fetching.get(name)
            if fetching is None or fetching.done():
                fetching = self._fetching[name] = self._run(self._fetch(order))
        try:
            results = fetching.result(wait_s)
        except TimeoutError:
            return False
        with self._lock:
            self._fetching.pop(name, None)
        _raise_failure(results)
        return True

    def let_go(self, name: str, *, remove: bool) -> None:
        """See `Carrier`."""
        with self._lock:
            self._held.pop(name, None)
            self._writers.pop(name, None)
            if remove:
                self._known.discard(name)
        if remove:
            self._run(self._tell_all_to_remove(name))

    # What the pool tells, in the loop

    def connected(self, agent: Agent) -> None:
        """Copies that nobody knows any more go, among them those of a dispatcher that died."""
        order = self._order()
        order.tidy.names.extend(self._kept())
        agent.commands.put_nowait(cachew_pb2.AgentCommand(stage=order))

    def assigned(self, agent: Agent) -> list[Order]:
        """What an agent must have before the worker that it is given may begin."""
        with self._lock:
            for writers in self._writers.values():
                writers.add(agent.id)
            return [self._with_keep(order) for order in self._held.values()]

    def lost(self, agent: Agent) -> None:
        """Nothing that was asked of this agent will be answered."""
        for order_id, (asked, _) in list(self._waiting.items()):
            if asked is agent:
                gone = f"worker node {agent.id} is gone"
                self.answered(
                    agent, Result(order_id=order_id, failure=Result.INCOMPLETE, error=gone)
                )

    def answered(self, agent: Agent, result: Result) -> None:
        """What an agent says of an order; nobody may be waiting for it any more."""
        asked, answer = self._waiting.get(result.order_id, (None, None))
        if asked is agent and answer is not None and not answer.done():
            answer.set_result(result)

    # In the loop

    async def _begin(self, name: str) -> None:
        busy = {slot.agent.id for slot in self._pool.slots() if slot.assignment is not None}
        with self._lock:
            self._writers[name] = busy

    async def _send(self, name: str) -> list[Result]:
        with self._lock:
            writers = set(self._writers.get(name, ()))
        gone = writers - set(self._pool.agents)
        if gone:
            raise NotCompleteError(
                f"worker node {min(gone)} is gone before it had sent what it wrote"
            )
        order = self._order()
        order.send = name
        return await self._ask((self._pool.agents[agent] for agent in writers), order)

    async def _fetch(self, order: Order) -> list[Result]:
        with self._lock:
            order = self._with_keep(order)
        staying = [agent for agent in self._pool.agents.values() if not agent.leaving]
        results = await self._ask(staying, order)
        # One that left has no part in the epoch.
        return [result for result in results if result.failure != Result.INCOMPLETE]

    async def _tell_all_to_remove(self, name: str) -> None:
        for agent in self._pool.agents.values():
            order = self._order()
            order.remove = name
            agent.commands.put_nowait(cachew_pb2.AgentCommand(stage=order))

    async def _ask(self, agents: Iterable[Agent], order: Order) -> list[Result]:
        return await asyncio.gather(*(self._ask_one(agent, order) for agent in agents))

    async def _ask_one(self, agent: Agent, order: Order) -> Result:
        own = Order()
        own.CopyFrom(order)
        own.order_id = secrets.token_hex(8)
        answer: asyncio.Future[Result] = self._loop.create_future()
        self._waiting[own.order_id] = agent, answer
        agent.commands.put_nowait(cachew_pb2.AgentCommand(stage=own))
        try:
            async with asyncio.timeout(SEND_S):
                return await answer
        except TimeoutError:
            late = f"worker node {agent.id} has not answered within {SEND_S:g} s"
            return Result(failure=Result.FAILED, error=late)
        finally:
            del self._waiting[own.order_id]

    def _order(self) -> Order:
        return Order(bucket=self._bucket, folder=str(self._folder))

    def _with_keep(self, order: Order) -> Order:
        own = Order()
        own.CopyFrom(order)
        own.keep.extend(self._held)
        return own

    def _kept(self) -> list[str]:
        with self._lock:
            return [*self._known, *self._writers]

    def _run(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)


def open_bucket_store(settings: DispatcherSettings, pool: Pool) -> BucketStore:
    """The store in the bucket that `cache_dir` names; call it in the loop in which the pool lives.

    Raises:
        CacheError: it can't be used; names the setting.
    """
    url = str(settings.cache_dir)
    if settings.cache_needs_mount:
        raise CacheError(f"cache_needs_mount is for folders, and cache_dir is {url}: drop it")
    check_capacity(settings.cache_capacity_bytes)
    stage = settings.cache_stage_dir or _default_stage(settings.name)
    try:
        stage.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CacheError(f"cache_stage_dir {stage} can't be made: {error}") from error
    shelf = Shelf.open(url, stage)
    shelf.check_writable()
    known = [staged_name(found.entry.key, found.token) for found in shelf.shelved()]
    loop = asyncio.get_running_loop()
    carrier = AgentCarrier(pool, loop, shelf.bucket.url, stage, known=known)
    return BucketStore(shelf, stage, carrier, capacity_bytes=settings.cache_capacity_bytes)


def _default_stage(service: str) -> Path:
    return Path(platformdirs.user_cache_dir("cachew")) / "stages" / service


def _raise_failure(results: Iterable[Result]) -> None:
    for result in results:
        match result.failure:
            case Result.INCOMPLETE:
                raise NotCompleteError(result.error)
            case Result.DAMAGED:
                raise DamagedError(result.error)
            case Result.FAILED:
                raise CacheError(result.error)
