"""What becomes of an epoch's writing when the file system or the graph fails it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
import tensorflow as tf
from stock_snapshots import write_run

from cachew_core.cache import CacheStore
from cachew_core.cache.folders import ENTRIES
from cachew_core.dispatcher import caching
from cachew_core.dispatcher.caching import Autocache
from cachew_core.dispatcher.choosing import Chooser
from cachew_core.dispatcher.history import History
from cachew_core.dispatcher.jobs import Client, Epoch, EpochState, JobBook
from cachew_core.dispatcher.measuring import Measurer
from cachew_core.dispatcher.pool import Pool
from cachew_core.errors import PipelineError
from cachew_core.pipeline import Limits, prepare
from cachew_core.policy.constants import AutocacheSettings, Prices
from cachew_core.policy.decisions import Environment
from cachew_core.policy.modes import CachePolicy, Mode
from cachew_core.proto import cachew_pb2


@pytest.fixture
def store(tmp_path: Path) -> Iterator[CacheStore]:
    with CacheStore.open(tmp_path) as opened:
        yield opened


@pytest.fixture
def autocache(store: CacheStore) -> Autocache:
    history, environment = History(None), Environment(device="disk", version="1")
    measurer = Measurer(Pool(lambda: None), history, environment, scratch=store.scratch, budget_s=1)
    settings = AutocacheSettings()
    chooser = Chooser(CachePolicy.FULL, measurer, history, environment, settings, Prices())

    async def unchanged(_: object) -> tuple[str, str]:
        return "as ever", ""

    return Autocache(store, chooser, history, clock=lambda: 0.0, look_at=unchanged)


@pytest.fixture
def client() -> Client:
    prepared = prepare(
        tf.data.Dataset.range(4),
        processing_mode="distributed_epoch",
        compression=None,
        num_consumers=None,
        limits=Limits(max_bytes=2**20, warn_bytes=2**20),
    )
    request = cachew_pb2.RegisterPipelineRequest(
        job_name="numbers", graph=prepared.graph, processing_mode=cachew_pb2.DISTRIBUTED_EPOCH
    )
    return JobBook().register(request).add_client("a", host="host", pid=1, now=0)


def opened(client: Client) -> Epoch:
    """The client's next epoch, being read."""
    epoch = client.job.open_reader(client, client.opened, now=0).epoch
    epoch.state = EpochState.OPEN
    return epoch


def test_what_could_not_be_committed_may_be_written_again(
    store: CacheStore, autocache: Autocache, client: Client
) -> None:
    async def run() -> None:
        first = opened(client)
        plan = await autocache.plan(first)
        assert plan.writing is not None
        write_run(plan.writing.path / "run", [b"1", b"2"])
        (store.root / ENTRIES).rename(store.root / "elsewhere")
        first.end(EpochState.FINISHED, now=1)
        first.settle()
        async with asyncio.timeout(30):
            while store.begin(plan.writing.key) is None:
                await asyncio.sleep(0.02)

    asyncio.run(run())


def test_a_graph_that_can_not_be_made_to_write_blocks_no_later_epoch(
    autocache: Autocache, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> bytes:
        raise PipelineError("this graph can't write")

    async def run() -> list[Mode]:
        with monkeypatch.context() as patched:
            patched.setattr(caching, "writing_graph", refuse)
            modes = [(await autocache.plan(opened(client))).mode]
        return [*modes, (await autocache.plan(opened(client))).mode]

    assert asyncio.run(run()) == [Mode.COMPUTE, Mode.PUT]
