"""The dispatcher process: puts the parts together, serves, and ends in order."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import grpc

from cachew_core.cache import CacheStore, Store
from cachew_core.dispatcher.autoscaling import Autoscaler
from cachew_core.dispatcher.caching import Autocache
from cachew_core.dispatcher.choosing import Chooser
from cachew_core.dispatcher.epochs import EpochService
from cachew_core.dispatcher.events import event, stop_events, write_events
from cachew_core.dispatcher.front import Front
from cachew_core.dispatcher.history import History
from cachew_core.dispatcher.jobs import JobBook
from cachew_core.dispatcher.measuring import Measurer
from cachew_core.dispatcher.pool import Pool
from cachew_core.dispatcher.scheduler import Scheduler
from cachew_core.dispatcher.service import DispatcherService
from cachew_core.dispatcher.sources import SourceView
from cachew_core.dispatcher.staging import open_bucket_store
from cachew_core.dispatcher.stock_servers import StockServers
from cachew_core.dispatcher.stored import StoredView
from cachew_core.dispatcher.timeline import Timeline
from cachew_core.dispatcher.web import WebServer
from cachew_core.errors import CacheError, ServiceError
from cachew_core.forkserver.nursery import ForkedSpawner, Nursery
from cachew_core.gcs import is_bucket
from cachew_core.metadata import MetadataStore
from cachew_core.policy.autoscale import AutoscaleSettings, parse_scaling_policy
from cachew_core.policy.batch_reports import ReportSettings
from cachew_core.policy.constants import AutocacheSettings, CostModel, Objective, Prices
from cachew_core.policy.decisions import Environment
from cachew_core.policy.hill_climb import HillClimbSettings
from cachew_core.policy.modes import parse_policy
from cachew_core.policy.rate_match import RateMatchSettings
from cachew_core.proto import cachew_pb2, cachew_pb2_grpc
from cachew_core.rpc import SERVER_OPTIONS, own_versions
from cachew_core.settings import DispatcherSettings

log = logging.getLogger(__name__)

WATCH_INTERVAL_S = 1.0

NO_PAGE = -1
"""The port where there is no page."""

METADATA_WAIT_S = 35.0
"""A service that died in another container keeps its store for 30 s."""

STORE_WAIT_S = 600.0
"""A service that is drained waits so long for what its last epochs wrote: to a bucket that takes
its time.
"""

GOODBYE_S = 2.0
"""How long trainers get to hear why their epochs end, and agents to end their workers."""


def run(settings: DispatcherSettings) -> None:
    """Serves until it is told to end, or nobody has used it for too long.

    Raises:
        ServiceError: the port can't be had.
    """
    # Before anything here has a thread of its own.
    forked = ForkedSpawner()
    asyncio.run(_serve(settings, Nursery(forked)))


async def _serve(settings: DispatcherSettings, nursery: Nursery) -> None:
    work_dir = settings.work_dir or Path(tempfile.mkdtemp(prefix="cachew-dispatcher-"))
    work_dir.mkdir(parents=True, exist_ok=True)
    try:
        await nursery.open()
        dispatcher = Dispatcher(settings, work_dir, nursery)
        await dispatcher.start()
        await dispatcher.serve_until_ended()
    finally:
        await nursery.close()
        if settings.work_dir is None:
            shutil.rmtree(work_dir, ignore_errors=True)


class Dispatcher:
    """One service's dispatcher.

    Args:
        settings: see there.
        work_dir: an existing folder for the stock servers' state.
        nursery: an open one, which stock servers are forked from.
    """

    def __init__(self, settings: DispatcherSettings, work_dir: Path, nursery: Nursery) -> None:
        clock = time.monotonic
        self._settings = settings
        self._clock = clock
        self._end = asyncio.Event()
        self._end_reason = ""
        self._book = JobBook()
        history = History(_open_metadata(settings))
        self._autoscaler = _autoscaler(settings, history, clock)
        self._servers = StockServers(nursery, settings.host, work_dir, settings.client_timeout_s)
        self._scheduler = Scheduler(self._book, settings, self._servers, self._autoscaler, clock)
        self._servers.on_ready = self._scheduler.changed
        sources = SourceView(self._scheduler.pool)
        store = _open_store(settings, self._scheduler.pool)
        self._stored = StoredView(store, clock)
        self._autocache = _autocache(settings, store, self._scheduler, history, sources, clock)
        self._epochs = EpochService(self._scheduler, self._autocache, clock)
        self._service = DispatcherService(
            settings,
            self._scheduler,
            self._epochs,
            self._autocache.chooser,
            sources,
            self._stored,
            proof=self._autocache.lay_proof(),
            clock=clock,
            shut_down=self._shut_down,
            pid=os.getpid(),
        )
        self._server = grpc.aio.server(options=SERVER_OPTIONS)
        self._timeline = Timeline(self._book, self._autoscaler)
        self._web = WebServer(
            settings.host,
            settings.page_port,
            status=self._service.status,
            samples=lambda: [self._timeline.of(job) for job in self._book.jobs.values()],
        )
        self._event_log = (
            write_events(settings.events_file) if settings.events_file is not None else None
        )
        self._tasks: set[asyncio.Task[None]] = set()
        self._started_at = clock()
        self._last_client_at: float | None = None

    async def start(self) -> None:
        """Listens, and writes the endpoint to its file.

        Raises:
            ServiceError: the port can't be had.
        """
        self._servers.open()
        cachew_pb2_grpc.add_DispatcherServicer_to_server(self._service, self._server)
        self._server.add_generic_rpc_handlers((Front(self._book, self._epochs),))
        wanted = f"{self._settings.host}:{self._settings.port}"
        try:
            port = self._server.add_insecure_port(wanted)
        except RuntimeError as error:
            raise ServiceError(
                f"the dispatcher can't listen on {wanted}: is the port in use?"
            ) from error
        await self._server.start()
        endpoint = f"grpc://{self._settings.host}:{port}"
        self._service.endpoint = endpoint
        if self._settings.page_port != NO_PAGE:
            self._service.page = await self._web.start()
            log.info("service %s: its page is at %s", self._settings.name, self._service.page)
        if self._settings.endpoint_file is not None:
            _write(self._settings.endpoint_file, endpoint)
        log.info(
            "service %s: dispatcher serves at %s",
            self._settings.name,
            endpoint,
            extra=event("service_started", service=self._settings.name, endpoint=endpoint),
        )

    async def serve_until_ended(self) -> None:
        """Returns once the service was shut down, got SIGTERM, or was idle for too long."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(
                number, self._shut_down, cachew_pb2.ShutdownRequest(reason=number.name)
            )
        watch = self._spawn(self._watch())
        await self._end.wait()
        watch.cancel()
        await self._say_goodbye()
        self._service.ending = True
        await self._autoscaler.stop()
        await self._autocache.stop()
        await self._scheduler.stop()
        await self._servers.close()
        await self._server.stop(grace=0.5)
        await self._web.stop()
        log.info(
            "service %s ended: %s",
            self._settings.name,
            self._end_reason,
            extra=event("service_ended", service=self._settings.name),
        )
        if self._event_log is not None:
            stop_events(self._event_log)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # The end

    def _shut_down(self, request: cachew_pb2.ShutdownRequest) -> None:
        reason = request.reason or "it was taken down"
        self._end_reason = self._end_reason or reason
        self._scheduler.refusing = f"service {self._settings.name!r} is going down: {reason}"
        log.info(
            "%s%s", self._scheduler.refusing, "; open epochs may end first" if request.drain else ""
        )
        if request.drain:
            self._spawn(self._end_when_quiet())
        else:
            self._end.set()

    async def _end_when_quiet(self) -> None:
        while any(job.live_epochs() for job in self._book.jobs.values()):
            await asyncio.sleep(0.1)
        await _poll(lambda: not self._autocache.is_writing, STORE_WAIT_S)
        self._end.set()

    async def _say_goodbye(self) -> None:
        """Trainers hear why their epochs end; then agents end their workers."""
        self._epochs.fail_all(f"service {self._settings.name!r} was taken down: {self._end_reason}")
        await _poll(
            lambda: all(reader.told_of_end for reader in self._epochs.readers.values()), GOODBYE_S
        )
        for agent in self._scheduler.pool.agents.values():
            command = cachew_pb2.AgentShutdown(reason=self._end_reason)
            agent.commands.put_nowait(cachew_pb2.AgentCommand(shutdown=command))
        await _poll(lambda: not self._scheduler.pool.agents, GOODBYE_S)

    # What needs a clock

    async def _watch(self) -> None:
        looks = (
            self._timeline.sample,
            self._stored.look,
            self._scheduler.rebalance,
            self._remove_silent_clients,
            self._end_if_idle,
        )
        while True:
            await asyncio.sleep(WATCH_INTERVAL_S)
            for look in looks:
                try:
                    look()
                # Whatever is wrong with one job, the others and the service's end need the rest.
                except Exception:
                    log.exception("service %s: a look at its jobs failed", self._settings.name)

    def _remove_silent_clients(self) -> None:
        now = self._clock()
        for job in list(self._book.jobs.values()):
            for client in list(job.clients.values()):
                limit_s = self._settings.client_timeout_s
                if not client.streams:
                    limit_s = min(limit_s, self._settings.client_reconnect_s)
                if now - client.seen_at > limit_s:
                    reason = f"it was silent for {limit_s:g} s"
                    self._spawn(self._epochs.remove_client(client, reason))

    def _end_if_idle(self) -> None:
        now = self._clock()
        if any(job.clients for job in self._book.jobs.values()):
            self._last_client_at = now
            return
        if self._last_client_at is None:
            idle_since, limit_s, what = (
                self._started_at,
                self._settings.first_client_timeout_s,
                "no client came",
            )
        else:
            idle_since, limit_s, what = (
                self._last_client_at,
                self._settings.idle_timeout_s,
                "no client",
            )
        if now - idle_since > limit_s:
            self._shut_down(cachew_pb2.ShutdownRequest(reason=f"{what} for {limit_s:g} s"))


