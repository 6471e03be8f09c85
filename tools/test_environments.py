"""Runs the tests in each environment that they need, and says at the end what ran where.

Airflow 2 and 3, and TensorFlow 2.19 and 2.21, can't live in one environment. The main one runs
every test; each other one runs the tests that are about it. `make test` builds them and calls this.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
NO_TEST_RAN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """One environment and the tests that are its own."""

    title: str
    folder: str
    tests: tuple[str, ...]
    peer: str | None = None
    """Folder of the environment that is the other side in tests of TensorFlow pairs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What pytest did in one environment."""

    exit_code: int
    passed: int = 0
    failed: int = 0
    skipped: int = 0


ENVIRONMENTS = (
    Environment(
        title="all in one (Airflow 3, TensorFlow 2.21)",
        folder=".venv",
        tests=("tests",),
        peer=".venvs/tf219",
    ),
    # Airflow 2 pins an old SQLAlchemy, with which the metadata store has to work, too.
    Environment(
        title="Airflow 2.11", folder=".venvs/airflow2", tests=("tests/airflow", "tests/metadata")
    ),
    Environment(
        title="TensorFlow 2.19",
        folder=".venvs/tf219",
        tests=("tests/stock", "tests/tf_pair"),
        peer=".venv",
    ),
)


def main() -> int:
    """Returns the process's exit code: 0 if tests ran in every environment and none failed."""
    outcomes = {environment: _run(environment) for environment in ENVIRONMENTS}
    print()
    for environment, outcome in outcomes.items():
        remark = "" if outcome.exit_code in (0, 1) else f" (pytest ended with {outcome.exit_code})"
        if outcome.exit_code == NO_TEST_RAN:
            remark = " (no test was found for it)"
        print(
            f"{environment.title}: {outcome.passed} passed, {outcome.failed} failed, "
            f"{outcome.skipped} skipped{remark}"
        )
    passed, failed, skipped = (
        sum(getattr(outcome, kind) for outcome in outcomes.values())
        for kind in ("passed", "failed", "skipped")
    )
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return int(any(outcome.exit_code for outcome in outcomes.values()))


def _run(environment: Environment) -> Outcome:
    print(f"\n== {environment.title} ==", flush=True)
    variables = dict(os.environ)
    if environment.peer is not None:
        variables["CACHEW_TEST_PEER_PYTHON"] = str(ROOT / environment.peer / "bin/python")
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        pytest = f"{environment.folder}/bin/pytest"
        # Most of the time goes into waiting for processes that import TensorFlow, so two at a time
        # take little more than one. A file's tests share what they start.
        side_by_side = ["--numprocesses=2", "--dist=loadfile"]
        command = [
            pytest,
            *environment.tests,
            f"--junit-xml={report}",
            *side_by_side,
            *sys.argv[1:],
        ]
        exit_code = subprocess.run(command, cwd=ROOT, env=variables, check=False).returncode
        if not report.exists():
            return Outcome(exit_code=exit_code)
        return _count(exit_code, ElementTree.parse(report).getroot())


def _count(exit_code: int, report: ElementTree.Element) -> Outcome:
    suites = list(report.iter("testsuite"))
    tests, failures, errors, skipped = (
        sum(int(suite.get(kind, 0)) for suite in suites)
        for kind in ("tests", "failures", "errors", "skipped")
    )
    failed = failures + errors
    return Outcome(
        exit_code=exit_code, passed=tests - failed - skipped, failed=failed, skipped=skipped
    )


if __name__ == "__main__":
    sys.exit(main())
