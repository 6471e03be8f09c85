"""Opens epochs for readers and ends them: where jobs, scheduler and stock servers meet."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import Callable

import grpc

from cachew_core.dispatcher.caching import Autocache
from cachew_core.dispatcher.events import event
from cachew_core.dispatcher.generation import Generation
from cachew_core.dispatcher.jobs import Client, Epoch, EpochState, Job, Reader
from cachew_core.dispatcher.pool import Agent
from cachew_core.dispatcher.scheduler import Scheduler
from cachew_core.errors import CacheError, ServiceError
from cachew_core.pipeline.variants import worker_variant
from cachew_core.proto import cachew_pb2, stock_pb2

log = logging.getLogger(__name__)

REMEMBERED_ENDS = 10_000
"""Ended readers that are remembered, so that a late trainer hears why and not "unknown id"."""

IN_FLIGHT_S = 2.0
"""With several readers, one may learn of the end while an element is on its way to another: so long
at most.
"""


class EpochService:
    """Life and death of readers.

    Attributes:
        readers: those that live, by the id that their trainers know.
    """

    def __init__(
        self, scheduler: Scheduler, autocache: Autocache, clock: Callable[[], float]
    ) -> None:
        self.readers: dict[int, Reader] = {}
        self._scheduler = scheduler
        self._autocache = autocache
        self._clock = clock
        self._ends: OrderedDict[int, str] = OrderedDict()

    async def open(
        self,
        client: Client,
        reader_id: int,
        request: stock_pb2.GetOrCreateJobRequest,
        *,
        iterator: int | None = None,
    ) -> Reader:
        """A reader for the client's next iterator, once its epoch has begun.

        Args:
            client: whose iterator it is.
            reader_id: a new one.
            request: how the client asked for a job, as stock has it.
            iterator: its number, if the client gave it one; only such a client may read files.

        Raises:
            ServiceUnavailableError: no worker came within the client's deadline.
            ServiceError: the service is going down.
        """
        if self._scheduler.refusing:
            raise ServiceError(self._scheduler.refusing)
        reader = client.job.open_reader(client, reader_id, self._clock(), iterator)
        reader.epoch.expected_workers = self._scheduler.expected(client.job)
        self.readers[reader_id] = reader
        try:
            await self._finish_former(reader)
            if iterator is not None and await self._is_direct(reader.epoch):
                how = "directly"
            else:
                how = f"through {await self._open_on_workers(reader, request)} workers"
        except BaseException as error:
            await self._undo(reader, error)
            raise
        log.info(
            "job %s: epoch %d is read by process %d on %s, %s",
            client.job.name,
            reader.epoch.number,
            client.pid,
            client.host,
            how,
            extra=event("reader_opened", job=client.job.name, epoch=reader.epoch.number),
        )
        return reader

    async def _is_direct(self, epoch: Epoch) -> bool:
        direct = await self._autocache.is_direct(epoch)
        if direct and epoch.state is EpochState.WAITING:
            epoch.state = EpochState.OPEN
            self._scheduler.changed()
        return direct

    async def _open_on_workers(
        self, reader: Reader, request: stock_pb2.GetOrCreateJobRequest
    ) -> int:
        generation = await self._bound(reader)
        graph, variant = await self._graph_for(reader.epoch)
        reader.stock_id = await generation.open_iteration(reader.epoch, graph, variant, request)
        return len(generation.serving())

    async def _finish_former(self, reader: Reader) -> None:
        """Ends the epoch that this trainer has read before, if it has all of it.

        A trainer sees its last element before its next heartbeat says so.
        """
        for former in list(reader.client.readers.values()):
            if former is reader or former.released or not former.epoch.live:
                continue
            if await _is_finished(former):
                with contextlib.suppress(CacheError):
                    await self.finish_checked(former)

    async def _bound(self, reader: Reader) -> Generation:
        epoch = reader.epoch
        if epoch.generation is not None:
            return epoch.generation
        deadline_s = reader.client.job.request.workers_deadline_s
        binding = asyncio.ensure_future(self._scheduler.bind(epoch, deadline_s))
        done, _ = await asyncio.wait({binding}, timeout=1)
        if not done and not epoch.queued_notice:
            epoch.queued_notice = True
            reader.client.notify(self._why_waiting(epoch))
        try:
            return await binding
        except asyncio.CancelledError:
            binding.cancel()
            raise

    def _why_waiting(self, epoch: Epoch) -> str:
        workers = len(self._scheduler.pool.usable())
        what = f"job {epoch.job.name!r}: epoch {epoch.number}"
        if workers == 0:
            return f"{what} waits for a first worker"
        return f"{what} is queued: all {workers} workers serve other jobs"

    async def _undo(self, reader: Reader, error: BaseException) -> None:
        if not isinstance(error, asyncio.CancelledError):
            reader.epoch.end(EpochState.FAILED, self._clock(), str(error))
        await self.release(reader)

    async def _graph_for(self, epoch: Epoch) -> tuple[bytes, str]:
        """What the workers run in this epoch, and its name at the stock server."""
        job, plan = epoch.job, await self._autocache.plan(epoch)
        self._scheduler.planned(epoch, plan.workers)
        if job.seeded and _one_worker(epoch):
            graph = await _variant(job, plan.graph, single=True, epoch=epoch.number)
            return graph, f"seeded-{epoch.number}-{plan.name}"
        name, graph = job.shared_graph
        if name != plan.name:
            graph = await _variant(job, plan.graph, single=False, epoch=epoch.number)
            job.shared_graph = plan.name, graph
        return graph, f"shared-{plan.name}"

    async def finish_checked(self, reader: Reader) -> None:
        """Finishes, if what the epoch read is what was stored.

        Raises:
            CacheError: it is not; the epoch has failed.
        """
        try:
            await self._autocache.check_read(reader.epoch)
        except CacheError as error:
            self.fail(reader.epoch, str(error))
            raise
        self.finish(reader)

    def finish(self, reader: Reader) -> None:
        """This reader is being told that all of the epoch's elements were handed out."""
        if reader.told_of_end:
            return
        reader.told_of_end = True
        if (swallowed := reader.epoch.swallowed).errors:
            words = swallowed.words(reader.epoch.number)
            reader.client.notify(f"job {reader.epoch.job.name!r}: {words}", warning=True)
        if reader.epoch.is_read:
            reader.epoch.end(EpochState.FINISHED, self._clock())
        self._settle(reader.epoch)

    def _settle(self, epoch: Epoch) -> None:
        """Frees a finished epoch's workers, not before the last answer has reached its reader."""
        reading = [reader for reader in epoch.readers if not reader.released]
        if epoch.direct:
            # What was handed out is still to be read.
            if not reading:
                epoch.settle()
        elif not reading or (len(epoch.readers) == 1 and reading[0].told_of_end):
            epoch.settle()
        elif all(reader.told_of_end for reader in reading):
            asyncio.get_running_loop().call_later(IN_FLIGHT_S, self._settled, epoch)
        self._scheduler.changed()

    def _settled(self, epoch: Epoch) -> None:
        epoch.settle()
        self._scheduler.changed()

    async def release(self, reader: Reader) -> None:
        """The trainer dropped the iterator, or is gone."""
        if reader.released:
            return
        reader.released = True
        self.readers.pop(reader.id, None)
        epoch = reader.epoch
        self._remember(reader.id, epoch)
        if epoch.handout is not None and not reader.done:
            await epoch.handout.left_early(reader)
        if epoch.live and all(other.released for other in epoch.readers):
            finished = reader.done or _got_all(reader) or await _is_finished(reader)
            epoch.end(EpochState.FINISHED if finished else EpochState.ABANDONED, self._clock())
        self._settle(epoch)
        if reader.stock_id is not None and epoch.generation is not None:
            release = stock_pb2.ReleaseIterationClientRequest(iteration_client_id=reader.stock_id)
            with contextlib.suppress(grpc.aio.AioRpcError, ServiceError):
                await epoch.generation.call("ReleaseIterationClient", release.SerializeToString())

    def fail(self, epoch: Epoch, reason: str) -> None:
        """Ends the epoch with one sentence for its trainers."""
        log.warning("job %s: epoch %d failed: %s", epoch.job.name, epoch.number, reason)
        epoch.end(EpochState.FAILED, self._clock(), reason)
        # All may have been handed out, and something be wrong with it all the same.
        epoch.state, epoch.failure = EpochState.FAILED, epoch.failure or reason
        self._scheduler.changed()

    def measured(self, reader: Reader, metrics: cachew_pb2.EpochMetrics) -> None:
        """Takes in what a trainer measured.

        A trainer that knows the length stops at it, before anybody told it that this is the end.
        """
        reader.metrics = metrics
        self._autocache.chooser.measured(reader)
        self._scheduler.measured(reader)
        if reader.epoch.state is EpochState.ABANDONED and _got_all(reader):
            reader.epoch.state = EpochState.FINISHED

    def failed(self, client: Client, why: str) -> None:
        """A worker gave a trainer an error, so the epoch that it reads has failed for all.

        Stock may have called it finished: to it, a worker that failed has no more elements.
        """
        reader = client.readers.get(client.opened - 1)
        if reader is None:
            return
        reader.epoch.end(EpochState.FAILED, self._clock(), why)
        if reader.epoch.state is EpochState.FINISHED:
            reader.epoch.state, reader.epoch.failure = EpochState.FAILED, why
        self._scheduler.changed()

    def errors_ignored(self, agent: Agent, ignored: cachew_pb2.IgnoredErrors) -> None:
        """A pipeline's own `ignore_errors` has swallowed errors on a worker.

        The worker can't tell in which of its job's epochs, so it counts in the last one there.
        """
        assignment = self._scheduler.pool.assignment(agent, ignored.assignment_id)
        epoch = assignment.generation.newest if assignment else None
        if assignment is None or epoch is None:
            return
        text = (
            f"job {epoch.job.name!r}: ignore_errors swallows errors in epoch {epoch.number}, first "
            f"on worker {assignment.slot.id} ({assignment.address}): {ignored.example}"
        )
        if not epoch.swallowed.errors:
            log.warning("%s", text)
            for reader in epoch.readers:
                reader.client.notify(text, warning=True)
        epoch.ignore(ignored.count, ignored.example, self._clock())
        self._autocache.errors_ignored(epoch)
        if epoch.live and epoch.swallowed.is_stuck:
            worker = f"{assignment.slot.id} ({assignment.address})"
            # Its workers would never come back from it.
            assignment.generation.closed = True
            self.fail(epoch, epoch.swallowed.stuck_words(worker))

    def _remember(self, reader_id: int, epoch: Epoch) -> None:
        why = epoch.failure or "it was silent for too long"
        self._ends[reader_id] = (
            f"epoch {epoch.number} of job {epoch.job.name!r} is {epoch.state} for this trainer: "
            f"{why}; start the epoch again"
        )
        while len(self._ends) > REMEMBERED_ENDS:
            self._ends.popitem(last=False)

    def why_ended(self, reader_id: int) -> str:
        """One sentence for a trainer that still reads what has ended."""
        return self._ends.get(
            reader_id,
            "the service does not know this iterator: it was started anew; start the epoch again",
        )

    async def remove_client(self, client: Client, reason: str) -> None:
        """The client left or is gone; its job ends with its last one."""
        job = client.job
        if job.clients.pop(client.id, None) is None:
            return
        log.info(
            "job %s: process %d on %s left (%s)",
            job.name,
            client.pid,
            client.host,
            reason,
            extra=event("trainer_left", job=job.name),
        )
        self._scheduler.autoscaler.left(client)
        for reader in list(client.readers.values()):
            await self.release(reader)
        if not job.clients:
            job.end()
            log.info("job %s ended", job.name, extra=event("job_ended", job=job.name))
        self._scheduler.changed()

    def fail_all(self, reason: str) -> None:
        """Ends every live epoch with one sentence for its trainers."""
        for reader in list(self.readers.values()):
            reader.epoch.end(EpochState.FAILED, self._clock(), reason)
        self._scheduler.changed()


