"""The calls that commands make to a dispatcher."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import grpc

from cachew_core import rpc
from cachew_core.errors import ServiceError, ServiceUnavailableError
from cachew_core.proto import cachew_pb2, cachew_pb2_grpc


@contextmanager
def _dispatcher(endpoint: str) -> Iterator[cachew_pb2_grpc.DispatcherStub]:
    with grpc.insecure_channel(rpc.address_of(endpoint), options=rpc.CHANNEL_OPTIONS) as channel:
        try:
            yield cachew_pb2_grpc.DispatcherStub(channel)
        except grpc.RpcError as error:
            raise _explained(error, endpoint) from error


def _explained(error: grpc.RpcError, endpoint: str) -> Exception:
    code, details = error.code(), error.details() or ""
    if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
        return ServiceUnavailableError(f"no dispatcher answers at {endpoint}: {details}")
    return ServiceError(f"the dispatcher at {endpoint} refused: {details} ({code.name})")


def fetch_status(endpoint: str, *, timeout_s: float) -> cachew_pb2.ServiceStatus:
    """What the service at an endpoint says of itself.

    Raises:
        SettingsError: that is no endpoint.
        ServiceUnavailableError: nothing answered in time.
        ServiceError: what answered refused.
    """
    with _dispatcher(endpoint) as dispatcher:
        status: cachew_pb2.ServiceStatus = dispatcher.GetStatus(
            cachew_pb2.StatusRequest(), timeout=timeout_s
        )
        return status


def request_shutdown(endpoint: str, *, drain: bool, reason: str, timeout_s: float) -> None:
    """Asks the service at an endpoint to end; returns once it said that it will.

    Raises:
        SettingsError: that is no endpoint.
        ServiceUnavailableError: nothing answered in time.
        ServiceError: what answered refused.
    """
    with _dispatcher(endpoint) as dispatcher:
        dispatcher.Shutdown(
            cachew_pb2.ShutdownRequest(drain=drain, reason=reason), timeout=timeout_s
        )


def scale_job(endpoint: str, job_name: str, workers: int | None, *, timeout_s: float) -> None:
    """Sets the number of workers of a job; None gives it back to its policy.

    Raises:
        SettingsError: that is no endpoint.
        ServiceUnavailableError: nothing answered in time.
        ServiceError: no such job is read there.
    """
    with _dispatcher(endpoint) as dispatcher:
        dispatcher.ScaleJob(
            cachew_pb2.ScaleJobRequest(job_name=job_name, workers=workers or 0), timeout=timeout_s
        )
