"""The two halves of an iterator whose trainer sees the cache's volume.

Its graph reads first what a stock dataset of file names gives, and then what the workers give. Both
halves are one reader of one epoch. In an epoch that is read directly the names are those of chunk
files, which we hand out ourselves, as a stock worker would; the other half only ends. In any other
epoch there are no names.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass

from cachew_core.dispatcher.epochs import EpochService
from cachew_core.dispatcher.jobs import Client, Reader
from cachew_core.errors import CacheError, ServiceError
from cachew_core.proto import stock_pb2

HOLD_S = 0.1
"""A heartbeat is answered at once when there is news, and after so long when there is none. An
iterator that is dropped waits for the answer.
"""

ATTACH_S = 30.0
"""The half of the workers follows at once when there are no names; a trainer that dropped the
iterator in between never asks for it.
"""

_GRPC = "grpc"
_STRING = 7
"""`DT_STRING`."""


@dataclass(slots=True, kw_only=True)
class _Names:
    """The half of names of one iterator.

    Attributes:
        told: the trainer knows of the task that gives the names.
        over: the trainer knows that no name will follow.
        ended: the trainer asks for no more names.
        attached: the other half was opened: all that was handed out has been read.
    """

    id: int
    reader: Reader
    told: bool = False
    over: bool = False
    ended: bool = False
    attached: bool = False


class Halves:
    """Opens both halves of iterators, and serves the half of names.

    Args:
        epochs: opens and ends readers.
    """

    def __init__(self, epochs: EpochService) -> None:
        self._epochs = epochs
        self._names: dict[int, _Names] = {}
        self._dropping: set[asyncio.Task[None]] = set()

    def __contains__(self, half_id: int) -> bool:
        """Whether that is the id of a half of names."""
        return half_id in self._names

    async def open_names(
        self,
        client: Client,
        iterator: int,
        half_id: int,
        reader_id: int,
        request: stock_pb2.GetOrCreateJobRequest,
    ) -> None:
        """Opens an iterator by its first half, the names.

        Args:
            client: whose iterator it is.
            iterator: which of the client's.
            half_id: a new id for the half.
            reader_id: a new id for the reader.
            request: how the client asked for a job, as stock has it.

        Raises:
            CachewError: the epoch can't begin.
        """
        await self._forget_former(client)
        # Stock asks again after a broken connection.
        reader = client.readers.get(iterator)
        if reader is None:
            reader = await self._epochs.open(client, reader_id, request, iterator=iterator)
        self._names[half_id] = _Names(id=half_id, reader=reader)

    async def _forget_former(self, client: Client) -> None:
        """Lets go of iterators that are gone.

        Between its last name and the other half a trainer reads the last files, and nobody sees it
        drop the iterator then.
        """
        for names in list(self._names.values()):
            reader = names.reader
            gone = reader.client.id not in reader.client.job.clients
            if reader.client is client and reader.epoch.direct and names.ended:
                await self._epochs.release(reader)
            if gone or (reader.released and names.ended):
                self._names.pop(names.id, None)

    async def attach(self, client: Client, iterator: int, files: int) -> Reader:
        """The reader of an iterator whose second half is being opened.

        Args:
            client: whose iterator it is.
            iterator: which of the client's.
            files: that the first half has read.

        Raises:
            ServiceError: the first one is not known.
            CacheError: a file did not reach the trainer, or was changed meanwhile.
        """
        reader = client.readers.get(iterator)
        if reader is None:
            raise ServiceError(self._epochs.why_ended(-1))
        for names in self._names.values():
            names.attached = names.attached or names.reader is reader
        if reader.epoch.handout is not None and not reader.done:
            with self._failing(reader):
                await reader.epoch.handout.check_read(reader, files)
            reader.done = True
        return reader

    @contextlib.contextmanager
    def _failing(self, reader: Reader) -> Iterator[None]:
        try:
            yield
        except CacheError as error:
            self._epochs.fail(reader.epoch, str(error))
            raise

    async def beat(self, half_id: int) -> stock_pb2.ClientHeartbeatResponse:
        """The answer to a heartbeat of a half of names.

        Raises:
            ServiceError: the epoch failed.
        """
        names = self._names[half_id]
        reader = names.reader
        reader.client.seen_at = time.monotonic()
        handout = reader.epoch.handout
        if handout is None:
            return stock_pb2.ClientHeartbeatResponse(iteration_finished=True)
        if names.told:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(handout.over.wait(), HOLD_S)
        if reader.epoch.failure:
            reader.told_of_end = True
            raise ServiceError(reader.epoch.failure)
        names.told = True
        names.over = handout.over.is_set()
        return stock_pb2.ClientHeartbeatResponse(
            task_info=[_task(names)], iteration_finished=names.over
        )

    async def next_name(self, task_id: int) -> stock_pb2.GetElementResponse:
        """The next file of the half that reads that task.

        Raises:
            ServiceError: the half or its epoch has ended.
            CacheError: the file is damaged; the epoch has failed.
        """
        names = self._names.get(task_id)
        if names is None or names.reader.epoch.handout is None:
            raise ServiceError(self._epochs.why_ended(task_id))
        reader, handout = names.reader, names.reader.epoch.handout
        if reader.epoch.failure:
            raise ServiceError(reader.epoch.failure)
        with self._failing(reader):
            path = await handout.next_path(reader)
        if path is None:
            return stock_pb2.GetElementResponse(end_of_sequence=True)
        name = stock_pb2.StringTensor(
            dtype=_STRING, tensor_shape=stock_pb2.StringTensor.Shape(), string_val=[path.encode()]
        )
        return stock_pb2.GetElementResponse(
            uncompressed=stock_pb2.UncompressedElement(components=[name])
        )

    async def release(self, half_id: int) -> None:
        """The trainer needs the half of names no more: it got all, or dropped the iterator."""
        names = self._names[half_id]
        names.ended = True
        reader = names.reader
        if not reader.epoch.direct:
            asyncio.get_running_loop().call_later(ATTACH_S, self._drop_unless_attached, names)
        elif not names.over:
            await self._epochs.release(reader)

    def _drop_unless_attached(self, names: _Names) -> None:
        if names.attached or names.reader.released:
            return
        task = asyncio.ensure_future(self._epochs.release(names.reader))
        self._dropping.add(task)
        task.add_done_callback(self._dropping.discard)


def _task(names: _Names) -> stock_pb2.TaskInfo:
    address = names.reader.client.dispatcher_address
    server = stock_pb2.DataTransferServerInfo(protocol=_GRPC, address=address)
    return stock_pb2.TaskInfo(
        worker_address=address,
        task_id=names.id,
        iteration_id=names.id,
        transfer_servers=[server],
    )
