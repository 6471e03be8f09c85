"""The log of what happened, for programs: a line of JSON for each event.

Events are log records that carry facts. So each is said once, in one place, and stands in the log
for people, too.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

MOST_BYTES = 16 * 2**20
"""Of the file; a second one of that size has what came before."""

_FACTS = "cachew_event"


def event(kind: str, **facts: object) -> dict[str, Any]:
    """What makes a log record an event: give it to a logger's method as `extra`.

    Args:
        kind: a short word that programs can look for.
        facts: numbers and texts; `job` and `epoch` where it is about these.
    """
    return {_FACTS: {"kind": kind, **facts}}


def write_events(path: Path) -> logging.Handler:
    """Writes the package's events to a file from now on, behind those that are there.

    Returns:
        What does it, for `stop_events`.

    Raises:
        OSError: the file can't be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handler = RotatingFileHandler(path, maxBytes=MOST_BYTES, backupCount=1, encoding="utf-8")
    handler.addFilter(lambda record: hasattr(record, _FACTS))
    handler.setFormatter(_JsonLine())
    package, root = logging.getLogger("cachew_core"), logging.getLogger()
    if package.getEffectiveLevel() > logging.INFO:
        # What people see of the log stays as quiet as they asked for.
        for other in root.handlers:
            other.setLevel(max(other.level, root.level))
        package.setLevel(logging.INFO)
    package.addHandler(handler)
    return handler


def stop_events(handler: logging.Handler) -> None:
    """Ends it."""
    logging.getLogger("cachew_core").removeHandler(handler)
    handler.close()


class _JsonLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        facts: dict[str, object] = getattr(record, _FACTS)
        return json.dumps({"at": at, **facts, "text": record.getMessage()}, default=str)
