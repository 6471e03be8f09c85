"""Where benchmarks print."""

from __future__ import annotations

from rich.console import Console

LEAST_WIDTH = 120
"""Columns of a table, where it goes to a file."""


def new_console() -> Console:
    """The terminal, or a file that is wide enough for the tables."""
    console = Console()
    if not console.is_terminal:
        console.width = LEAST_WIDTH
    return console
