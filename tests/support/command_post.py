"""A dispatcher, seen from an agent: says what a test wants, remembers what it hears."""

import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self

import grpc
from real_service import eventually

from cachew_core import rpc
from cachew_core.proto import cachew_pb2, cachew_pb2_grpc

Report = cachew_pb2.AssignmentReport


class CommandPost(cachew_pb2_grpc.DispatcherServicer):
    """One dispatcher of one agent, on a free port or on a given one.

    Attributes:
        versions: what it says of itself.
        on_leaving: called when the agent says that it leaves.
        messages: all that the agent said, beats left out.
        beats: how many there were.
    """

    def __init__(self, *, port: int = 0) -> None:
        self.versions = rpc.own_versions()
        self.on_leaving: Callable[[], None] = lambda: None
        self.messages: list[cachew_pb2.AgentMessage] = []
        self.beats = 0
        self.hung_up = threading.Event()
        self._commands: queue.Queue[cachew_pb2.AgentCommand | None] = queue.Queue()
        self._server = grpc.server(ThreadPoolExecutor(8), options=rpc.SERVER_OPTIONS)
        cachew_pb2_grpc.add_DispatcherServicer_to_server(self, self._server)
        self.port = self._server.add_insecure_port(f"127.0.0.1:{port}")
        self._server.start()

    def close(self) -> None:
        """Ends as if killed."""
        self._commands.put(None)
        self._server.stop(0).wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # What it is asked

    def GetServiceInfo(  # noqa: N802
        self, request: cachew_pb2.ServiceInfoRequest, context: Any
    ) -> cachew_pb2.ServiceInfo:
        return cachew_pb2.ServiceInfo(versions=self.versions, name="scripted")

    def ConnectAgent(  # noqa: N802
        self, request_iterator: Iterator[cachew_pb2.AgentMessage], context: Any
    ) -> Iterator[cachew_pb2.AgentCommand]:
        threading.Thread(target=self._listen, args=(request_iterator,), daemon=True).start()
        welcome = cachew_pb2.Welcome(service="scripted", beat_interval_s=0.1)
        yield cachew_pb2.AgentCommand(welcome=welcome)
        while (command := self._commands.get()) is not None:
            yield command

    def _listen(self, messages: Iterator[cachew_pb2.AgentMessage]) -> None:
        try:
            for message in messages:
                if message.HasField("beat"):
                    self.beats += 1
                    continue
                self.messages.append(message)
                if message.HasField("leaving"):
                    self.on_leaving()
        except grpc.RpcError:
            return
        finally:
            self.hung_up.set()
            self._commands.put(None)

    # What it says

    def assign(self, assignment_id: str, dispatch_address: str, *, slot: int = 0) -> None:
        command = cachew_pb2.Assign(
            slot=slot, assignment_id=assignment_id, dispatch_address=dispatch_address
        )
        self._commands.put(cachew_pb2.AgentCommand(assign=command))

    def drain(self, assignment_id: str) -> None:
        command = cachew_pb2.Drain(assignment_id=assignment_id)
        self._commands.put(cachew_pb2.AgentCommand(drain=command))

    def release(self, assignment_id: str) -> None:
        command = cachew_pb2.Release(assignment_id=assignment_id)
        self._commands.put(cachew_pb2.AgentCommand(release=command))

    def profile(self, command: cachew_pb2.Profile) -> None:
        self._commands.put(cachew_pb2.AgentCommand(profile=command))

    def shut_down(self) -> None:
        command = cachew_pb2.AgentShutdown(reason="the test ends")
        self._commands.put(cachew_pb2.AgentCommand(shutdown=command))

    # What it knows

    def hellos(self) -> list[cachew_pb2.AgentHello]:
        return [message.hello for message in self.messages if message.HasField("hello")]

    def reports(self, assignment_id: str) -> list[cachew_pb2.AssignmentReport]:
        reports = [message.report for message in self.messages if message.HasField("report")]
        return [report for report in reports if report.assignment_id == assignment_id]

    def profiles(self) -> list[cachew_pb2.ProfileResult]:
        return [message.profile for message in self.messages if message.HasField("profile")]

    def states(self, assignment_id: str) -> list[str]:
        return [Report.State.Name(report.state) for report in self.reports(assignment_id)]

    def ended(self, assignment_id: str) -> bool:
        return "ENDED" in self.states(assignment_id)

    def wait_until_serving(self, assignment_id: str) -> cachew_pb2.AssignmentReport:
        eventually(lambda: {"SERVING", "ENDED"} & set(self.states(assignment_id)) != set())
        report = self.reports(assignment_id)[-1]
        assert report.state == Report.SERVING, report
        return report

    def wait_until_ended(self, assignment_id: str) -> cachew_pb2.AssignmentReport:
        eventually(lambda: self.ended(assignment_id))
        return self.reports(assignment_id)[-1]
