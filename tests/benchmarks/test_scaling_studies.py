"""The studies of scaling run, from the command to table, plot and file. What they measure is not
asserted.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cachew_core.cluster import down, list_services

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 540

pytestmark = pytest.mark.timeout(TIMEOUT_S + 60)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CACHEW_HOME", str(tmp_path / "home"))


def study(name: str, folder: Path, *flags: str) -> tuple[dict[str, Any], str]:
    """What a quick run wrote, and what it printed."""
    report = folder / f"{name}.json"
    command = [sys.executable, "-m", "benchmarks", name, "--quick", "--report", str(report)]
    try:
        result = subprocess.run(
            [*command, *flags],
            cwd=ROOT,
            env=dict(os.environ),
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_S,
        )
    finally:
        left = list_services()
        for service in left:
            down(service.name)
    assert result.returncode == 0, result.stdout + result.stderr
    assert left == []
    assert report.with_suffix(".png").stat().st_size > 0
    written: dict[str, Any] = json.loads(report.read_text())
    assert written["quick"] is True
    return written, result.stdout


def test_autoscaling_compares_static_numbers_ours_and_both_hpas(home: None, tmp_path: Path) -> None:
    written, printed = study("autoscaling", tmp_path, "--work", "sleeping")
    [pipeline] = written["pipelines"]
    names = [way["name"] for way in pipeline["ways"]]
    assert names == [
        *("1 static", "2 static", "auto", "hill climb", "HPA on CPU", "HPA on wait"),
    ]
    assert all(run["seconds"] > 0 for way in pipeline["ways"] for run in way["runs"])
    assert "n* = " in printed
    assert "our excess / its" in printed


def test_thresholds_runs_both_rules(home: None, tmp_path: Path) -> None:
    written, _ = study("thresholds", tmp_path)
    assert [each["policy"] for each in written["records"]] == ["rate_match", "hill_climb"]


def test_simulate_runs_both_rules_and_times_a_round(tmp_path: Path) -> None:
    written, printed = study("simulate", tmp_path)
    assert {case["policy"] for case in written["cases"]} == {"rate_match", "hill_climb"}
    assert written["round_cpu_s"] > 0
    assert "regret" in printed


def test_starts_reads_new_and_known_pipelines(home: None, tmp_path: Path) -> None:
    written, printed = study("starts", tmp_path)
    [run] = written["runs"]
    assert len(run["cold_s"]) == len(run["warm_s"]) == 60
    assert "known: from" in printed


def test_cost_splits_a_training_into_its_phases(home: None, tmp_path: Path) -> None:
    written, printed = study("cost", tmp_path)
    for way in written["ways"]:
        [run] = way["runs"]
        assert [epoch["mode"] for epoch in run["epochs"]] == ["PUT_SOURCE", "GET_SOURCE"]
    assert "HPA on CPU" in printed


def test_multi_tenancy_trains_two_jobs_side_by_side(home: None, tmp_path: Path) -> None:
    written, printed = study("multi_tenancy", tmp_path)
    assert [reading["direct_reads"] for reading in written["readings"]] == ["never", "auto"]
    for reading in written["readings"]:
        [pair] = reading["runs"]
        for job in ("first", "second"):
            assert [epoch["epoch"] for epoch in pair[job]["epochs"]] == [1, 2, 3, 4]
            assert all(epoch["seconds"] > 0 for epoch in pair[job]["epochs"])
    assert "over floor" in printed


def test_joint_shows_a_training_whose_speed_changes(home: None, tmp_path: Path) -> None:
    written, _ = study("joint", tmp_path)
    [run] = written["runs"]
    assert next(epoch["mode"] for epoch in run["epochs"]) == "PROFILE"
    assert len(run["epochs"]) == len(written["steps_ms"]) == 3
