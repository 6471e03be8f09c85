"""What an epoch does with the cache, and what a person may ask for.

Names and numbers are those of the original service, so that its users find theirs again. Numbers
that it had for experiments of its own (5: compare modes epoch by epoch) are not among them.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from cachew_core.errors import SettingsError

END: Final = "end"
"""The name of the cache point at the pipeline's end; no mark of a user has it."""


class Mode(StrEnum):
    """What the workers do in one epoch."""

    PROFILE = "PROFILE"
    """Compute, while parts of the pipeline are measured; nothing is decided yet."""
    COMPUTE = "COMPUTE"
    """Run the whole pipeline; the cache is left alone."""
    PUT = "PUT"
    """Compute, and write what leaves the pipeline's end."""
    GET = "GET"
    """Read what the pipeline's end once gave; nothing is computed."""
    PUT_SOURCE = "PUT_SOURCE"
    """Compute, and write what passes a mark."""
    GET_SOURCE = "GET_SOURCE"
    """Read what once passed a mark, and compute only what follows it."""

    @property
    def writes(self) -> bool:
        return self in (Mode.PUT, Mode.PUT_SOURCE)

    @property
    def reads(self) -> bool:
        return self in (Mode.GET, Mode.GET_SOURCE)


def put_mode(point: str) -> Mode:
    """The mode that writes at a cache point."""
    return Mode.PUT if point == END else Mode.PUT_SOURCE


def get_mode(point: str) -> Mode:
    """The mode that reads a cache point's entry."""
    return Mode.GET if point == END else Mode.GET_SOURCE


class CachePolicy(StrEnum):
    """Who chooses the modes: the service, or a person by one of the fixed policies."""

    AUTO = "auto"
    """The service measures, chooses, and takes a choice back that turned out wrong."""
    COMPUTE = "compute"
    """Never touch the cache."""
    FULL = "full"
    """Write the pipeline's end in the first epoch, read it from then on."""
    SOURCE = "source"
    """Write the last mark in the first epoch, read it from then on."""
    PUT = "put"
    """Write the pipeline's end where it is not stored yet, and never read it."""
    GET = "get"
    """Read the pipeline's end; what is not there is computed."""
    PUT_SOURCE = "put_source"
    """Write the last mark where it is not stored yet, and never read it."""
    GET_SOURCE = "get_source"
    """Read the last mark; what is not there is computed."""

    @property
    def number(self) -> int:
        """The number that the original service knows the policy by."""
        return _NUMBERS[self]


_NUMBERS: Final = {
    CachePolicy.AUTO: 1,
    CachePolicy.COMPUTE: 2,
    CachePolicy.FULL: 3,
    CachePolicy.SOURCE: 4,
    CachePolicy.PUT: 30,
    CachePolicy.GET: 31,
    CachePolicy.PUT_SOURCE: 40,
    CachePolicy.GET_SOURCE: 41,
}
_BY_NUMBER: Final = {str(number): policy for policy, number in _NUMBERS.items()}


def parse_policy(value: str | int) -> CachePolicy:
    """Reads a policy's name or number.

    Args:
        value: a name (case, and `-` for `_`, don't matter) or one of the original's numbers, also
            as text.

    Raises:
        SettingsError: there is no such policy.
    """
    text = str(value).strip().lower().replace("-", "_")
    if text in _BY_NUMBER:
        return _BY_NUMBER[text]
    try:
        return CachePolicy(text)
    except ValueError:
        known = ", ".join(f"{policy} ({policy.number})" for policy in CachePolicy)
        raise SettingsError(
            f"setting cache_policy={value!r}: there is no such policy; use one of {known}"
        ) from None
