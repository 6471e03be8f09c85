"""Which store a service gets that was given none, and which stores are removed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeAlias

import pytest
from stock_snapshots import write_run

from cachew_core import cli, cluster
from cachew_core.cache import CacheStore
from cachew_core.cluster import locks, stores
from cachew_core.service_record import ServiceRecord, store_folder

Up: TypeAlias = Callable[..., ServiceRecord]


@pytest.fixture
def up(home: Path, fake: tuple[str, ...]) -> Up:
    return partial(cluster.up, command=fake, workers=1, ready_timeout_s=30)


def test_services_that_follow_each_other_have_the_usual_store(up: Up) -> None:
    for run in ("run-1", "run-2"):
        assert up(run, usual_store="usual").store == "usual"
        cluster.down(run)


def test_a_service_that_comes_while_another_one_has_the_usual_store_gets_its_own(
    up: Up, caplog: pytest.LogCaptureFixture
) -> None:
    assert up("run-1", usual_store="usual").store == "usual"
    assert up("run-2", usual_store="usual").store == "run-2"
    assert "the usual store 'usual' is in use by service 'run-1'" in caplog.text
    # A retried step adopts the service of its first try.
    assert up("run-1", usual_store="usual").store == "usual"
    assert up("run-2", usual_store="usual").store == "run-2"
    for run in ("run-1", "run-2"):
        cluster.down(run)


def test_a_service_that_comes_while_another_one_starts_with_the_usual_store_gets_its_own(
    up: Up,
) -> None:
    with locks.held(store_folder("usual"), timeout_s=1):
        assert up("run-1", usual_store="usual").store == "run-1"
    cluster.down("run-1")


def test_a_store_that_is_named_comes_before_the_usual_one(up: Up) -> None:
    assert up("run-1", store="named", usual_store="usual").store == "named"
    assert not store_folder("usual").exists()
    cluster.down("run-1")


def make_store(name: str) -> CacheStore:
    folder = store_folder(name) / "cache"
    folder.mkdir(parents=True)
    return CacheStore.open(folder)


def test_empty_stores_are_removed_and_others_stay(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with make_store("filled") as store:
        writing = store.begin("ab" * 32)
        assert writing is not None
        write_run(writing.path / "run", [b"x" * 100])
        store.commit(writing, least_runs=1, facts={})
    make_store("empty").close()
    (store_folder("elsewhere")).mkdir()
    (store_folder("elsewhere") / "metadata.db").touch()
    with make_store("in-use"):
        monkeypatch.setattr(sys, "argv", ["cachew", "caches", "gc"])
        with pytest.raises(SystemExit) as end:
            cli.main()
    assert not end.value.code
    assert capsys.readouterr().out == "store empty held nothing and is gone\n"
    left = {folder.name for folder in (home / "stores").iterdir()}
    assert left == {"filled", "elsewhere", "in-use"}
    assert stores.remove_empty() == ["in-use"]
