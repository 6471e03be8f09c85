"""One generation of a job: the time in which no worker left it, with a stock `DispatchServer` of
its own.

Stock never forgets a worker: an epoch that begins after one left blocks or fails. So workers may
join a generation, and when one leaves it is closed: its open epochs go on, the next one gets a new
generation.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc

from cachew_core import stock
from cachew_core.dispatcher.pool import Assignment, AssignmentState
from cachew_core.errors import ServiceError
from cachew_core.ports import PortPool
from cachew_core.proto import cachew_pb2, stock_pb2
from cachew_core.rpc import STOCK_CHANNEL_OPTIONS

if TYPE_CHECKING:
    from cachew_core.dispatcher.jobs import Epoch, Job

log = logging.getLogger(__name__)

DISPATCHER_SERVICE = "/tensorflow.data.DispatcherService/"

JOB_GC_MS = 1_000
"""An epoch that its readers left ends on the workers within about twice this time."""

_COMPRESSION = {
    cachew_pb2.COMPRESSION_NONE: stock_pb2.COMPRESSION_OFF,
    cachew_pb2.COMPRESSION_AUTO: stock_pb2.COMPRESSION_SNAPPY,
    cachew_pb2.COMPRESSION_SNAPPY: stock_pb2.COMPRESSION_FORCED_SNAPPY,
}


def stock_metadata(request: cachew_pb2.RegisterPipelineRequest) -> stock_pb2.DataServiceMetadata:
    """What stock keeps beside a dataset."""
    return stock_pb2.DataServiceMetadata(
        element_spec=request.element_spec,
        compression=_COMPRESSION[request.compression],
        cardinality=request.cardinality,
    )


class Generation:
    """A `DispatchServer`, its members, and the epochs that it serves.

    Attributes:
        members: assignments that have not ended.
        epochs: live ones that are bound to it.
        closed: a member left, or leaves; no new epoch begins here.
        lost: members that ended while they served, without an order; their epochs have failed.
    """

    def __init__(
        self, job: Job, *, work_dir: Path, host: str, ports: PortPool, client_timeout_s: float
    ) -> None:
        self.job = job
        self.members: list[Assignment] = []
        self.epochs: set[Epoch] = set()
        self.closed = False
        self.lost: list[Assignment] = []
        self._registered: set[str] = set()
        self._work_dir = work_dir
        self._work_dir.mkdir(parents=True)
        self._reservation = ports.reserve()
        self.address = f"{host}:{self._reservation.port}"
        self._server: Any = stock.start_dispatch_server(
            port=self._reservation.port,
            work_dir=str(work_dir),
            client_timeout_ms=int(client_timeout_s * 1000),
            job_gc_ms=JOB_GC_MS,
        )
        self._channel = grpc.aio.insecure_channel(self.address, options=STOCK_CHANNEL_OPTIONS)

    def serving(self) -> list[Assignment]:
        """Members that can take splits."""
        return [m for m in self.members if m.state is AssignmentState.SERVING and not m.releasing]

    def staying(self) -> list[Assignment]:
        """Members that have not been told to go."""
        return [m for m in self.members if not m.leaving]

    def member_ended(self, assignment: Assignment, *, lost: bool) -> None:
        """Takes a member off the list; stock never forgets it, so no new epoch may begin here."""
        self.members.remove(assignment)
        self.closed = True
        if lost:
            self.lost.append(assignment)

    async def call(self, method: str, request: bytes) -> bytes:
        """One call to the stock server, as bytes.

        Raises:
            ServiceError: the server was stopped before or while it answered.
            grpc.aio.AioRpcError: it refused.
        """
        call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = self._channel.unary_unary(
            DISPATCHER_SERVICE + method
        )
        try:
            return await call(request)
        except (asyncio.CancelledError, grpc.aio.UsageError) as error:
            # A closed channel cancels its calls. Passed on, that would end our caller's handler
            # without an answer, and a trainer would wait for it for ever.
            if self._server is not None:
                raise
            raise ServiceError(
                f"job {self.job.name!r} ended, so nothing reads it any more"
            ) from error

    async def open_iteration(
        self,
        epoch: Epoch,
        graph: bytes,
        variant: str,
        stock_request: stock_pb2.GetOrCreateJobRequest,
    ) -> int:
        """Stock's iteration client id for one more reader of the epoch.

        Args:
            epoch: all its readers share one stock iteration.
            graph: what the workers run in this epoch.
            variant: a name for that graph, unique in the job.
            stock_request: the trainer's own request; dataset, name and mode are replaced.
        """
        await self._register(graph, variant)
        stock_request.dataset_id = variant
        stock_request.job_name = f"epoch-{epoch.number}"
        policy = (
            stock_pb2.ProcessingModeDef.DYNAMIC
            if self._dynamic()
            else stock_pb2.ProcessingModeDef.OFF
        )
        stock_request.processing_mode_def.sharding_policy = policy
        job = stock_pb2.GetOrCreateJobResponse.FromString(
            await self.call("GetOrCreateJob", stock_request.SerializeToString())
        )
        iteration = stock_pb2.GetOrCreateIterationRequest(job_id=job.job_id, repetition=0)
        answer = await self.call("GetOrCreateIteration", iteration.SerializeToString())
        return stock_pb2.GetOrCreateIterationResponse.FromString(answer).iteration_client_id

    def _dynamic(self) -> bool:
        request = self.job.request
        return request.processing_mode == cachew_pb2.DISTRIBUTED_EPOCH and not request.single_worker

    async def _register(self, graph: bytes, variant: str) -> None:
        if variant in self._registered:
            return
        request = stock_pb2.GetOrRegisterDatasetRequest(
            dataset=stock_pb2.DatasetDef(graph=graph),
            metadata=stock_metadata(self.job.request),
            dataset_id=variant,
        )
        await self.call("GetOrRegisterDataset", request.SerializeToString())
        self._registered.add(variant)

    async def stop(self) -> None:
        """Ends the stock server and removes its work dir; its port rests."""
        self.closed = True
        server, self._server = self._server, None
        if server is None:
            return
        await self._channel.close()
        await asyncio.to_thread(server.stop)
        self._reservation.release()
        await asyncio.to_thread(shutil.rmtree, self._work_dir, ignore_errors=True)
