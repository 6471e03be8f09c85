"""The generated code of the gRPC messages is what the message files say."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GENERATOR = ROOT / ".venvs" / "proto" / "bin" / "python"


def test_the_generated_messages_are_fresh(tmp_path: Path) -> None:
    if not GENERATOR.exists() and "CI" not in os.environ:
        pytest.skip(f"{GENERATOR} is missing: `make .venvs/proto/.ready` builds it")
    subprocess.run(
        [ROOT / "tools" / "generate_protos", GENERATOR, tmp_path],
        cwd=ROOT,
        check=True,
        timeout=120,
    )
    fresh = {path.name: path.read_text() for path in (tmp_path / "cachew_core/proto").iterdir()}
    assert fresh
    checked_in = {
        path.name: path.read_text()
        for path in (ROOT / "cachew_core" / "proto").iterdir()
        if "_pb2" in path.name
    }
    assert checked_in == fresh, "run `make proto`"