def _autoscaler(
    settings: DispatcherSettings, history: History, clock: Callable[[], float]
) -> Autoscaler:
    by_cost = Objective(settings.scaling_objective) is Objective.COST
    tolerance = settings.scaling_cost_tolerance if by_cost else settings.scaling_tolerance
    scaling = AutoscaleSettings(
        matching=RateMatchSettings(tolerance=tolerance),
        climbing=HillClimbSettings(
            add_over=settings.climb_threshold,
            remove_under=settings.climb_threshold,
            recheck_reports=settings.climb_recheck_reports,
            slow_growth=settings.climb_slow_growth,
            idle_growth=settings.climb_idle_growth,
            outlier=settings.climb_outlier,
            history=settings.climb_history,
        ),
        reports=ReportSettings(
            batches=settings.climb_batches,
            pause_batches=settings.climb_pause_batches,
            skip_batches=settings.climb_skip_batches,
        ),
    )
    return Autoscaler(parse_scaling_policy(settings.scaling_policy), scaling, history, clock)


def _autocache(
    settings: DispatcherSettings,
    store: Store | None,
    scheduler: Scheduler,
    history: History,
    sources: SourceView,
    clock: Callable[[], float],
) -> Autocache:
    policy, versions = parse_policy(settings.cache_policy), own_versions()
    environment = Environment(
        device=str(settings.cache_dir),
        version=f"Cachew {versions.cachew}, TensorFlow {versions.tensorflow}",
    )
    measurer = Measurer(
        scheduler.pool,
        history,
        environment,
        scratch=store.scratch if store else Path,
        budget_s=settings.profile_budget_s,
    )
    auto = AutocacheSettings(
        objective=Objective(settings.cache_objective),
        cost_model=CostModel(settings.cache_cost_model),
    )
    prices = Prices(
        trainer_hour=settings.price_trainer_hour,
        worker_hour=settings.price_worker_hour,
        gb_month=settings.price_gb_month,
    )
    chooser = Chooser(policy, measurer, history, environment, auto, prices)
    return Autocache(store, chooser, history, clock, sources.identity)


