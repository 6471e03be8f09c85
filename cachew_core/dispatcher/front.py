"""The front: stock tf.data service's dispatcher protocol, spoken to trainers at our own port.

A trainer's graph holds the plain stock op, with our job's id as its dataset and the client's id as
its job name. The front binds each new iterator to an epoch and its generation, and from then on
passes heartbeats on to the generation's real `DispatchServer` under the real ids.

A trainer that sees the cache's volume reads two datasets one after the other, the first one under
`NAMES`, with the iterator's number behind the client's id, and in the other half the count of files
that it has read.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import grpc

from cachew_core.dispatcher.epochs import EpochService
from cachew_core.dispatcher.generation import stock_metadata
from cachew_core.dispatcher.halves import Halves
from cachew_core.dispatcher.jobs import Client, EpochState, JobBook, Reader
from cachew_core.dispatcher.stock_servers import DISPATCHER_SERVICE
from cachew_core.errors import CachewError
from cachew_core.proto import stock_pb2
from cachew_core.rpc import NAMES

log = logging.getLogger(__name__)

STOCK_VERSION = 9
"""`kDataServiceVersion`: what stock clients compare with their own before any other call."""

UNKNOWN_CARDINALITY = -2

WORKER_SERVICE = "/tensorflow.data.WorkerService/"

_NAMES_METADATA = stock_pb2.DataServiceMetadata(
    compression=stock_pb2.COMPRESSION_OFF, cardinality=UNKNOWN_CARDINALITY
)

Handler = Callable[[bytes, "grpc.aio.ServicerContext[bytes, bytes]"], Awaitable[bytes]]


class _RefusedError(Exception):
    """Ends a call with a status and one sentence."""

    def __init__(self, code: grpc.StatusCode, text: str) -> None:
        super().__init__(text)
        self.code = code


STOCK_BEAT_S = 1.0
"""Stock hears of a reader that often, though nothing changed: else it takes it for gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """What an iterator wants to read.

    Attributes:
        names: the half of file names.
        iterator: its number; None where the graph has one half only.
        files: that it has read, where this is not the half of names.
    """

    client: Client
    request: stock_pb2.GetOrCreateJobRequest
    names: bool
    iterator: int | None
    files: int


