"""`cachew caches` on stores that hold something, and `cachew explain` on what a service decided."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from stock_snapshots import write_run

from cachew_core import cli, cluster
from cachew_core.cache import CacheStore, Entry
from cachew_core.proto import cachew_pb2
from cachew_core.service_record import store_folder

FIRST, SECOND = "ab" * 32, "cd" * 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    code: int
    output: str
    errors: str


Cachew = Callable[..., Outcome]


@pytest.fixture
def cachew(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cachew:
    """Runs the command `cachew` in this process."""
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: str) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["cachew", *arguments])
        with pytest.raises(SystemExit) as end:
            cli.main()
        captured = capsys.readouterr()
        code = end.value.code
        assert code is None or isinstance(code, int)
        return Outcome(code=code or 0, output=captured.out, errors=captured.err)

    return run


@pytest.fixture
def root(home: Path) -> Path:
    """The folder of the cache of a store called `photos`, with two entries of 80 elements each."""
    folder = store_folder("photos") / "cache"
    folder.mkdir(parents=True)
    with CacheStore.open(folder) as store:
        put(store, FIRST, point="decoded", job="training")
        put(store, SECOND, point="end", job="evaluation")
    return folder


def put(store: CacheStore, key: str, **facts: str) -> Entry:
    writing = store.begin(key)
    assert writing is not None
    for run in ("one", "two"):
        write_run(writing.path / run, [b"x" * 100] * 40)
    return store.commit(writing, least_runs=2, facts=facts)


def files_of(root: Path) -> set[Path]:
    return {path.relative_to(root) for path in root.rglob("*")}


def test_entries_are_listed_for_people_and_for_programs(root: Path, cachew: Cachew) -> None:
    table = cachew("caches", "list", "photos").output
    (row,) = [line.split() for line in table.splitlines() if "decoded" in line]
    assert {FIRST[:12], "training", "80"} <= set(row)
    listed = json.loads(cachew("caches", "list", "photos", "--json").output)
    assert [entry["key"] for entry in listed] == [FIRST, SECOND]
    assert listed[0]["elements"] == 80
    chunks = (root / "entries" / FIRST).rglob("*.snapshot")
    assert listed[0]["bytes"] == sum(chunk.stat().st_size for chunk in chunks)
    assert listed[0]["facts"] == {"point": "decoded", "job": "training"}


def test_a_store_is_named_by_the_folder_of_its_cache_too(root: Path, cachew: Cachew) -> None:
    by_name = cachew("caches", "list", "photos", "--json")
    assert cachew("caches", "list", f"{root}/", "--json") == by_name


def test_a_store_without_entries_says_so(home: Path, cachew: Cachew) -> None:
    folder = store_folder("new") / "cache"
    folder.mkdir(parents=True)
    CacheStore.open(folder).close()
    assert cachew("caches", "list", "new").output == "nothing is stored\n"
    assert json.loads(cachew("caches", "list", "new", "--json").output) == []


def test_an_entry_is_shown_with_its_files(root: Path, cachew: Cachew) -> None:
    shown = json.loads(cachew("caches", "show", "photos", "ab").output)
    assert shown["key"] == FIRST
    assert len(shown["files"]) == 4
    for file in shown["files"]:
        path = root / "entries" / FIRST / file["path"]
        assert path.stat().st_size == file["bytes"]


def test_a_dropped_entry_is_gone_and_the_others_stay(root: Path, cachew: Cachew) -> None:
    dropped = cachew("caches", "drop", "photos", "ab")
    assert dropped.code == 0
    assert dropped.output.startswith(f"{FIRST} is gone")
    listed = json.loads(cachew("caches", "list", "photos", "--json").output)
    assert [entry["key"] for entry in listed] == [SECOND]
    assert not any(FIRST in str(path) for path in files_of(root))


def test_the_beginning_of_a_key_must_fit_one_entry(root: Path, cachew: Cachew) -> None:
    before = files_of(root)
    for command in ("show", "drop"):
        for beginning, found in (("", 2), ("12", 0)):
            outcome = cachew("caches", command, "photos", beginning)
            assert outcome.code == 1
            assert outcome.errors.startswith(f"error: {found} entries of store 'photos'")
            assert outcome.output == ""
    assert files_of(root) == before


def test_what_a_dead_writer_left_is_collected(root: Path, cachew: Cachew) -> None:
    with CacheStore.open(root) as store:
        writing = store.begin("ef" * 32)
        assert writing is not None
        write_run(writing.path / "run", [b"x" * 1000])
    assert writing.folder.exists()
    outcome = cachew("caches", "gc", "photos")
    assert "1 unfinished entries" in outcome.output
    assert not outcome.output.startswith("0 bytes")
    assert not writing.folder.exists()
    assert len(json.loads(cachew("caches", "list", "photos", "--json").output)) == 2


def test_whole_entries_are_found_whole(root: Path, cachew: Cachew) -> None:
    outcome = cachew("caches", "verify", "photos")
    assert (outcome.code, outcome.errors) == (0, "")
    assert outcome.output == f"{FIRST} is whole\n{SECOND} is whole\n"


def test_a_changed_byte_is_found(root: Path, cachew: Cachew) -> None:
    chunk = next((root / "entries" / FIRST).rglob("*.snapshot"))
    content = bytearray(chunk.read_bytes())
    content[20] ^= 1
    chunk.write_bytes(content)
    outcome = cachew("caches", "verify", "photos")
    assert outcome.code == 1
    assert "has another content than was written" in outcome.output.splitlines()[0]
    assert outcome.output.splitlines()[1] == f"{SECOND} is whole"
    assert outcome.errors.startswith("error: 1 entries are damaged")
    cachew("caches", "drop", "photos", FIRST)
    assert cachew("caches", "verify", "photos").code == 0


@pytest.mark.parametrize("content", [b"", b"{}", b"not JSON"])
def test_an_entry_whose_manifest_is_damaged_is_named_and_can_be_dropped(
    root: Path, cachew: Cachew, content: bytes
) -> None:
    (root / "entries" / FIRST / "manifest.json").write_bytes(content)
    outcome = cachew("caches", "verify", "photos")
    assert outcome.code == 1
    assert outcome.output.splitlines()[0].startswith(f"{FIRST} is damaged: manifest.json")
    assert outcome.output.splitlines()[1] == f"{SECOND} is whole"
    assert outcome.errors.startswith("error: 1 entries are damaged")
    assert cachew("caches", "drop", "photos", "ab").output.startswith(f"{FIRST} is gone")
    assert cachew("caches", "verify", "photos").output == f"{SECOND} is whole\n"


@pytest.mark.parametrize("command", [["drop", "photos", "ab"], ["gc", "photos"]])
def test_a_store_in_use_is_listed_and_not_changed(
    root: Path, cachew: Cachew, command: list[str]
) -> None:
    with CacheStore.open(root):
        before = files_of(root)
        assert len(json.loads(cachew("caches", "list", "photos", "--json").output)) == 2
        outcome = cachew("caches", *command)
        assert outcome.code == 1
        assert outcome.errors.startswith("error: ")
        assert str(root) in outcome.errors
        assert files_of(root) == before


@pytest.mark.parametrize("command", ["list", "gc", "verify"])
def test_a_store_that_is_not_there_is_one_sentence_and_is_not_made(
    home: Path, cachew: Cachew, command: str
) -> None:
    outcome = cachew("caches", command, "never-was")
    assert outcome.code == 1
    assert outcome.errors.startswith("error: ")
    assert outcome.errors.count("\n") == 1
    assert not store_folder("never-was").exists()


def test_a_name_that_no_store_can_have_is_refused(home: Path, cachew: Cachew) -> None:
    outcome = cachew("caches", "list", "my store")
    assert outcome.code == 2
    assert outcome.errors.startswith("error: store name 'my store' can't be used")


@pytest.fixture
def decided(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service that knows two jobs of one name, as after a trainer's restart, and a new one."""
    candidates = [
        {"mode": "COMPUTE", "point": "", "left_out": "", "figures": None},
        {
            "mode": "PUT_SOURCE",
            "point": "decoded",
            "left_out": "",
            "figures": {"workers": 2, "batch_s": 0.0125, "worker_s": 0.025},
        },
        {"mode": "PUT", "point": "end", "left_out": "map draws random numbers", "figures": None},
    ]
    decision = cachew_pb2.CacheDecision(
        epoch=2,
        mode="PUT_SOURCE",
        point="decoded",
        reason="PUT_SOURCE at mark 'decoded': it is the fastest.",
        figures=json.dumps(candidates),
    )
    status = cachew_pb2.ServiceStatus(
        name="one",
        jobs=[
            cachew_pb2.JobStatus(job_name="training", cache_policy="compute", mode="COMPUTE"),
            cachew_pb2.JobStatus(
                job_name="training",
                cache_policy="auto",
                mode="PUT_SOURCE",
                decisions=[decision],
                notices=["epoch 1 stored nothing at 'decoded': the epoch failed"],
            ),
            cachew_pb2.JobStatus(job_name="new", cache_policy="full"),
        ],
    )
    monkeypatch.setattr(cluster, "status", lambda service: status)


