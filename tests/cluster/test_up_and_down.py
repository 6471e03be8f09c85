"""The life of a service's processes, tried with a small dispatcher and agent without TensorFlow."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import psutil
import pytest

from cachew_core import cluster
from cachew_core.cluster import processes, runs
from cachew_core.errors import ServiceError, ServiceUnavailableError, SettingsError
from cachew_core.service_record import ServiceRecord, read_record, write_record

Check = Callable[..., None]
Up = Callable[..., ServiceRecord]


@pytest.fixture
def up(home: Path, fake: tuple[str, ...]) -> Up:
    return partial(cluster.up, command=fake)


def test_up_returns_a_service_that_answers_with_all_its_workers(
    up: Up, nothing_left: Check
) -> None:
    record = up("one", workers=3)
    status = cluster.status("one")
    assert (status.name, status.endpoint, status.state) == ("one", record.endpoint, "running")
    assert len(status.workers) == 3
    assert cluster.status(record.endpoint) == status
    assert read_record("one") == record
    cluster.down("one")
    nothing_left("one", record.endpoint)


def test_a_second_up_adopts_the_running_service(up: Up, nothing_left: Check) -> None:
    record = up("one", workers=3)
    assert up("one") == record
    assert up("one", workers=3) == record
    cluster.down("one")
    nothing_left("one", record.endpoint)


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ({"workers": 2}, "with 3 workers, not 2"),
        ({"port": 1}, "not at"),
        ({"host": "::1"}, "not at"),
        ({"cache_policy": "full"}, "cache_policy='auto', not 'full'"),
        ({"store": "other"}, "store='one', not 'other'"),
    ],
)
def test_up_refuses_a_running_service_that_is_not_the_one_asked_for_and_leaves_it_alone(
    up: Up, asked: dict[str, object], text: str
) -> None:
    record = up("one", workers=3)
    with pytest.raises(ServiceError, match=text):
        up("one", **asked)
    assert up("one") == record
    cluster.down("one")


def test_up_refuses_a_running_service_whose_worker_process_is_gone(up: Up, kill: Check) -> None:
    record = up("one")
    kill(record.agent_pid)
    with pytest.raises(ServiceError, match=r"worker process .* is gone"):
        up("one")
    cluster.down("one")


def test_up_refuses_a_service_that_is_draining(up: Up) -> None:
    record = up("one")
    with ThreadPoolExecutor() as pool:
        draining = pool.submit(cluster.down, "one", drain=True)
        while cluster.status("one").state != "draining":
            time.sleep(0.05)
        with pytest.raises(ServiceError, match="is draining"):
            up("one")
        assert not draining.done()
        cluster.down("one")
        draining.result(timeout=10)
    assert not processes.is_alive(record.dispatcher_pid, record.dispatcher_started)


def test_two_ups_at_once_start_one_service(up: Up, nothing_left: Check) -> None:
    with ThreadPoolExecutor() as pool:
        first, second = pool.map(up, ["one", "one"])
    assert first == second
    cluster.down("one")
    nothing_left("one", first.endpoint)


def test_two_services_do_not_touch_each_other(up: Up, nothing_left: Check) -> None:
    one, two = up("one", workers=1), up("two", workers=2)
    assert one.endpoint != two.endpoint
    assert [service.name for service in cluster.list_services()] == ["one", "two"]
    cluster.down("one")
    assert len(cluster.status("two").workers) == 2
    assert [service.name for service in cluster.list_services()] == ["two"]
    cluster.down("two")
    nothing_left("two", two.endpoint)


def test_a_service_whose_name_begins_like_another_one_is_another_one(up: Up) -> None:
    up("one", workers=1)
    up("one-more", workers=1)
    cluster.down("one")
    assert cluster.status("one-more").state == "running"
    cluster.down("one-more")


def test_down_may_come_twice_and_without_a_service(up: Up, home: Path) -> None:
    cluster.down("one")
    assert not home.exists()
    up("one")
    cluster.down("one")
    cluster.down("one")


def test_two_downs_at_once_both_return_when_nothing_is_left(up: Up, nothing_left: Check) -> None:
    record = up("one")
    with ThreadPoolExecutor() as pool:
        downs = [pool.submit(cluster.down, "one") for _ in range(3)]
        for down in downs:
            down.result()
            nothing_left("one", record.endpoint)


def test_down_interrupts_an_up(
    up: Up, nothing_left: Check, eventually: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_FAULT", "worker-hangs")
    with ThreadPoolExecutor() as pool:
        starting = pool.submit(up, "one")
        eventually(runs.log_file("one", "worker").exists)
        assert [service.state for service in cluster.list_services()] == ["starting"]
        with pytest.raises(ServiceUnavailableError, match="is starting"):
            cluster.status("one")
        cluster.down("one")
        nothing_left("one")
        with pytest.raises(ServiceError, match="taken down while it started"):
            starting.result(timeout=10)
    assert cluster.list_services() == []


@pytest.mark.parametrize("part", ["dispatcher", "worker"])
def test_a_start_that_crashes_says_why_and_leaves_nothing(
    up: Up, nothing_left: Check, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    monkeypatch.setenv("FAKE_FAULT", f"{part}-crashes")
    with pytest.raises(ServiceError, match=rf"its {part} process ended(.|\n)*was told to crash"):
        up("one")
    nothing_left("one")


@pytest.mark.parametrize(
    ("part", "text"),
    [("dispatcher", "did not listen within 5 s"), ("worker", "2 workers came within 5 s")],
)
def test_a_start_that_hangs_ends_at_its_deadline_and_leaves_nothing(
    up: Up, nothing_left: Check, monkeypatch: pytest.MonkeyPatch, part: str, text: str
) -> None:
    monkeypatch.setenv("FAKE_FAULT", f"{part}-hangs")
    with pytest.raises(ServiceError, match=text):
        up("one", ready_timeout_s=5)
    nothing_left("one")


def test_a_starter_that_was_killed_does_not_block_the_next_one(
    up: Up, fake: tuple[str, ...], nothing_left: Check, eventually: Check, home: Path
) -> None:
    program = f"from cachew_core import cluster; cluster.up('one', command={fake!r})"
    environment = os.environ | {"FAKE_FAULT": "worker-hangs"}
    with subprocess.Popen([sys.executable, "-c", program], env=environment) as starter:
        eventually(lambda: (home / "services" / "one" / "logs" / "worker.log").exists())
        starter.kill()
        starter.wait()
    # A process that it was just starting holds the lock for a moment longer.
    eventually(lambda: [service.state for service in cluster.list_services()] == ["stopped"])
    record = up("one")
    assert len(cluster.status("one").workers) == 2
    cluster.down("one")
    nothing_left("one", record.endpoint)


def test_down_ends_what_a_killed_dispatcher_left(up: Up, kill: Check, nothing_left: Check) -> None:
    record = up("one")
    kill(record.dispatcher_pid)
    cluster.down("one")
    nothing_left("one", record.endpoint)


def test_up_starts_anew_after_a_crash(
    up: Up, kill: Check, nothing_left: Check, eventually: Check
) -> None:
    record = up("one", workers=1)
    kill(record.dispatcher_pid)
    eventually(lambda: [service.state for service in cluster.list_services()] == ["stopped"])
    with pytest.raises(ServiceError, match="does not run any more"):
        cluster.status("one")
    again = up("one", workers=2)
    assert again.dispatcher_pid != record.dispatcher_pid
    assert not processes.is_alive(record.agent_pid, record.agent_started)
    cluster.down("one")
    nothing_left("one", again.endpoint)


def test_down_kills_processes_that_do_not_listen(
    up: Up, nothing_left: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_FAULT", "deaf")
    record = up("one")
    cluster.down("one", timeout_s=4)
    nothing_left("one", record.endpoint)


def test_down_kills_processes_that_are_frozen(up: Up, nothing_left: Check) -> None:
    record = up("one")
    for pid in (record.dispatcher_pid, record.agent_pid):
        os.kill(pid, signal.SIGSTOP)
    cluster.down("one", timeout_s=4)
    nothing_left("one", record.endpoint)


def test_a_service_that_ends_by_itself_leaves_nothing(
    up: Up, nothing_left: Check, eventually: Check
) -> None:
    record = up("one", first_client_timeout_s=8)
    eventually(lambda: cluster.list_services() == [])
    eventually(lambda: not processes.is_alive(record.dispatcher_pid, record.dispatcher_started))
    eventually(lambda: not processes.is_alive(record.agent_pid, record.agent_started))
    nothing_left("one", record.endpoint)


def test_workers_that_lost_their_dispatcher_tidy_up_in_the_end(
    up: Up, nothing_left: Check, eventually: Check, monkeypatch: pytest.MonkeyPatch, kill: Check
) -> None:
    monkeypatch.setenv("FAKE_FAULT", "worker-gives-up")
    record = up("one")
    kill(record.dispatcher_pid)
    eventually(lambda: processes.start_time(record.agent_pid) is None)
    assert cluster.list_services() == []
    nothing_left("one", record.endpoint)


def test_workers_that_end_alone_leave_their_service_alone(up: Up, eventually: Check) -> None:
    record = up("one")
    os.kill(record.agent_pid, signal.SIGTERM)
    eventually(lambda: processes.start_time(record.agent_pid) is None)
    assert cluster.status("one").endpoint == record.endpoint
    cluster.down("one")


def test_a_damaged_record_does_not_block_the_name(up: Up, nothing_left: Check, home: Path) -> None:
    record = up("one")
    for name in ("service.json", "run.json"):
        (home / "services" / "one" / name).write_text("{")
    again = up("one")
    assert not processes.is_alive(record.dispatcher_pid, record.dispatcher_started)
    cluster.down("one")
    assert not processes.is_alive(again.dispatcher_pid, again.dispatcher_started)


def test_a_port_in_use_is_named(up: Up, home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ServiceError, match=f"can't listen on 127.0.0.1:{port}: .*in use"):
            up("one", port=port)
    assert cluster.list_services() == []


def test_a_home_that_can_not_be_written_is_named(
    up: Up, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    monkeypatch.setenv("CACHEW_HOME", str(blocked / "home"))
    with pytest.raises(SettingsError, match=f"CACHEW_HOME={blocked}/home"):
        up("one")


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("../one", {}),
        ("one", {"workers": 0}),
        ("one", {"port": 99999}),
        ("one", {"idle_timeout_s": -1}),
        ("one", {"host": "0.0.0.0"}),
    ],
)
def test_what_can_not_be_meant_is_refused_before_anything_is_made(
    up: Up, home: Path, name: str, asked: dict[str, object]
) -> None:
    with pytest.raises(SettingsError):
        up(name, **asked)
    assert not home.exists()


def test_a_relative_home_is_where_the_command_ran(
    up: Up, monkeypatch: pytest.MonkeyPatch, home: Path, nothing_left: Check
) -> None:
    monkeypatch.setenv("CACHEW_HOME", "home")
    record = up("one")
    assert (home / "services" / "one" / "service.json").exists()
    cluster.down("one")
    nothing_left("one", record.endpoint)


def test_logs_outlive_their_service_for_a_while_only(up: Up, home: Path) -> None:
    folder = home / "services" / "old"
    up("old")
    cluster.down("old")
    assert (folder / "logs").exists()
    up("new")
    assert (folder / "logs").exists()
    cluster.down("new")
    past = time.time() - runs.LOGS_KEPT_S - 1
    for log in (folder / "logs").iterdir():
        os.utime(log, (past, past))
    up("new")
    assert not folder.exists()
    cluster.down("new")


@pytest.fixture
def elsewhere(home: Path) -> ServiceRecord:
    """The record of a service of another machine that shares the state folder."""
    (home / "services" / "one" / "logs").mkdir(parents=True)
    record = ServiceRecord(
        name="one",
        endpoint="grpc://127.0.0.1:1",
        workers=2,
        dispatcher_pid=2**22,
        agent_pid=2**22,
        dispatcher_started=0,
        agent_started=0,
        machine="another-machine",
        boot_id="another-boot",
    )
    write_record(record)
    return record


def test_a_service_of_another_machine_with_the_same_home_is_left_alone(
    up: Up, elsewhere: ServiceRecord
) -> None:
    commands: list[Callable[[str], object]] = [up, cluster.down, partial(cluster.down, drain=True)]
    for command in commands:
        with pytest.raises(ServiceError, match="was started on machine 'another-machine'"):
            command("one")
    assert read_record("one") == elsewhere
    assert [service.state for service in cluster.list_services()] == ["running"]


def test_a_service_from_before_a_reboot_is_taken_away(up: Up, elsewhere: ServiceRecord) -> None:
    here = processes.this_machine().name
    write_record(elsewhere.model_copy(update={"machine": here}))
    assert [service.state for service in cluster.list_services()] == ["stopped"]
    assert up("one").dispatcher_pid != elsewhere.dispatcher_pid
    cluster.down("one")


def test_what_is_no_service_in_the_home_is_passed_over(up: Up, home: Path) -> None:
    up("one")
    for stray in ("file", ".hidden", "folder"):
        (home / "services" / stray).touch() if stray == "file" else (
            home / "services" / stray / "logs"
        ).mkdir(parents=True)
    assert [service.name for service in cluster.list_services()] == ["one"]
    cluster.down("one")


def test_up_in_a_thread_of_a_program_leaves_it_no_children(up: Up) -> None:
    before = {child.pid for child in psutil.Process().children()}
    thread = threading.Thread(target=up, args=("one",))
    thread.start()
    thread.join()
    assert {child.pid for child in psutil.Process().children()} <= before
    cluster.down("one")
