"""An assignment that can't be served ends as FAILED, with the cause, and gives everything back."""

import asyncio
import socket
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest
from real_service import DEADLINE_S

from cachew_core import stock
from cachew_core.errors import CacheError
from cachew_core.forkserver.child import WorkerOrder
from cachew_core.forkserver.nursery import Nursery
from cachew_core.ports import PortPool
from cachew_core.proto import cachew_pb2
from cachew_core.worker import slot
from cachew_core.worker.slot import Assignment, Report, WorkerNode


class Stage:
    """A node's parts, with what was reported."""

    def __init__(self) -> None:
        self.reports: list[cachew_pb2.AssignmentReport] = []
        self.ignored: list[cachew_pb2.IgnoredErrors] = []
        self.prepared = asyncio.Event()
        self.prepared.set()
        self.lacking = ""
        self.ports = PortPool(rest_s=60)
        self.nursery = Nursery()
        self.node = WorkerNode(
            host="127.0.0.1",
            nursery=self.nursery,
            ports=self.ports,
            tell=self.reports.append,
            tell_ignored=self.ignored.append,
            prepare=self._prepare,
        )

    async def _prepare(self, orders: Sequence[cachew_pb2.StageOrder]) -> None:
        await self.prepared.wait()
        if self.lacking:
            raise CacheError(self.lacking)

    async def last_report_of(self, dispatch_address: str) -> cachew_pb2.AssignmentReport:
        command = cachew_pb2.Assign(assignment_id="a", dispatch_address=dispatch_address)
        await Assignment(command, self.node).run()
        return self.reports[-1]


def play(act: Callable[[Stage], Awaitable[None]], *, warm: bool = True) -> None:
    async def whole() -> None:
        stage = Stage()
        if warm:
            await stage.nursery.open()
        try:
            await act(stage)
        finally:
            await stage.nursery.close()
            stage.ports.close()

    asyncio.run(whole())


def unused_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return f"127.0.0.1:{probe.getsockname()[1]}"


def test_a_worker_whose_dispatcher_is_not_there_fails_and_names_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(slot, "SERVE_DEADLINE_S", 0.3)
    address = unused_address()

    async def act(stage: Stage) -> None:
        report = await stage.last_report_of(address)
        assert report.end == Report.FAILED
        assert f"dispatcher at {address} did not accept the worker within 0.3 s" in report.error

    play(act)


def test_a_child_that_can_not_serve_says_why(tmp_path: Path) -> None:
    server = stock.start_dispatch_server(
        port=0, work_dir=str(tmp_path), client_timeout_ms=10_000, job_gc_ms=10_000
    )

    async def act(stage: Stage) -> None:
        with socket.create_server(
            ("::", 0), family=socket.AF_INET6, dualstack_ipv6=True
        ) as foreign:
            port = foreign.getsockname()[1]
            child = await stage.nursery.start(
                WorkerOrder(
                    gate_address=str(server.target).split("://")[1],
                    address=f"127.0.0.1:{port}",
                    port=port,
                    heartbeat_interval_ms=100,
                ),
                (sys.stderr.fileno(),),
            )
            how = await asyncio.wait_for(child.ended(), DEADLINE_S)
        assert f"{port}" in how or "start" in how.lower()
        child.kill()

    play(act)
    server._stop()


def test_a_node_whose_nursery_is_not_open_fails_its_assignments_and_keeps_nothing() -> None:
    async def act(stage: Stage) -> None:
        report = await stage.last_report_of(unused_address())
        assert report.end == Report.FAILED
        assert "nursery is not open" in report.error
        assert [one.state for one in stage.reports] == [Report.STARTING, Report.ENDED]

    play(act, warm=False)


def test_a_node_without_tensorflow_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "tensorflow.py").write_text("raise ImportError('there is none')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    async def act(stage: Stage) -> None:
        with pytest.raises(Exception, match=r"there is none.*install cachew-service\[tf-cpu\]"):
            await stage.nursery.open()

    play(act, warm=False)


def test_a_node_that_can_not_get_what_the_worker_needs_is_a_failure_with_its_cause() -> None:
    async def act(stage: Stage) -> None:
        stage.lacking = "the bucket is gone"
        report = await stage.last_report_of(unused_address())
        assert (report.state, report.end) == (Report.ENDED, Report.FAILED)
        assert "the bucket is gone" in report.error

    play(act, warm=False)


def test_an_assignment_is_released_although_what_it_needs_is_not_there_yet() -> None:
    async def act(stage: Stage) -> None:
        stage.prepared.clear()
        assignment = Assignment(cachew_pb2.Assign(assignment_id="a"), stage.node)
        life = asyncio.ensure_future(assignment.run())
        assignment.release()
        await asyncio.wait_for(life, DEADLINE_S)
        assert (stage.reports[-1].state, stage.reports[-1].end) == (Report.ENDED, Report.RELEASED)

    play(act, warm=False)
