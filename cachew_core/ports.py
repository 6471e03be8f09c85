"""Ports for stock tf.data servers that no other server gets by accident.

gRPC's C++ servers listen with SO_REUSEPORT: two of them on one port share its callers in silence,
and a reader of one job gets elements of another. So each port is first taken *without* that option,
which fails wherever anybody listens, and only then opened to the stock server of the same user. The
socket that took it never listens and stays bound for as long as the server lives and for a rest
after it: a straggling reader is refused there instead of meeting another job's server.

What this can't stop is a process of the same user that names the number itself and sets
SO_REUSEPORT: once the stock server has joined, Linux lets such a one in whatever the first socket
says (tried on Linux 6.18). Linux never picks a bound number for port 0 or for an outgoing
connection, so this takes intent.
"""

from __future__ import annotations

import errno
import logging
import socket
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self

from cachew_core.errors import ServiceError, SettingsError

_log = logging.getLogger(__name__)

_NO_IPV6 = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)


def parse_port_range(text: str) -> range:
    """The ports that `"first-last"` names, both included.

    Raises:
        SettingsError: it is not two ports from 1 to 65535 in this order.
    """
    first, _, last = text.partition("-")
    if first.strip().isdecimal() and last.strip().isdecimal():
        ports = range(int(first), int(last) + 1)
        if ports and ports[0] >= 1 and ports[-1] <= 65535:
            return ports
    raise SettingsError(
        f"port range {text!r} can't be used: write it as first-last, as 40000-40100, "
        "within 1 and 65535"
    )


class Reservation:
    """A port that is ours until `release` and the pool's rest after it."""

    def __init__(self, holder: socket.socket, release: Callable[[Reservation], None]) -> None:
        self.port: int = holder.getsockname()[1]
        self._holder = holder
        self._release = release

    def release(self) -> None:
        """Begins the rest: the server on this port has ended. A second call does nothing."""
        self._release(self)

    def _close(self) -> None:
        self._holder.close()


class PortPool:
    """Hands out ports on every address of this machine, and lets each rest after its use.

    Not for use from several threads. Each reservation costs one file descriptor until its rest is
    over.
    """

    def __init__(
        self,
        rest_s: float,
        *,
        ports: range | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """A pool that holds nothing yet.

        Args:
            rest_s: how long a released port stays closed to everybody.
            ports: the only ones to hand out, as a firewall may want. None: what Linux picks.
            clock: seconds that never go backwards.
        """
        self._rest_s = rest_s
        self._ports = ports
        self._clock = clock
        self._last: int | None = None
        self._used: set[Reservation] = set()
        self._resting: dict[Reservation, float] = {}

    def reserve(self) -> Reservation:
        """A port on which nobody listens, closed to all but servers of this user that share ports.

        Raises:
            ServiceError: there is none.
        """
        self._wake_rested()
        reservation = Reservation(self._take(), self._begin_rest)
        self._used.add(reservation)
        return reservation

    def close(self) -> None:
        """Gives all ports back at once, with no rest."""
        for reservation in (*self._used, *self._resting):
            reservation._close()
        self._used.clear()
        self._resting.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _begin_rest(self, reservation: Reservation) -> None:
        if reservation in self._used:
            self._used.remove(reservation)
            self._resting[reservation] = self._clock() + self._rest_s

    def _wake_rested(self) -> None:
        now = self._clock()
        for reservation in [one for one, until in self._resting.items() if until <= now]:
            del self._resting[reservation]
            reservation._close()

    def _take(self) -> socket.socket:
        held = {one.port for one in (*self._used, *self._resting)}
        for port in self._candidates():
            if port in held:
                continue
            try:
                holder = _bind_exclusively(port)
            except OSError as error:
                if error.errno in (errno.EADDRINUSE, errno.EACCES):
                    _log.debug("port %d is taken: %s", port, error)
                    continue
                raise ServiceError(
                    f"no port for a server could be taken: {error} "
                    "(if file descriptors are the limit, raise `ulimit -n`)"
                ) from error
            self._last = holder.getsockname()[1]
            return holder
        raise ServiceError(self._exhausted())

    def _candidates(self) -> Iterator[int]:
        """Those of the range after the last one first: the longest unused number is the safest."""
        if self._ports is None:
            yield 0
            return
        start = 0 if self._last is None else self._ports.index(self._last) + 1
        yield from self._ports[start:]
        yield from self._ports[:start]

    def _exhausted(self) -> str:
        which = f"in {self._ports[0]}-{self._ports[-1]}" if self._ports else "on this machine"
        return (
            f"no port is free {which}: {len(self._used)} are in use here, {len(self._resting)} "
            f"rest for up to {self._rest_s:g} s, the others are taken by other programs; "
            "widen port_range or lower port_rest_s"
        )


def _bind_exclusively(port: int) -> socket.socket:
    try:
        return _bound(socket.AF_INET6, "::", port)
    except OSError as error:
        if error.errno not in _NO_IPV6:
            raise
    return _bound(socket.AF_INET, "0.0.0.0", port)


def _bound(family: socket.AddressFamily, address: str, port: int) -> socket.socket:
    holder = socket.socket(family, socket.SOCK_STREAM)
    try:
        if family == socket.AF_INET6:
            holder.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        holder.bind((address, port))
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    except OSError:
        holder.close()
        raise
    return holder
