"""A service's status as plain values with fixed names, for JSON and for other programs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from google.protobuf.message import Message

from cachew_core.proto import cachew_pb2

_TOP_LEVEL = ("name", "endpoint", "page", "state", "notices", "workers", "jobs", "stored")


def status_document(status: cachew_pb2.ServiceStatus) -> dict[str, Any]:
    """The status of a service as dicts, lists, texts and numbers.

    Returns:
        `name`, `endpoint`, `page`, `state`, `notices`, `workers`, `jobs` and `stored`; below them
        every field of the API's messages under its own name, also where it is zero or empty.
    """
    values = _plain(status)
    return {name: values[name] for name in _TOP_LEVEL}


def _plain(value: Any) -> Any:
    # protobuf's own MessageToDict makes texts of 64-bit integers.
    if isinstance(value, Message):
        return {field.name: _plain(getattr(value, field.name)) for field in value.DESCRIPTOR.fields}
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return [_plain(part) for part in value]
    return value
