"""What a trainer asks the service before there is a job: its versions, to register, for workers.

Every way in which that can fail ends in an error of ours that says which way it was, within a
deadline.
"""

from __future__ import annotations

import logging
import time
from typing import Self

import grpc

from cachew_core import rpc
from cachew_core.errors import (
    CachewError,
    PipelineError,
    ServiceError,
    ServiceUnavailableError,
)
from cachew_core.proto import cachew_pb2, cachew_pb2_grpc
from cachew_core.settings import ClientSettings

log = logging.getLogger("cachew.client")

_REGISTER_S = 120
"""A dispatcher that is there answers in milliseconds; a graph of a GiB takes it seconds."""

_POLL_S = 0.1
"""Between two looks for a first worker."""

_ERROR_OF_STATUS: dict[grpc.StatusCode, type[CachewError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: PipelineError,
    grpc.StatusCode.ALREADY_EXISTS: PipelineError,
    grpc.StatusCode.UNAVAILABLE: ServiceUnavailableError,
    grpc.StatusCode.DEADLINE_EXCEEDED: ServiceUnavailableError,
}


class Connection:
    """The way to one service.

    Args:
        endpoint: `grpc://host:port`.
        settings: deadlines and intervals.

    Raises:
        SettingsError: the endpoint is not one.
    """

    def __init__(self, endpoint: str, settings: ClientSettings) -> None:
        self.address = rpc.address_of(endpoint)
        self.channel = grpc.insecure_channel(self.address, options=rpc.CHANNEL_OPTIONS)
        self._stub = cachew_pb2_grpc.DispatcherStub(self.channel)
        self._settings = settings
        self._kept = False

    def greet(self) -> cachew_pb2.ServiceInfo:
        """Asks the service what it is.

        Raises:
            ServiceUnavailableError: not reachable within `connect_deadline_s`.
            VersionMismatchError: it and we don't understand each other.
        """
        own = rpc.own_versions()
        request = cachew_pb2.ServiceInfoRequest(client=own)
        deadline_s = self._settings.connect_deadline_s
        try:
            info: cachew_pb2.ServiceInfo = self._stub.GetServiceInfo(
                request, timeout=deadline_s, wait_for_ready=True
            )
        except grpc.RpcError as error:
            raise self._unreachable(error, deadline_s) from error
        rpc.check_versions(own, info.versions, who=f"the service at {self.address}")
        return info

    def _unreachable(self, error: grpc.RpcError, deadline_s: float) -> CachewError:
        if error.code() in (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE):
            return ServiceUnavailableError(
                f"dispatcher not reachable at {self.address} within {deadline_s:g} s: start the "
                "service, or check the address and the network between (connect_deadline_s sets "
                "how long to try)"
            )
        if error.code() == grpc.StatusCode.UNIMPLEMENTED:
            return ServiceError(
                f"what answers at {self.address} is not a Cachew dispatcher: check the address"
            )
        return self._refused(error)

    def _refused(self, error: grpc.RpcError) -> CachewError:
        kind = _ERROR_OF_STATUS.get(error.code(), ServiceError)
        return kind(
            error.details() or f"the dispatcher at {self.address} answered {error.code().name}"
        )

    def register(
        self, request: cachew_pb2.RegisterPipelineRequest
    ) -> cachew_pb2.RegisterPipelineResponse:
        """Registers the pipeline.

        Raises:
            PipelineError: the service refused it.
            VersionMismatchError: the service does not speak with this version.
            ServiceUnavailableError: it is gone again.
            ServiceError: it could not.
        """
        try:
            response: cachew_pb2.RegisterPipelineResponse = self._stub.RegisterPipeline(
                request, timeout=_REGISTER_S
            )
        except grpc.RpcError as error:
            raise self._refused(error) from error
        return response

    def await_workers(self) -> None:
        """Returns once the service has a worker.

        Raises:
            ServiceUnavailableError: none came within `workers_deadline_s`, or the service is gone.
        """
        deadline_s = self._settings.workers_deadline_s
        end = time.monotonic() + deadline_s
        told = False
        while self.greet().workers == 0:
            if time.monotonic() > end:
                raise ServiceUnavailableError(
                    f"0 workers registered at {self.address} after {deadline_s:g} s: start one "
                    f"with `cachew worker --dispatcher grpc://{self.address}` (workers_deadline_s "
                    "sets how long to wait)"
                )
            if not told:
                log.warning(
                    "the service at %s has no worker yet; waiting up to %g s for one",
                    self.address,
                    deadline_s,
                )
                told = True
            time.sleep(_POLL_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        if not self._kept:
            self.close()

    def kept(self) -> Self:
        """Itself, not closed at the end of `with`: whoever takes it closes it."""
        self._kept = True
        return self

    def close(self) -> None:
        """Lets go of the network."""
        self.channel.close()
