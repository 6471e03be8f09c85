"""One generation of a job: the time in which no worker left it, with a stock `DispatchServer` of
its own.

Stock never forgets a worker: an epoch that begins after one left blocks or fails. So workers may
join a generation, and when one leaves it is closed: its open epochs go on, the next one gets a new
generation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cachew_core.dispatcher.pool import Assignment, AssignmentState
from cachew_core.dispatcher.stock_servers import StockServer
from cachew_core.errors import ServiceError
from cachew_core.proto import cachew_pb2, stock_pb2

if TYPE_CHECKING:
    from cachew_core.dispatcher.jobs import Epoch, Job

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
    """A stock server, its members, and the epochs that it serves.

    Args:
        job: whose it is.
        server: of its own.

    Attributes:
        members: assignments that have not ended.
        epochs: live ones that are bound to it.
        closed: a member left, or leaves; no new epoch begins here.
        newest: the epoch that began here last, also when it has ended.
        lost: members that ended while they served, without an order; their epochs have failed.
        broken: how the stock server ended, if it did so by itself; its epochs have failed.
        dry: stock iterations that no splits are left of.
        changes: of members and of what is left; while it is the same, a reader's tasks are.
    """

    def __init__(self, job: Job, server: StockServer) -> None:
        self.job = job
        self.server = server
        self.members: list[Assignment] = []
        self.epochs: set[Epoch] = set()
        self.closed = False
        self.newest: Epoch | None = None
        self.lost: list[Assignment] = []
        self.broken = ""
        self.dry: set[int] = set()
        self.changes = 0
        self._registered: set[str] = set()

    def serving(self) -> list[Assignment]:
        """Members that can take splits."""
        return [m for m in self.members if m.state is AssignmentState.SERVING and not m.releasing]

    def staying(self) -> list[Assignment]:
        """Members that have not been told to go."""
        return [m for m in self.members if not m.leaving]

    def member_ended(self, assignment: Assignment, *, lost: bool) -> None:
        """Takes a member off the list; stock never forgets it, so no new epoch may begin here."""
        self.members.remove(assignment)
        self.changes += 1
        self.closed = True
        if lost:
            self.lost.append(assignment)

    async def call(self, method: str, request: bytes) -> bytes:
        """One call to the stock server, as bytes.

        Raises:
            ServiceError: the server was stopped before or while it answered.
            grpc.aio.AioRpcError: it refused, or did not answer in time.
        """
        try:
            return await self.server.call(method, request)
        except ServiceError as error:
            raise ServiceError(
                f"job {self.job.name!r} ended, so nothing reads it any more: {error}"
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
        """Ends the stock server."""
        self.closed = True
        await self.server.stop()