def _open_metadata(settings: DispatcherSettings) -> MetadataStore | None:
    if settings.store_url is None:
        return None
    return MetadataStore.open(
        settings.store_url, store=settings.store or settings.name, wait_s=METADATA_WAIT_S
    )


def _open_store(settings: DispatcherSettings, pool: Pool) -> Store | None:
    if settings.cache_dir is None:
        return None
    store = _opened(settings, settings.cache_dir, pool)
    try:
        # Before the first job: a measurement's folder looks like what a dead service has left.
        if freed_bytes := store.collect().bytes:
            log.info("what dead services left in the cache is gone: %d bytes", freed_bytes)
    except (CacheError, OSError) as error:
        log.warning("what dead services left in the cache can't be removed yet: %s", error)
    return store


def _opened(settings: DispatcherSettings, place: str, pool: Pool) -> Store:
    if is_bucket(place):
        return open_bucket_store(settings, pool)
    return CacheStore.open(
        place,
        capacity_bytes=settings.cache_capacity_bytes,
        require_mount=settings.cache_needs_mount,
    )


async def _poll(condition: Callable[[], bool], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition() and time.monotonic() < deadline:
        await asyncio.sleep(0.02)


def _write(path: Path, text: str) -> None:
    """Writes so that a reader sees all of it or none."""
    draft = path.with_name(path.name + ".tmp")
    with contextlib.suppress(FileNotFoundError):
        draft.unlink()
    draft.write_text(text + "\n")
    draft.replace(path)
