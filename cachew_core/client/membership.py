"""A trainer's tie to its job, for as long as one distributed dataset lives.

A stream stays open in a daemon thread: measurements go up, notices come down, and its end tells the
service that the trainer has left. It ends when the dataset is no longer referenced and when the
interpreter exits; a trainer that is killed ends it by dying. When the dispatcher is gone the stream
is opened anew again and again: it may be restarted, and meanwhile the workers go on serving the
trainer.
"""

from __future__ import annotations

import atexit
import logging
import queue
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Protocol

import grpc

from cachew_core.client.connection import Connection
from cachew_core.client.metrics import IteratorTotals
from cachew_core.client.processor import ProcessorUse
from cachew_core.proto import cachew_pb2, cachew_pb2_grpc

log = logging.getLogger("cachew.client")

_SHORTEST_RETRY_S, _LONGEST_RETRY_S = 0.1, 2.0
"""Between two attempts to open the stream."""

_LOST_S = 10.0
"""Without a stream for so long, the trainer is told."""

_SHORT_LOOK_S, _LONG_LOOK_S = 0.05, 0.2
"""Between two looks at the meter, each of which takes 0.1 ms of a processor. It counts the more
exactly the more often it is read, by one element at most: few elements are worth more looks.
"""

_MANY_ELEMENTS = 4
"""Between two looks."""

_SIGN_OF_LIFE_S = 5.0
"""A trainer that reads nothing for a while still says that it lives."""

_LEAVE_S = 5.0
"""How long an exiting trainer waits for its last words to be taken."""

_EXPLAIN_S = 60.0

FROM_WORKER = "Failed to get element from worker"
"""What stock's text says of an error that a worker gave."""

_FINAL = frozenset(
    {
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.INVALID_ARGUMENT,
    }
)
"""Answers that no further attempt changes: the service does not know this trainer any more."""


class Meter(Protocol):
    """Where the measurements come from."""

    def read(self) -> Sequence[IteratorTotals]:
        """The totals of each iterator, in the order in which they were opened."""


