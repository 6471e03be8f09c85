"""A folder of its own for local services."""

from pathlib import Path

import pytest


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where local services and their stores lie."""
    folder = tmp_path / "home"
    monkeypatch.setenv("CACHEW_HOME", str(folder))
    return folder
