"""One service owns a store; a dead one leaves nothing that is in the way, and nothing half done."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from stock_snapshots import write_run

from cachew_core.cache import CacheStore
from cachew_core.cache.lease import DEAD_AFTER_S, Lease
from cachew_core.errors import CacheError

SUPPORT = Path(__file__).resolve().parents[1] / "support"
DEADLINE_S = 60.0
MOMENTS = 12

Start = Callable[[str], subprocess.Popen[str]]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "cache"
    folder.mkdir()
    return folder


@pytest.fixture
def start(root: Path, key: str) -> Iterator[Start]:
    """Starts a process that opens the store; returns when it did."""
    paths = [str(SUPPORT), *filter(None, [os.environ.get("PYTHONPATH")])]
    with ExitStack() as stack:

        def start_(what: str) -> subprocess.Popen[str]:
            process = stack.enter_context(
                subprocess.Popen(
                    [sys.executable, Path(__file__).with_name("store_process.py"), what, root, key],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
                )
            )
            stack.callback(process.kill)
            expect(process, "open")
            return process

        yield start_


def expect(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == line + "\n"


def kill(process: subprocess.Popen[str]) -> None:
    """Kills it and waits for its end; a process that ended by itself is a failure."""
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=DEADLINE_S)
    assert process.returncode == -signal.SIGKILL


def test_a_second_service_is_refused_while_the_first_one_lives(root: Path, start: Start) -> None:
    owner = start("own")
    with pytest.raises(CacheError, match=rf"`cache_dir`.* in use by process {owner.pid} "):
        CacheStore.open(root)
    owner.communicate("", timeout=DEADLINE_S)
    CacheStore.open(root).close()


def test_one_process_can_not_open_a_store_twice(store: CacheStore) -> None:
    with pytest.raises(CacheError, match="in use by"):
        CacheStore.open(store.root)


def test_a_killed_service_does_not_block_the_next_one(root: Path, start: Start) -> None:
    kill(start("own"))
    CacheStore.open(root).close()
    kill(start("own"))


def test_a_killed_service_that_nobody_has_collected_is_dead(root: Path, start: Start) -> None:
    owner = start("own")
    owner.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, owner.pid, os.WEXITED | os.WNOWAIT)
    CacheStore.open(root).close()


def pretend(root: Path, *, age_s: float = 0.0, **changes: object) -> None:
    """Leaves a lease of this process, with something changed."""
    (root / "lease.json").unlink(missing_ok=True)
    lease = Lease(root)
    content = (root / "lease.json").read_text()
    lease.release()
    (root / "lease.json").write_text(json.dumps({**json.loads(content), **changes}))
    now = time.time()
    os.utime(root / "lease.json", (now - age_s, now - age_s))


def test_a_pid_that_is_now_another_process_is_dead(root: Path) -> None:
    pretend(root, started=1.0)
    CacheStore.open(root).close()


def test_a_service_on_another_machine_lives_as_long_as_its_heart_beats(root: Path) -> None:
    pretend(root, host="elsewhere boot", pid=1, age_s=DEAD_AFTER_S / 2)
    with pytest.raises(CacheError, match="in use by process 1 on elsewhere"):
        CacheStore.open(root)
    pretend(root, host="elsewhere boot", pid=1, age_s=DEAD_AFTER_S * 2)
    CacheStore.open(root).close()


def test_a_service_touches_its_lease(root: Path) -> None:
    lease = Lease(root, heartbeat_s=0.01)
    try:
        os.utime(root / "lease.json", (1.0, 1.0))
        deadline = time.monotonic() + DEADLINE_S
        while (root / "lease.json").stat().st_mtime == 1.0:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        lease.release()
    assert not (root / "lease.json").exists()


def test_a_lease_file_that_can_not_be_read_blocks_nobody(root: Path) -> None:
    (root / "lease.json").write_text("{")
    CacheStore.open(root).close()


def test_a_service_that_lost_its_lease_changes_nothing_any_more(
    store: CacheStore, put: Callable[..., object], key: str
) -> None:
    put()
    writing = store.begin("cd" * 32)
    assert writing is not None
    write_run(writing.path / "run", [b"x"])
    taken = json.loads((store.root / "lease.json").read_text()) | {"token": "another"}
    (store.root / "lease.json").write_text(json.dumps(taken))
    with pytest.raises(CacheError, match="no longer this service's"):
        store.begin("ef" * 32)
    with pytest.raises(CacheError, match="no longer this service's"):
        store.commit(writing, least_runs=1, facts={})
    assert not store.drop(key)
    assert (store.root / "entries" / key).exists()
    store.close()
    assert (store.root / "lease.json").exists()


def test_a_writer_that_is_killed_leaves_no_entry(root: Path, start: Start, key: str) -> None:
    writer = start("write")
    expect(writer, "wrote")
    kill(writer)
    with CacheStore.open(root) as store:
        assert store.find(key) is None
        writing = store.begin(key)
        assert writing is not None
        assert list((root / "writing").iterdir()) == [writing.folder]


def test_a_commit_that_is_killed_at_any_moment_leaves_a_whole_entry_or_none(
    root: Path, start: Start, key: str
) -> None:
    for moment in range(MOMENTS):
        process = start("commit")
        expect(process, "commits")
        begun = time.monotonic()
        expect(process, "commits")
        round_s = time.monotonic() - begun
        # Not for anything to happen: the moment of the kill, in a round of commit, drop and
        # writing, is what is tried.
        time.sleep(round_s * moment / MOMENTS)
        kill(process)
        with CacheStore.open(root) as store:
            left = [path.name for path in (root / "entries").iterdir()]
            assert [store.verify(name) for name in left] == [[] for _ in left]
            entry = store.find(key)
            assert store.entries() == ([] if entry is None else [entry])
            if entry is not None:
                assert (entry.elements, len(entry.files)) == (400, 40)
            store.collect()
            assert list((root / "writing").iterdir()) == []
            assert list((root / "trash").iterdir()) == []