@pytest.mark.usefixtures("decided")
def test_a_decision_is_explained_with_its_reason_and_figures(cachew: Cachew) -> None:
    lines = cachew("explain", "one", "training").output.splitlines()
    assert lines[0] == "job training: cache policy auto, mode PUT_SOURCE"
    assert lines[1] == "from epoch 2 on: PUT_SOURCE at mark 'decoded': it is the fastest."
    rows = {line.strip("│ ").partition(" ")[0]: line for line in lines if line.startswith("│")}
    assert {"decoded", "2", "12.50", "25.00"} <= set(rows["PUT_SOURCE"].split())
    assert "map draws random" in rows["PUT"]
    assert lines[-1] == "note: epoch 1 stored nothing at 'decoded': the epoch failed"


@pytest.mark.usefixtures("decided")
def test_a_job_without_a_decision_is_explained_too(cachew: Cachew) -> None:
    output = cachew("explain", "one", "new").output
    assert "cache policy full" in output
    assert "nothing was decided yet" in output


@pytest.mark.usefixtures("decided")
def test_a_job_that_the_service_does_not_have_is_refused(cachew: Cachew) -> None:
    outcome = cachew("explain", "one", "other")
    assert outcome.code == 1
    assert outcome.errors == "error: service 'one' has no job 'other': see cachew status one\n"
