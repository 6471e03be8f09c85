"""Each generation's stock server is a process of its own: what befalls it stays there."""

from __future__ import annotations

import socket
from collections import Counter

import psutil
import pytest
import tensorflow as tf
from real_service import RealService, eventually

import cachew_core as cachew

ANSWER_S = 10
"""Stock's stop takes 20 s where a connection says nothing."""


def served(service: RealService, job: str, work_us: int = 2_000) -> tf.data.Dataset:
    numbers = tf.data.Dataset.range(400).apply(cachew.sleep(work_us))
    return numbers.apply(cachew.distribute(service=service.endpoint, job_name=job))


def stock_servers(service: RealService) -> list[psutil.Process]:
    [spawner] = psutil.Process(service.dispatcher.pid).children()
    return list(spawner.children())


def listening(service: RealService) -> set[int]:
    """The ports of its stock servers."""
    return {
        connection.laddr.port
        for server in stock_servers(service)
        for connection in server.net_connections()
        if connection.status == psutil.CONN_LISTEN
    }


def test_a_connection_that_says_nothing_delays_nobody(service: RealService) -> None:
    service.add_agent(1)
    dataset = served(service, "watched", 0)
    elements = iter(dataset)
    next(elements)
    # One server is the job's, one waits for the next job.
    eventually(lambda: len(listening(service)) == 2)
    silent = [socket.create_connection(("127.0.0.1", port)) for port in listening(service)]
    before = stock_servers(service)
    del elements, dataset
    eventually(lambda: service.job("watched").state == "ended")
    # It goes as well, while the connection is still open.
    eventually(lambda: any(not server.is_running() for server in before), ANSWER_S)
    for one in silent:
        one.close()


def test_a_stock_server_that_dies_ends_the_epoch_with_one_clear_error_and_the_next_one_is_whole(
    service: RealService,
) -> None:
    service.add_agent(2)
    eventually(lambda: len(stock_servers(service)) == 1)
    [spare] = stock_servers(service)
    dataset = served(service, "orphaned")
    elements = dataset.as_numpy_iterator()
    next(elements)
    # The one that was kept ready has become the job's.
    spare.kill()
    with pytest.raises(
        tf.errors.OpError,
        match=r"the stock server was lost in epoch 1 of job 'orphaned'.*SIGKILL.*start the epoch",
    ):
        list(elements)
    assert Counter(dataset.as_numpy_iterator()) == Counter(range(400))


def test_a_stock_server_that_nobody_uses_yet_is_replaced_if_it_dies(service: RealService) -> None:
    service.add_agent(1)
    eventually(lambda: len(stock_servers(service)) == 1)
    [spare] = stock_servers(service)
    spare.kill()
    eventually(lambda: any(other.pid != spare.pid for other in stock_servers(service)))
    assert Counter(served(service, "after").as_numpy_iterator()) == Counter(range(400))


def test_all_stock_servers_that_die_with_what_forks_them_are_missed_and_replaced(
    service: RealService,
) -> None:
    service.add_agent(2)
    dataset = served(service, "all")
    elements = dataset.as_numpy_iterator()
    next(elements)
    [spawner] = psutil.Process(service.dispatcher.pid).children()
    spawner.kill()
    with pytest.raises(tf.errors.OpError, match="the stock server was lost in epoch 1"):
        list(elements)
    assert Counter(dataset.as_numpy_iterator()) == Counter(range(400))
