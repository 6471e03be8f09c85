"""Local services with the real dispatcher and the real agent."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from cachew_core import cluster
from cachew_core.cluster import processes, runs
from cachew_core.errors import ServiceError

pytest.importorskip("tensorflow")

pytestmark = pytest.mark.timeout(600)

CACHEW = (sys.executable, "-m", "cachew_core.cli")
BUSY_S = 240.0
"""Several imports of TensorFlow on a machine that has other work, too."""

TRAINING = """
import os, time
import tensorflow as tf
import cachew_core as cachew
from cachew_core import cluster
dataset = tf.data.Dataset.range(100).map(lambda x: x + 1)
dataset = dataset.apply(cachew.distribute(job_name="numbers"))
for _ in range(2):
    assert sorted(dataset.as_numpy_iterator()) == list(range(1, 101))
print("trained", flush=True)
if "STAY" in os.environ:
    endless = tf.data.Dataset.range(2**40).apply(cachew.sleep(1000))
    for _ in endless.apply(cachew.distribute(job_name="endless")):
        print("reading", flush=True)
if "DRAIN" in os.environ:
    slow = tf.data.Dataset.range(500).apply(cachew.sleep(20_000))
    slow = slow.apply(cachew.distribute(job_name="slow"))
    numbers = iter(slow)
    first = next(numbers)
    print("reading", flush=True)
    while cluster.status("one").state != "draining":
        time.sleep(0.01)
    try:
        list(tf.data.Dataset.range(10).apply(cachew.distribute(job_name="late")))
    except Exception as error:
        print("late:", "service 'one' is going down" in str(error), flush=True)
    rest = list(numbers)
    assert sorted([int(first), *map(int, rest)]) == list(range(500))
    print("500 elements", flush=True)
