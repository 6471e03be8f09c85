"""The log of events."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest

from cachew_core.dispatcher.events import event, stop_events, write_events

log = logging.getLogger("cachew_core.dispatcher.test")


@pytest.fixture
def quiet_log(monkeypatch: pytest.MonkeyPatch) -> Iterator[StringIO]:
    """What people see, who asked for warnings only."""
    root, package, shown = logging.getLogger(), logging.getLogger("cachew_core"), StringIO()
    monkeypatch.setattr(root, "handlers", [logging.StreamHandler(shown)])
    before = root.level, package.level
    root.setLevel(logging.WARNING)
    package.setLevel(logging.NOTSET)
    yield shown
    root.setLevel(before[0])
    package.setLevel(before[1])


def test_events_are_written_whatever_people_want_to_see(
    quiet_log: StringIO, tmp_path: Path
) -> None:
    path = tmp_path / "logs" / "events.jsonl"
    handler = write_events(path)
    log.info("job %s ended", "one", extra=event("job_ended", job="one"))
    log.info("no event")
    log.warning("a warning")
    stop_events(handler)
    log.info("too late", extra=event("job_ended", job="two"))
    [line] = path.read_text().splitlines()
    written = json.loads(line)
    assert written.pop("at").endswith("+00:00")
    assert written == {"kind": "job_ended", "job": "one", "text": "job one ended"}
    assert quiet_log.getvalue() == "a warning\n"
