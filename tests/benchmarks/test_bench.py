"""The benchmarks run, from the command to the table and the file. What they measure is not
asserted.
"""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from cachew_core.cluster import down, list_services

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 540
"""Five processes import TensorFlow, which takes minutes on a busy machine."""

CASE = "int64 elements, 1 worker"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CACHEW_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def bench(*flags: str, report: Path, kind: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks", *[kind] * bool(kind)]
    command += ["--quick", "--report", str(report), *flags]
    try:
        return subprocess.run(
            command,
            cwd=ROOT,
            env=dict(os.environ),
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_S,
        )
    finally:
        for service in list_services():
            down(service.name)


def processes_with(text: str) -> list[psutil.Process]:
    return [
        process
        for process in psutil.process_iter(["cmdline"])
        if text in " ".join(process.info["cmdline"] or [])
    ]


@pytest.mark.timeout(TIMEOUT_S + 60)
def test_a_quick_benchmark_prints_a_table_and_writes_json(home: Path, tmp_path: Path) -> None:
    before = set(processes_with("benchmarks.stock_process"))
    path = tmp_path / "reports" / "bench.json"
    result = bench("--case", CASE, report=path)
    assert result.returncode == 0, result.stderr[-4000:]
    assert "stock / stock" in result.stdout
    assert CASE in result.stdout

    report = json.loads(path.read_text())
    assert report["quick"] is True
    assert report["cores"] >= 1
    assert {"python", "cachew", "grpcio"} <= report["versions"].keys()
    [case] = report["cases"]
    assert case["name"] == CASE
    assert case["pairs"] == len(case["ours_runs"]) == len(case["stock_runs"]) >= 12
    for interval in (case["ratio"], case["noise"]):
        assert 0 < interval["low"] <= interval["ratio"] <= interval["high"] < math.inf
    assert isinstance(case["holds"], bool)

    assert set(processes_with("benchmarks.stock_process")) <= before


def test_a_case_that_is_not_there_is_refused_before_anything_starts(
    home: Path, tmp_path: Path
) -> None:
    result = bench("--case", "telepathy", report=tmp_path / "bench.json")
    assert result.returncode == 2
    assert "telepathy" in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.timeout(TIMEOUT_S + 60)
def test_a_quick_study_of_autocaching_has_all_policies_a_table_and_a_plot(
    home: Path, tmp_path: Path
) -> None:
    lake, cache = tmp_path / "lake", tmp_path / "cache"
    lake.mkdir()
    cache.mkdir()
    path = tmp_path / "autocaching.json"
    folders = ["--lake", str(lake), "--cache", str(cache)]
    result = bench(*folders, "--wait", "5", report=path, kind="autocaching")
    assert result.returncode == 0, result.stderr[-4000:]
    assert "auto chose" in result.stdout
    assert path.with_suffix(".png").read_bytes().startswith(b"\x89PNG")

    swept, other = json.loads(path.read_text())["studies"]
    assert (swept["sleep_ms"], swept["expands"], other["expands"]) == (5, False, True)
    for study in (swept, other):
        policies = {policy["policy"]: policy for policy in study["policies"]}
        assert policies.keys() == {"compute", "source", "full", "auto"}
        assert all(policy["batch_ms"] > 0 for policy in policies.values())
        assert policies["compute"]["modes"] == ["COMPUTE"] * 2
        assert policies["source"]["modes"] == ["PUT_SOURCE", "GET_SOURCE", "GET_SOURCE"]
        assert policies["full"]["modes"] == ["PUT", "GET", "GET"]
        assert policies["auto"]["modes"][0] == "PROFILE"
        assert {model["model"] for model in study["models"]} == {"overlapped", "paper"}


@pytest.mark.timeout(TIMEOUT_S + 60)
def test_a_quick_ratio_of_storing_is_measured_in_pairs(home: Path, tmp_path: Path) -> None:
    path = tmp_path / "caching.json"
    result = bench("--case", "writing", report=path, kind="caching")
    assert result.returncode == 0, result.stderr[-4000:]
    [case] = json.loads(path.read_text())["cases"]
    assert case["sides"] == ["PUT", "COMPUTE"]
    assert len(case["runs"]) >= 6
    assert 0 < case["low"] <= case["ratio"] <= case["high"] < math.inf


def test_a_study_with_half_of_its_storage_is_refused(home: Path, tmp_path: Path) -> None:
    result = bench("--lake", str(tmp_path), report=tmp_path / "a.json", kind="autocaching")
    assert result.returncode == 2
    assert "--cache" in result.stderr