class Front(grpc.GenericRpcHandler):
    """Handles every call of stock's DispatcherService, and a WorkerService's for file names.

    Args:
        book: the jobs.
        epochs: opens and ends readers.
    """

    def __init__(self, book: JobBook, epochs: EpochService) -> None:
        self._book = book
        self._epochs = epochs
        self._ids = itertools.count(1)
        self._halves = Halves(epochs)
        self._jobs: dict[int, _Wanted] = {}
        dispatcher: dict[str, Handler] = {
            "GetVersion": self._get_version,
            "GetDataServiceMetadata": self._get_metadata,
            "GetDataServiceConfig": self._get_config,
            "DisableCompressionAtRuntime": self._disable_compression,
            "GetOrCreateJob": self._get_or_create_job,
            "GetOrCreateIteration": self._get_or_create_iteration,
            "ClientHeartbeat": self._client_heartbeat,
            "MaybeRemoveTask": self._maybe_remove_task,
            "ReleaseIterationClient": self._release,
        }
        self._handlers = {DISPATCHER_SERVICE + name: each for name, each in dispatcher.items()}
        self._handlers[WORKER_SERVICE + "GetElement"] = self._get_element

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler[bytes, bytes] | None:
        """The handler for a call, or None if it is not one of stock's."""
        handler = self._handlers.get(str(handler_call_details.method))
        return grpc.unary_unary_rpc_method_handler(_answering(handler)) if handler else None

    # Before an iterator exists

    async def _get_version(self, request: bytes, context: object) -> bytes:
        return stock_pb2.GetVersionResponse(version=STOCK_VERSION).SerializeToString()

    async def _get_metadata(self, request: bytes, context: object) -> bytes:
        dataset_id = stock_pb2.GetDataServiceMetadataRequest.FromString(request).dataset_id
        job_id = dataset_id.removesuffix(NAMES)
        job = self._book.jobs.get(job_id)
        if job is None:
            raise _RefusedError(grpc.StatusCode.FAILED_PRECONDITION, _unknown_job(job_id))
        metadata = stock_metadata(job.request) if job_id == dataset_id else _NAMES_METADATA
        return stock_pb2.GetDataServiceMetadataResponse(metadata=metadata).SerializeToString()

    async def _get_config(self, request: bytes, context: object) -> bytes:
        config = stock_pb2.DataServiceConfig(
            deployment_mode=stock_pb2.DataServiceConfig.DEPLOYMENT_MODE_REMOTE
        )
        return stock_pb2.GetDataServiceConfigResponse(config=config).SerializeToString()

    async def _disable_compression(self, request: bytes, context: object) -> bytes:
        # What the workers send is settled at registration; no trainer changes it for the others.
        answer = stock_pb2.DisableCompressionAtRuntimeResponse(
            compression_disabled_at_runtime=False
        )
        return answer.SerializeToString()

    async def _get_or_create_job(self, request: bytes, context: object) -> bytes:
        stock_request = stock_pb2.GetOrCreateJobRequest.FromString(request)
        # Stock wants the same of all who share an epoch, where it makes no difference here.
        stock_request.target_workers = stock_pb2.TARGET_WORKERS_AUTO
        client_id, *numbers = stock_request.job_name.split("/")
        iterator, files = (*map(int, numbers), None, None)[:2]
        job_id = stock_request.dataset_id.removesuffix(NAMES)
        number = next(self._ids)
        self._jobs[number] = _Wanted(
            client=self._client(job_id, client_id),
            request=stock_request,
            names=job_id != stock_request.dataset_id,
            iterator=iterator,
            files=files or 0,
        )
        return stock_pb2.GetOrCreateJobResponse(job_id=number).SerializeToString()

    def _client(self, job_id: str, client_id: str) -> Client:
        job = self._book.jobs.get(job_id)
        if job is None:
            raise _RefusedError(grpc.StatusCode.FAILED_PRECONDITION, _unknown_job(job_id))
        client = job.clients.get(client_id)
        if client is None:
            raise _RefusedError(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"this trainer was silent for too long and no longer reads job {job.name!r}: "
                "call distribute again",
            )
        client.seen_at = time.monotonic()
        return client

    # While an iterator lives

    async def _get_or_create_iteration(self, request: bytes, context: object) -> bytes:
        job_id = stock_pb2.GetOrCreateIterationRequest.FromString(request).job_id
        if job_id not in self._jobs:
            raise _RefusedError(grpc.StatusCode.FAILED_PRECONDITION, _unknown_job(f"job {job_id}"))
        try:
            opened_id = await self._open(self._jobs[job_id])
        except CachewError as error:
            self._jobs.pop(job_id, None)
            raise _RefusedError(grpc.StatusCode.FAILED_PRECONDITION, str(error)) from error
        # Kept until here: stock asks again after a broken connection.
        self._jobs.pop(job_id, None)
        return stock_pb2.GetOrCreateIterationResponse(
            iteration_client_id=opened_id
        ).SerializeToString()

    async def _open(self, wanted: _Wanted) -> int:
        """Opens what an iterator wants to read; the id by which it asks from then on."""
        client, request, new_id = wanted.client, wanted.request, next(self._ids)
        if wanted.iterator is None:
            return (await self._epochs.open(client, new_id, request)).id
        if not wanted.names:
            return (await self._halves.attach(client, wanted.iterator, wanted.files)).id
        await self._halves.open_names(client, wanted.iterator, new_id, next(self._ids), request)
        return new_id

    async def _client_heartbeat(self, request: bytes, context: object) -> bytes:
        beat = stock_pb2.ClientHeartbeatRequest.FromString(request)
        if beat.iteration_client_id in self._halves:
            return (await self._halves.beat(beat.iteration_client_id)).SerializeToString()
        reader = self._reader(beat.iteration_client_id)
        reader.client.seen_at = time.monotonic()
        if reader.epoch.failure:
            reader.told_of_end = True
            raise _RefusedError(grpc.StatusCode.FAILED_PRECONDITION, reader.epoch.failure)
        if reader.epoch.direct or reader.epoch.state is EpochState.FINISHED:
            # It still reads what it has buffered, while the stock server may have ended.
            self._epochs.finish(reader)
            return stock_pb2.ClientHeartbeatResponse(iteration_finished=True).SerializeToString()
        assert reader.stock_id is not None
        assert reader.epoch.generation is not None
        if (known := _known_answer(reader)) is not None:
            return known
        changes = reader.epoch.generation.changes
        beat.iteration_client_id = reader.stock_id
        try:
            answer = await reader.epoch.generation.call("ClientHeartbeat", beat.SerializeToString())
        except grpc.aio.AioRpcError as error:
            if error.code() == grpc.StatusCode.NOT_FOUND:
                raise _RefusedError(
                    grpc.StatusCode.FAILED_PRECONDITION, _forgotten(reader)
                ) from error
            raise
        response = stock_pb2.ClientHeartbeatResponse.FromString(answer)
        reader.epoch.tasks.update(task.task_id for task in response.task_info)
        for task in response.task_info:
            reader.epoch.iteration = task.iteration_id
        reader.beat = answer, time.monotonic(), changes
        if response.iteration_finished:
            await self._epochs.finish_checked(reader)
        return answer

    async def _maybe_remove_task(self, request: bytes, context: object) -> bytes:
        # Asked by coordinated readers when a worker does not answer. Task ids are those of one
        # generation, which the call does not name: "not removed" makes the reader ask again until
        # its heartbeat brings the reason.
        return b""

    async def _release(self, request: bytes, context: object) -> bytes:
        reader_id = stock_pb2.ReleaseIterationClientRequest.FromString(request).iteration_client_id
        reader = self._epochs.readers.get(reader_id)
        if reader_id in self._halves:
            await self._halves.release(reader_id)
        elif reader is not None:
            await self._epochs.release(reader)
        return stock_pb2.ReleaseIterationClientResponse().SerializeToString()

    async def _get_element(self, request: bytes, context: object) -> bytes:
        task_id = stock_pb2.GetElementRequest.FromString(request).task_id
        return (await self._halves.next_name(task_id)).SerializeToString()

    def _reader(self, reader_id: int) -> Reader:
        reader = self._epochs.readers.get(reader_id)
        if reader is None:
            raise _RefusedError(
                grpc.StatusCode.FAILED_PRECONDITION, self._epochs.why_ended(reader_id)
            )
        return reader