def _got_all(reader: Reader) -> bool:
    """Whether the reader, alone in its epoch, has measured as many elements as there are."""
    job, request = reader.epoch.job, reader.epoch.job.request
    alone = job.private and reader.epoch.readers == [reader]
    once = request.processing_mode == cachew_pb2.DISTRIBUTED_EPOCH
    return alone and once and 0 < request.cardinality <= reader.metrics.elements


async def _is_finished(reader: Reader) -> bool:
    """Whether the workers had handed out all, by the stock server's last word."""
    if reader.stock_id is None or reader.epoch.generation is None:
        return False
    beat = stock_pb2.ClientHeartbeatRequest(iteration_client_id=reader.stock_id)
    try:
        answer = await reader.epoch.generation.call("ClientHeartbeat", beat.SerializeToString())
    except (grpc.aio.AioRpcError, ServiceError):
        return False
    return bool(stock_pb2.ClientHeartbeatResponse.FromString(answer).iteration_finished)


def _one_worker(epoch: Epoch) -> bool:
    """Whether the epoch has exactly one worker from its start to its end."""
    return epoch.fixed and epoch.workers == 1


async def _variant(job: Job, graph: bytes, *, single: bool, epoch: int) -> bytes:
    return await asyncio.to_thread(
        worker_variant, graph, sharded=job.sharded, single=single, epoch=epoch - 1
    )
