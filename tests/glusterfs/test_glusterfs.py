"""A cache on a real GlusterFS volume: used by services one after the other, refused where it is not
mounted, and lost.
"""

import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from gluster_namespaces import Inside
from real_service import eventually

from benchmarks.glusterfs import GlusterFS

TIMEOUT_S = 900
"""Each service and each training imports TensorFlow: half a minute on a busy machine."""


@pytest.mark.timeout(TIMEOUT_S)
def test_what_one_service_stores_another_one_reads_from_its_first_epoch(
    inside: Inside, records: list[str]
) -> None:
    started = inside.up("one", "cache")
    assert started.returncode == 0, started.stderr
    first = inside.train("one", "first", epochs=2).done()
    assert [epoch["mode"] for epoch in first["epochs"]] == ["PUT", "GET"], first
    assert [epoch["records"] for epoch in first["epochs"]] == [records, records]
    assert inside.cachew("down", "one").returncode == 0

    started = inside.up("two", "cache")
    assert started.returncode == 0, started.stderr
    (epoch,) = inside.train("two", "second", epochs=1).done()["epochs"]
    assert epoch == {"mode": "GET", "records": records, "error": ""}


@pytest.mark.timeout(TIMEOUT_S)
def test_a_folder_whose_volume_is_not_mounted_is_refused(inside: Inside) -> None:
    path = inside.path("unmounted")
    assert inside.run("umount", str(path)).returncode == 0
    refused = inside.up("one", "unmounted")
    assert refused.returncode != 0
    assert str(path) in refused.stderr
    assert "not a mount point" in refused.stderr
    assert inside.run("ls", "-A", str(path)).stdout == ""


@pytest.mark.timeout(TIMEOUT_S)
def test_a_volume_that_is_lost_while_it_is_read_ends_that_epoch_and_no_later_one(
    inside: Inside, records: list[str]
) -> None:
    started = inside.up("one", "lost")
    assert started.returncode == 0, started.stderr
    stored = inside.train("one", "first", epochs=1).done()
    assert [epoch["mode"] for epoch in stored["epochs"]] == ["PUT"], stored

    reading = inside.train("one", "reading", epochs=1, hold_at=1)
    reading.await_hold()
    inside.kill_brick("lost")
    reading.go_on()
    (epoch,) = reading.done()["epochs"]
    assert epoch["mode"] == "GET"
    # What was read ahead comes; what is missing is an error, never a short epoch.
    assert epoch["error"] or epoch["records"] == records
    assert len(set(epoch["records"])) == len(epoch["records"])

    after = inside.train("one", "after", epochs=2).done()
    assert [epoch["mode"] for epoch in after["epochs"]] == ["COMPUTE", "COMPUTE"], after
    assert [epoch["records"] for epoch in after["epochs"]] == [records, records]
    assert after["reasons"]


@pytest.mark.timeout(TIMEOUT_S)
def test_a_volume_that_is_lost_while_it_is_written_costs_no_epoch(
    inside: Inside, records: list[str]
) -> None:
    started = inside.up("one", "broken")
    assert started.returncode == 0, started.stderr
    writing = inside.train("one", "writing", epochs=1, hold_at=1)
    writing.await_hold()
    inside.kill_brick("broken")
    writing.go_on()
    read = writing.done()
    assert read["epochs"] == [{"mode": "PUT", "records": records, "error": ""}], read

    after = inside.train("one", "after", epochs=2).done()
    assert [epoch["mode"] for epoch in after["epochs"]] == ["COMPUTE", "COMPUTE"], after
    assert [epoch["records"] for epoch in after["epochs"]] == [records, records]


def test_a_volume_of_limited_speed_is_read_again_and_again_at_that_speed(tmp_path: Path) -> None:
    with GlusterFS({"slow": 4_000_000}, folder=tmp_path) as slow:
        file = slow.path("slow") / "file"
        write = f"head -c 8000000 /dev/urandom > {file}"
        subprocess.run(slow.inside(["sh", "-c", write]), check=True)
        for _ in range(2):
            began_s = time.monotonic()
            subprocess.run(slow.inside(["cat", str(file)]), check=True, stdout=subprocess.DEVNULL)
            # No machine is too slow for this: it can only be too fast.
            assert time.monotonic() - began_s > 1.5
    assert list(tmp_path.iterdir()) == []


def test_a_server_whose_owner_is_killed_leaves_no_process(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[2]
    program = (
        "import pathlib, sys, time\n"
        "from benchmarks.glusterfs import GlusterFS\n"
        "with GlusterFS({'a': 0}, folder=pathlib.Path(sys.argv[1])) as server:\n"
        "    print(server.path('a'), flush=True)\n"
        "    time.sleep(1000)\n"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        cwd=root,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdout is not None
    with owner.stdout:
        folder = Path(owner.stdout.readline().strip()).parent
    assert _processes_of(folder)
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    eventually(lambda: not _processes_of(folder))
    shutil.rmtree(folder)


def _processes_of(folder: Path) -> list[psutil.Process]:
    return [
        process
        for process in psutil.process_iter(["cmdline"])
        if any(str(folder) in part for part in process.info["cmdline"] or [])
    ]