def _known_answer(reader: Reader) -> bytes | None:
    """What stock would say to a heartbeat, where that is known; None: ask it.

    While splits are left and no worker came or went, a reader has the tasks that it had.
    """
    epoch, (answer, at_s, changes) = reader.epoch, reader.beat
    if epoch.generation is None or not epoch.job.sharded or epoch.ending:
        return None
    same = changes == epoch.generation.changes
    return answer if same and time.monotonic() - at_s < STOCK_BEAT_S else None


def _forgotten(reader: Reader) -> str:
    epoch = reader.epoch
    return (
        f"epoch {epoch.number} of job {epoch.job.name!r} was ended because this trainer was silent "
        "for too long (paused, or out of memory?): start the epoch again"
    )


def _unknown_job(job_id: str) -> str:
    return (
        f"the service does not know {job_id!r}: it was started anew since this dataset was made; "
        "call distribute again"
    )


def _answering(handler: Handler) -> Handler:
    """Turns refusals into gRPC statuses, and anything unexpected into one that ends the trainer's
    iterator.
    """

    async def answer(request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        try:
            return await handler(request, context)
        except _RefusedError as refusal:
            await context.abort(refusal.code, str(refusal))
        except CachewError as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        except grpc.aio.AioRpcError as error:
            await context.abort(
                error.code(), error.details() or "the stock dispatch server refused the call"
            )
        raise AssertionError("abort raises")

    return answer
