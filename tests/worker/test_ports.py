"""Ports are ours alone until the stock server joins, while it serves, and for a rest after it."""

from __future__ import annotations

import errno
import socket
import struct

import pytest

from cachew_core.errors import ServiceError, SettingsError
from cachew_core.ports import PortPool, parse_port_range

IP_LOCAL_PORT_RANGE = 51


def bind(address: str, port: int, *, share: bool = True, only: int | None = None) -> socket.socket:
    """A socket as gRPC's C++ servers bind theirs; `only`: the one number that port 0 may become."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if share:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if only is not None:
            bound.setsockopt(socket.IPPROTO_IP, IP_LOCAL_PORT_RANGE, struct.pack("=HH", only, only))
        bound.bind((address, port))
    except OSError:
        bound.close()
        raise
    return bound


def can_narrow_port_0() -> bool:
    try:
        bind("127.0.0.1", 0, only=free_port()).close()
    except OSError as error:
        return error.errno != errno.ENOPROTOOPT
    return True


def free_port() -> int:
    with bind("::", 0) as probe:
        return int(probe.getsockname()[1])


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_a_server_that_shares_ports_can_listen_on_a_reserved_one() -> None:
    with PortPool(rest_s=0) as pool, bind("::", pool.reserve().port) as server:
        server.listen()
        with socket.create_connection(("127.0.0.1", server.getsockname()[1]), timeout=5):
            pass


@pytest.mark.parametrize("address", ["0.0.0.0", "127.0.0.1", "::", "::1"])
def test_a_server_that_does_not_share_can_not_take_a_reserved_port(address: str) -> None:
    with PortPool(rest_s=0) as pool:
        port = pool.reserve().port
        with pytest.raises(OSError, match="in use"):
            bind(address, port, share=False)


@pytest.mark.parametrize("address", ["0.0.0.0", "127.0.0.1", "::", "::1"])
def test_a_port_with_a_foreign_listener_that_shares_is_passed_over(address: str) -> None:
    with bind(address, 0) as foreign:
        foreign.listen()
        taken = foreign.getsockname()[1]
        with (
            PortPool(rest_s=0, ports=range(taken, taken + 1)) as pool,
            pytest.raises(ServiceError, match=f"no port is free in {taken}-{taken}"),
        ):
            pool.reserve()


@pytest.mark.skipif(
    not can_narrow_port_0(), reason="Linux before 6.3 can't be told which ports it may pick"
)
def test_linux_never_picks_a_reserved_port_by_itself_even_while_a_server_shares_it() -> None:
    with PortPool(rest_s=0) as pool:
        port = pool.reserve().port
        with bind("::", port) as server:
            server.listen()
            with pytest.raises(OSError, match="in use"):
                bind("127.0.0.1", 0, only=port)


def test_two_pools_never_hold_the_same_port_of_one_range() -> None:
    first = free_port()
    ports = range(first, first + 1)
    with PortPool(rest_s=0, ports=ports) as one, PortPool(rest_s=0, ports=ports) as other:
        one.reserve()
        with pytest.raises(ServiceError, match="no port is free"):
            other.reserve()


def test_a_released_port_rests_before_it_is_handed_out_again() -> None:
    clock, first = Clock(), free_port()
    with PortPool(rest_s=60, ports=range(first, first + 1), clock=clock) as pool:
        reservation = pool.reserve()
        reservation.release()
        clock.now_s = 59
        with pytest.raises(ServiceError, match="1 rest for up to 60 s"):
            pool.reserve()
        with pytest.raises(OSError, match="in use"):
            bind("::", first, share=False)
        clock.now_s = 60
        assert pool.reserve().port == first


def test_a_resting_port_refuses_a_straggling_reader() -> None:
    with PortPool(rest_s=60) as pool:
        reservation = pool.reserve()
        reservation.release()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", reservation.port), timeout=5)


def test_a_port_released_twice_rests_once_from_the_first_time() -> None:
    clock, first = Clock(), free_port()
    with PortPool(rest_s=60, ports=range(first, first + 1), clock=clock) as pool:
        reservation = pool.reserve()
        reservation.release()
        clock.now_s = 50
        reservation.release()
        clock.now_s = 61
        assert pool.reserve().port == first


def test_a_range_is_walked_in_turn_so_that_the_longest_unused_port_comes_next() -> None:
    first = free_port()
    with PortPool(rest_s=0, ports=range(first, first + 50)) as pool:
        handed_out = []
        for _ in range(5):
            reservation = pool.reserve()
            handed_out.append(reservation.port)
            reservation.release()
    assert handed_out == sorted(set(handed_out))


def test_closing_the_pool_gives_every_port_back() -> None:
    pool = PortPool(rest_s=60)
    used, resting = pool.reserve(), pool.reserve()
    resting.release()
    pool.close()
    for port in (used.port, resting.port):
        bind("::", port, share=False).close()


def test_a_range_is_written_as_first_and_last() -> None:
    assert parse_port_range("40000-40002") == range(40000, 40003)
    assert list(parse_port_range("7-7")) == [7]


@pytest.mark.parametrize("text", ["", "40000", "9-8", "0-5", "1-65536", "a-b", "-5", "1-2-3"])
def test_a_range_that_can_not_be_used_is_refused_with_its_text(text: str) -> None:
    with pytest.raises(SettingsError, match=f"port range '{text}'"):
        parse_port_range(text)
