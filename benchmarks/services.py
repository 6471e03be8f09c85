"""The two services of a benchmark, with the same number of workers on this machine."""

from __future__ import annotations

import select
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil
import tensorflow as tf

import cachew_core as cachew
from benchmarks.cases import Case, StockApi
from benchmarks.stock_process import Role
from cachew_core import stock
from cachew_core.cluster import down, up
from cachew_core.service_record import ServiceRecord
from cachew_core.settings import ClientSettings

_ROOT = Path(__file__).resolve().parent.parent
_READY_S = 180.0
"""Importing TensorFlow takes 6 s, on a busy machine half a minute."""
_END_S = 10.0
_SHOWN_OF_LOG = 2000
"""Characters."""
_IDLE_TIMEOUT_S = 600.0
"""Should the benchmark be killed outright, our service ends itself so much later."""


class StockError(Exception):
    """A server of stock tf.data service did not start, with the end of what it wrote."""


class _StockProcess:
    def __init__(self, role: Role) -> None:
        self._role = role
        self._log = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.stock_process", role],
            cwd=_ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            # As ours run. Linux shares the cores out among sessions first: servers in the trainer's
            # own session cost about 7 % less time than the same servers in one of their own.
            start_new_session=True,
        )

    def order(self, line: str = "") -> None:
        """Lets it serve."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def answer(self) -> str:
        """What it says once it serves.

        Raises:
            StockError: it ended, or did not say so in time.
        """
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], _READY_S)
        line = self._process.stdout.readline().strip() if ready else ""
        if not line:
            self._log.seek(0)
            raise StockError(
                f"a stock {self._role} did not serve within {_READY_S:g} s:\n"
                f"{self._log.read()[-_SHOWN_OF_LOG:]}"
            )
        return line

    def end(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._log.close()


class StockService:
    """A stock dispatcher and its workers, with the settings that they have by default."""

    def __init__(self, workers: int) -> None:
        """Starts the processes; `await_ready` waits for them."""
        self._dispatcher = _StockProcess("dispatcher")
        self._workers = [_StockProcess("worker") for _ in range(workers)]
        self._target = ""

    def await_ready(self) -> None:
        """Returns once all serve.

        Raises:
            StockError: one does not.
        """
        self._dispatcher.order()
        self._target = self._dispatcher.answer()
        address = self._target.partition("://")[2]
        for worker in self._workers:
            worker.order(address)
        for worker in self._workers:
            worker.answer()

    def dataset(self, pipeline: tf.data.Dataset, api: StockApi) -> tf.data.Dataset:
        """The pipeline, distributed by stock."""
        service = tf.data.experimental.service
        if api is StockApi.PUBLIC:
            distribute = service.distribute(
                processing_mode="distributed_epoch", service=self._target, compression=None
            )
            return pipeline.apply(distribute)
        name = uuid.uuid4().hex
        service.register_dataset(self._target, pipeline, compression=None, dataset_id=name)
        received = stock.service_dataset(
            address=self._target.partition("://")[2],
            dataset_id=name,
            job_name=name,
            processing_mode="distributed_epoch",
            element_spec=pipeline.element_spec,
            task_refresh_interval_ms=ClientSettings.load().task_refresh_interval_ms,
        )
        # As ours has it, too.
        return received.prefetch(tf.data.AUTOTUNE)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in (*self._workers, self._dispatcher):
            process.end()


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """Both, running."""

    stock: StockService
    ours: ServiceRecord

    def datasets(self, case: Case) -> tuple[tf.data.Dataset, tf.data.Dataset]:
        """The case's pipeline, distributed by ours and by stock."""
        # Both sides have all workers, always.
        distribute = cachew.distribute(service=self.ours.endpoint, scaling_policy="all")
        ours: tf.data.Dataset = case.pipeline().apply(distribute)
        return ours, self.stock.dataset(case.pipeline(), case.stock_api)

    @contextmanager
    def ours_paused(self) -> Iterator[None]:
        """Our processes stand still meanwhile.

        Stock's do next to nothing when idle. Ours keep in touch with each other, and what that
        costs must not slow down the other side.
        """
        agent = psutil.Process(self.ours.agent_pid)
        dispatcher = psutil.Process(self.ours.dispatcher_pid)
        processes = [dispatcher, agent, *agent.children(recursive=True)]
        try:
            for process in processes:
                process.suspend()
            yield
        finally:
            for process in processes:
                with suppress(psutil.NoSuchProcess):
                    process.resume()


@contextmanager
def both_services(workers: int) -> Iterator[Services]:
    """Starts both; at the end nothing of them is left.

    Raises:
        StockError: stock's did not start.
        ServiceError: ours did not start.
    """
    name = f"bench-{uuid.uuid4().hex[:8]}"
    with ExitStack() as stack:
        stock_service = stack.enter_context(StockService(workers))
        stack.callback(down, name)
        record = up(
            name,
            workers=workers,
            cache_policy="compute",
            idle_timeout_s=_IDLE_TIMEOUT_S,
            first_client_timeout_s=_IDLE_TIMEOUT_S,
        )
        stock_service.await_ready()
        yield Services(stock=stock_service, ours=record)