class Membership:
    """One trainer's membership in one job. It owns the connection and closes it at its end.

    Args:
        connection: to the service with the job.
        client_id: as registered.
        job_id: as the registration answered.
        meter: read several times a second, and at the end.
        metrics_interval_s: how often measurements are sent, if they changed.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        client_id: str,
        job_id: str,
        meter: Meter,
        metrics_interval_s: float,
    ) -> None:
        self._connection = connection
        self._hello = cachew_pb2.ClientHello(client_id=client_id, job_id=job_id)
        self._meter = meter
        self._metrics_interval_s = metrics_interval_s
        self._said: set[str] = set()
        self._look_s = _SHORT_LOOK_S
        self._elements = 0
        # SimpleQueue.put is the one hand-over that is safe in a garbage collector's callback.
        self._leave: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._taken = False
        self._thread = threading.Thread(
            target=self._run, name=f"cachew-client-{client_id[:8]}", daemon=True
        )

    def start(self) -> None:
        """Opens the stream, in the background."""
        _members.add(self)
        self._thread.start()

    def leave(self) -> None:
        """Ends it soon, without waiting or locking; may be called from anywhere, many times."""
        self._leave.put(None)

    def join(self, timeout_s: float) -> bool:
        """Waits for its end; whether it came."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def explain(self, error: str) -> str:
        """What the service knows of an error that a worker gave; it may look for a minute.

        Args:
            error: its text, which names the worker.

        Returns:
            A sentence; empty: no more is known.
        """
        request = cachew_pb2.ExplainFailureRequest(
            client_id=self._hello.client_id, job_id=self._hello.job_id, error=error
        )
        stub = cachew_pb2_grpc.DispatcherStub(self._connection.channel)
        try:
            return str(stub.ExplainFailure(request, timeout=_EXPLAIN_S).text)
        # The channel may be closed already: the trainer has left.
        except (grpc.RpcError, ValueError) as problem:
            log.debug("the service can't explain %r: %s", error, problem)
            return ""

    def say(self, text: str, level: int = logging.WARNING) -> None:
        """Logs a line, the first time only."""
        if text not in self._said:
            self._said.add(text)
            log.log(level, "%s", text)

    def _run(self) -> None:
        lost = _Lost(self._connection.address)
        try:
            # A trainer that leaves at once still has its last word to say.
            while True:
                self._taken = False
                error = self._one_stream()
                if error is not None and error.code() in _FINAL:
                    self.say(
                        f"{self._connection.address} no longer serves this trainer: "
                        f"{error.details()}"
                    )
                    return
                if self._taken:
                    lost = _Lost(self._connection.address)
                if self._is_leaving(lost.next_delay_s()):
                    return
        finally:
            self._connection.close()
            _members.discard(self)

    def _one_stream(self) -> grpc.RpcError | None:
        """Runs one stream to its end, and returns the error if that was not in order."""
        stub = cachew_pb2_grpc.DispatcherStub(self._connection.channel)
        try:
            for notice in stub.ConnectClient(self._messages()):
                warning = notice.level == cachew_pb2.ClientNotice.WARNING
                self.say(notice.text, logging.WARNING if warning else logging.INFO)
        except grpc.RpcError as error:
            log.debug("the stream to %s ended: %s", self._connection.address, error)
            return error
        return None

    def _messages(self) -> Iterator[cachew_pb2.ClientMessage]:
        yield cachew_pb2.ClientMessage(hello=self._hello)
        # gRPC asks for a second message when the first one was taken.
        self._taken = True
        sent: dict[int, IteratorTotals] = {}
        quiet_until, processor = 0.0, ProcessorUse()
        leaving = False
        while not leaving:
            leaving, read = self._look_for(self._metrics_interval_s)
            changed = [totals for totals in read if sent.get(totals.iterator) != totals]
            if changed or time.monotonic() > quiet_until:
                sent.update((totals.iterator, totals) for totals in changed)
                metrics = cachew_pb2.ClientMetrics(
                    epochs=[_proto(totals) for totals in changed], cpu_share=processor.share()
                )
                yield cachew_pb2.ClientMessage(metrics=metrics)
                quiet_until = time.monotonic() + _SIGN_OF_LIFE_S
        yield cachew_pb2.ClientMessage(bye=cachew_pb2.ClientBye())

    def _look_for(self, seconds: float) -> tuple[bool, Sequence[IteratorTotals]]:
        """Looks at the meter for a while, or until `leave` is called: whether it was, and what the
        last look saw.
        """
        end = time.monotonic() + seconds
        while True:
            rest_s = max(end - time.monotonic(), 0.0)
            leaving = self._is_leaving(min(self._look_s, rest_s))
            read = self._meter.read()
            elements = sum(totals.elements for totals in read)
            few = elements - self._elements < _MANY_ELEMENTS
            self._elements, self._look_s = elements, _SHORT_LOOK_S if few else _LONG_LOOK_S
            if leaving or rest_s <= self._look_s:
                return leaving, read

    def _is_leaving(self, timeout_s: float) -> bool:
        """Whether `leave` was called, waiting for it up to `timeout_s`."""
        try:
            self._leave.get(timeout=timeout_s)
        except queue.Empty:
            return False
        # For the others who ask.
        self._leave.put(None)
        return True


class _Lost:
    """How long there has been no stream, and when to try the next."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._since = time.monotonic()
        self._delay_s = _SHORTEST_RETRY_S
        self._told = False

    def next_delay_s(self) -> float:
        """Seconds until the next attempt; tells the trainer once if it has been too long."""
        if time.monotonic() - self._since > _LOST_S and not self._told:
            self._told = True
            log.warning(
                "the dispatcher at %s has not answered for %.0f s; still trying",
                self._address,
                _LOST_S,
            )
        delay_s, self._delay_s = self._delay_s, min(2 * self._delay_s, _LONGEST_RETRY_S)
        return delay_s


def _proto(totals: IteratorTotals) -> cachew_pb2.EpochMetrics:
    return cachew_pb2.EpochMetrics(
        iterator=totals.iterator,
        elements=totals.elements,
        wait_s=totals.wait_s,
        step_s=totals.step_s,
        span_s=totals.span_s,
    )


_members: set[Membership] = set()


@atexit.register
def _leave_all() -> None:
    """An exiting trainer leaves its jobs, so that their workers are free at once."""
    members = list(_members)
    # An error out of a `tf.function`, as of Keras' `fit`, passes no code of ours on its way.
    error = getattr(sys, "last_value", None)
    if error is not None and error.__cause__ is None and FROM_WORKER in str(error):
        for member in members:
            if text := member.explain(str(error)):
                log.error("the training ended with an error because %s", text)
    for member in members:
        member.leave()
    end = time.monotonic() + _LEAVE_S
    for member in members:
        member.join(max(end - time.monotonic(), 0))