"""

Check = Callable[..., None]


def _status(name: str) -> dict[str, Any]:
    shown = subprocess.run([*CACHEW, "status", name, "--json"], stdout=subprocess.PIPE, check=True)
    document: dict[str, Any] = json.loads(shown.stdout)
    return document


def _count_processes(name: str) -> int:
    return len(runs.processes_of(name).look()) if runs.has_begun(name) else 0


def _train(service: str, **variables: str) -> subprocess.Popen[str]:
    environment = os.environ | {"CACHEW_SERVICE": service, "TF_CPP_MIN_LOG_LEVEL": "2"} | variables
    return subprocess.Popen(
        [sys.executable, "-c", TRAINING],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_service_lives_trains_and_ends(home: Path, nothing_left: Check) -> None:
    record = cluster.up("one", workers=2)
    assert cluster.up("one", workers=2) == record
    with _train("one") as training:
        output, errors = training.communicate(timeout=BUSY_S)
    assert output == "trained\n", errors

    document = _status("one")
    assert document.keys() >= {"name", "endpoint", "state", "workers", "jobs"}
    assert document["endpoint"] == record.endpoint
    for worker in document["workers"]:
        assert worker.keys() >= {"id", "address", "pid", "state", "job"}
    (job,) = document["jobs"]
    assert job["job_name"] == "numbers"
    assert len(job["fingerprint"]) == 64
    assert job["cache_policy"] == "auto"
    assert job["epochs"][0]["mode"] == "PROFILE"
    assert isinstance(job["batch_time_ms"], float)
    assert isinstance(job["wait_fraction"], float)
    assert [epoch["epoch"] for epoch in job["epochs"]] == [1, 2]
    for epoch in job["epochs"]:
        assert (epoch["elements"], epoch["repeated"], epoch["skipped"]) == (100, 0, 0)
        assert epoch["seconds"] > 0
        assert epoch["workers"] >= 1

    cluster.down("one")
    nothing_left("one", record.endpoint)
    cluster.down("one")


def test_down_gives_a_reading_trainer_one_clear_error_and_leaves_nothing(
    home: Path, nothing_left: Check
) -> None:
    record = cluster.up("one", workers=2)
    with _train("one", STAY="1") as training:
        assert training.stdout is not None
        assert training.stdout.readline() == "trained\n"
        assert training.stdout.readline() == "reading\n"
        with ThreadPoolExecutor() as pool:
            # Pipes that nobody empties would stop the trainer.
            ended = pool.submit(training.communicate, timeout=BUSY_S)
            cluster.down("one")
            nothing_left("one", record.endpoint)
            _, errors = ended.result()
    assert training.returncode != 0
    assert "service 'one' was taken down" in errors


def test_down_with_drain_lets_the_open_epoch_end_and_begins_no_other(
    home: Path, nothing_left: Check
) -> None:
    record = cluster.up("one", workers=2)
    with _train("one", DRAIN="1") as training:
        assert training.stdout is not None
        assert training.stdout.readline() == "trained\n"
        assert training.stdout.readline() == "reading\n"
        cluster.down("one", drain=True)
        nothing_left("one", record.endpoint)
        output, errors = training.communicate(timeout=BUSY_S)
    assert output == "late: True\n500 elements\n", errors
    assert training.returncode == 0


def test_a_service_without_a_client_ends_itself_and_leaves_nothing(
    home: Path, nothing_left: Check, eventually: Check
) -> None:
    record = cluster.up("one", workers=1, idle_timeout_s=1)
    with _train(record.endpoint) as training:
        output, errors = training.communicate(timeout=BUSY_S)
    assert output == "trained\n", errors
    eventually(lambda: cluster.list_services() == [], within_s=60)
    # What tidied up was the last one of its own processes: it ends after that.
    for pid in (record.dispatcher_pid, record.agent_pid):
        eventually(lambda pid=pid: processes.start_time(pid) is None)
    nothing_left("one", record.endpoint)


def test_down_ends_what_a_killed_dispatcher_left_and_up_starts_anew(
    home: Path, nothing_left: Check, kill: Check
) -> None:
    record = cluster.up("one", workers=1)
    kill(record.dispatcher_pid)
    again = cluster.up("one", workers=1)
    assert len(cluster.status("one").workers) == 1
    kill(again.dispatcher_pid)
    cluster.down("one")
    nothing_left("one", record.endpoint)
    nothing_left("one", again.endpoint)


def test_two_services_run_side_by_side_and_share_no_port(home: Path, nothing_left: Check) -> None:
    with ThreadPoolExecutor() as pool:
        one, two = pool.map(cluster.up, ["one", "two"])
        assert one.endpoint != two.endpoint
        taken = int(one.endpoint.rpartition(":")[2])
        with pytest.raises(ServiceError, match=f"can't listen on 127.0.0.1:{taken}"):
            cluster.up("three", port=taken)
        cluster.down("one")
        assert _status("two")["state"] == "running"
        cluster.down("two")
    nothing_left("one", one.endpoint)
    nothing_left("two", two.endpoint)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_interrupted_up_leaves_nothing(
    home: Path, nothing_left: Check, eventually: Check, number: signal.Signals
) -> None:
    with subprocess.Popen([*CACHEW, "up", "one"], stderr=subprocess.PIPE, text=True) as command:
        eventually(lambda: _count_processes("one") >= 2)
        command.send_signal(number)
        _, errors = command.communicate(timeout=60)
    assert command.returncode == 128 + number
    assert "Traceback" not in errors
    nothing_left("one")


def test_down_interrupts_an_up(home: Path, nothing_left: Check, eventually: Check) -> None:
    with subprocess.Popen([*CACHEW, "up", "one"], stderr=subprocess.PIPE, text=True) as command:
        eventually(lambda: _count_processes("one") >= 2)
        cluster.down("one")
        nothing_left("one")
        _, errors = command.communicate(timeout=60)
    assert command.returncode == 1
    assert errors == "error: service 'one' was taken down while it started\n"


def test_dispatcher_and_worker_in_the_foreground_end_with_code_0_on_sigterm(
    home: Path, tmp_path: Path, eventually: Check
) -> None:
    endpoint_file = tmp_path / "endpoint"
    log = tmp_path / "log"
    flags = ["--endpoint-file", str(endpoint_file), "--port", "0"]
    with (
        log.open("wb") as sink,
        subprocess.Popen([*CACHEW, "dispatcher", *flags], stderr=sink) as dispatcher,
    ):
        eventually(endpoint_file.exists, within_s=BUSY_S)
        endpoint = endpoint_file.read_text().strip()
        worker_flags = ["--dispatcher", endpoint, "--slots", "2"]
        with subprocess.Popen([*CACHEW, "worker", *worker_flags], stderr=sink) as worker:
            eventually(lambda: len(cluster.status(endpoint).workers) == 2, within_s=BUSY_S)
            worker.terminate()
            assert worker.wait(timeout=60) == 0, log.read_text()
            eventually(lambda: len(cluster.status(endpoint).workers) == 0, within_s=60)
        dispatcher.terminate()
        assert dispatcher.wait(timeout=60) == 0, log.read_text()
    with (
        pytest.raises(OSError, match="refused"),
        socket.create_connection(("127.0.0.1", int(endpoint.rpartition(":")[2]))),
    ):
        pass
