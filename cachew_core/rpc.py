"""How our processes reach each other: endpoints, channel options, versions."""

from __future__ import annotations

import importlib.metadata
import re

from cachew_core.errors import SettingsError, VersionMismatchError
from cachew_core.proto import cachew_pb2
from cachew_core.version import API_VERSION, __version__

TENSORFLOW_MINORS = range(19, 22)
"""The 2.x minors that work with each other; the first and the last are tested in pairs."""

CHANNEL_OPTIONS = (
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    # A frozen or unplugged peer sends no FIN: pings tell it from a quiet one.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    # A proxy of the environment must not stand between processes of one service.
    ("grpc.enable_http_proxy", 0),
    # gRPC waits up to two minutes between attempts; a restarted dispatcher is back in seconds.
    ("grpc.max_reconnect_backoff_ms", 2_000),
)

STOCK_CHANNEL_OPTIONS = tuple(
    # By default, gRPC's servers hang up on an idle peer that pings so often.
    option
    for option in CHANNEL_OPTIONS
    if "keepalive" not in option[0] and "ping" not in option[0]
)
"""For channels to stock tf.data servers."""

SERVER_OPTIONS = (
    *CHANNEL_OPTIONS,
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
    # Two servers on one port would share its callers in silence.
    ("grpc.so_reuseport", 0),
)

NAMES = "/names"
"""Behind a job's id: the stock dataset of the cache's files' names, for trainers that read them."""

_ENDPOINT = re.compile(
    r"(?:grpc://)?(?P<address>(?:\[[0-9a-fA-F:]+\]|[^\[\]:/\s]+):(?P<port>\d{1,5}))/?"
)


def is_endpoint(service: str) -> bool:
    """Whether the text is `grpc://host:port` or `host:port`, and not a service's name."""
    return "://" in service or ":" in service


def address_of(endpoint: str) -> str:
    """`host:port` of an endpoint.

    Raises:
        SettingsError: it is not `grpc://host:port`.
    """
    match = _ENDPOINT.fullmatch(endpoint)
    if match is None or not 0 < int(match["port"]) < 65536:
        raise SettingsError(f"endpoint {endpoint!r} can't be used: write grpc://host:port")
    return match["address"]


def own_versions() -> cachew_pb2.Versions:
    """The versions on this side. TensorFlow's is read from its metadata, without importing it."""
    return cachew_pb2.Versions(
        api=API_VERSION, cachew=__version__, tensorflow=_tensorflow_version()
    )


def _tensorflow_version() -> str:
    for distribution in ("tensorflow", "tensorflow-cpu", "tensorflow-intel", "tf-nightly"):
        try:
            return importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            continue
    return ""


def check_versions(here: cachew_pb2.Versions, there: cachew_pb2.Versions, *, who: str) -> None:
    """Refuses a peer that would fail later in a stranger way.

    Args:
        here: our own versions.
        there: the peer's.
        who: the peer in words, as "the service at grpc://host:port".

    Raises:
        VersionMismatchError: one sentence with both versions and what to install.
    """
    if here.api != there.api:
        raise VersionMismatchError(
            f"{who} speaks version {there.api} of Cachew's API (cachew-service {there.cachew}), "
            "this side version "
            f"{here.api} ({here.cachew}): install the same cachew-service on both"
        )
    for side in (here, there):
        if side.tensorflow and not _tensorflow_supported(side.tensorflow):
            whose = "this side" if side is here else who
            raise VersionMismatchError(
                f"{whose} runs TensorFlow {side.tensorflow}, which Cachew does not support: "
                "install a version from "
                f"2.{TENSORFLOW_MINORS[0]} to 2.{TENSORFLOW_MINORS[-1]} on trainer, dispatcher and "
                "workers"
            )


def _tensorflow_supported(version: str) -> bool:
    major, _, rest = version.partition(".")
    minor = rest.partition(".")[0]
    return major == "2" and minor.isdigit() and int(minor) in TENSORFLOW_MINORS
