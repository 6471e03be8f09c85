"""`cachew caches` on a cache in a bucket."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from google.cloud import storage
from object_store import names
from one_node import open_bucket
from stock_snapshots import write_run
from typer.testing import CliRunner, Result

from cachew_core.cli import app
from cachew_core.errors import CacheError

KEYS = ("ab" * 32, "cd" * 32)


@pytest.fixture
def place(url: str, tmp_path: Path) -> str:
    """A cache with two entries of 40 elements."""
    store = open_bucket(url, tmp_path / "stage")
    for key in KEYS:
        writing = store.begin(key)
        assert writing is not None
        write_run(writing.path / "one", [b"x" * 100] * 40)
        store.commit(writing, least_runs=1, facts={"job": "training"})
    store.close()
    return url


def caches(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["caches", *arguments])


def test_entries_are_listed_and_shown(place: str) -> None:
    listed = json.loads(caches("list", place, "--json").output)
    assert [(entry["key"], entry["elements"]) for entry in listed] == [(key, 40) for key in KEYS]
    shown = json.loads(caches("show", place, "ab").output)
    assert sum(file["bytes"] for file in shown["files"]) == listed[0]["bytes"]


def test_an_entry_is_dropped_with_all_its_objects(place: str, bucket: storage.Bucket) -> None:
    assert "is gone" in caches("drop", place, "ab").output
    assert [name for name in names(bucket) if KEYS[0] in name] == []
    assert len(json.loads(caches("list", place, "--json").output)) == 1


def test_damage_is_found_and_what_is_of_no_use_is_removed(
    place: str, bucket: storage.Bucket
) -> None:
    assert caches("verify", place).exit_code == 0
    bucket.blob(f"some/cache/entries/{KEYS[0]}.json").upload_from_string(b"{}")
    outcome = caches("verify", place)
    assert isinstance(outcome.exception, CacheError)
    assert f"{KEYS[0]} is damaged" in outcome.output
    assert f"{KEYS[1]} is whole" in outcome.output
    assert "1 unfinished entries and 1 leftovers are gone" in caches("gc", place).output
    assert [name for name in names(bucket) if KEYS[0] in name] == []
    assert caches("verify", place).exit_code == 0


def test_a_bucket_without_a_cache_is_an_empty_one(url: str) -> None:
    assert json.loads(caches("list", url, "--json").output) == []
