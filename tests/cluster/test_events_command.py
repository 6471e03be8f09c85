"""`cachew caches events`: what happened in a store, for the original's plotting scripts."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cachew_core.cli import app
from cachew_core.errors import CacheError
from cachew_core.metadata import Decision, MetadataStore
from cachew_core.service_record import store_folder

HEADINGS = "time,fingerprint,dataset_id,job_name,job_id,event_type,additional"


@pytest.fixture
def photos(home: Path) -> str:
    """A store in which something was decided."""
    folder = store_folder("photos")
    folder.mkdir(parents=True)
    decision = Decision(
        fingerprint="ab" * 32,
        job="training",
        epoch=0,
        mode="PUT",
        point="end",
        reason="for the test",
        decided_at=datetime(2026, 11, 30, tzinfo=UTC),
    )
    with MetadataStore.open(f"sqlite:///{folder / 'metadata.db'}", store="photos") as store:
        store.record_decision(decision)
    return "photos"


def test_events_are_written_to_a_file_or_to_the_standard_output(
    photos: str, tmp_path: Path
) -> None:
    output = tmp_path / "events.csv"
    told = CliRunner().invoke(app, ["caches", "events", photos, "--output", str(output)])
    assert f"1 events are in {output}" in told.output
    lines = output.read_text().splitlines()
    assert lines[0] == HEADINGS
    assert lines[1].endswith(",training,0,execution_policy_decision,PUT")
    printed = CliRunner().invoke(app, ["caches", "events", photos])
    assert printed.output.splitlines() == lines


def test_a_store_without_a_past_is_an_error_and_is_not_made(home: Path) -> None:
    outcome = CliRunner().invoke(app, ["caches", "events", "unknown"])
    assert isinstance(outcome.exception, CacheError)
    assert "store 'unknown' has no events" in str(outcome.exception)
    assert not store_folder("unknown").exists()


def test_a_file_that_can_not_be_written_is_an_error_that_names_it(
    photos: str, tmp_path: Path
) -> None:
    output = tmp_path / "no folder" / "events.csv"
    outcome = CliRunner().invoke(app, ["caches", "events", photos, "--output", str(output)])
    assert isinstance(outcome.exception, CacheError)
    assert str(output) in str(outcome.exception)
