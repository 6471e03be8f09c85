"""The page of a service in a real browser, and its metrics as Prometheus reads them."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from prometheus_client.parser import text_string_to_metric_families
from real_service import RealService, eventually

import cachew_core as cachew

HOSTILE = "<img src=x onerror=alert(1)>"
BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealService]:
    """A service with one job, two of whose epochs were read, and the first one stored."""
    folder = tmp_path_factory.mktemp("service")
    (folder / "cache").mkdir()
    flags = "--scaling-policy=auto", f"--cache-dir={folder / 'cache'}"
    with RealService(folder, *flags) as service:
        service.add_agent(2)
        numbers = tf.data.Dataset.range(60).apply(cachew.sleep(40_000))
        dataset = numbers.apply(
            cachew.distribute(service.endpoint, job_name=HOSTILE, cache_policy="put")
        )
        for _ in range(2):
            assert len(list(dataset)) == 60
        eventually(lambda: service.epochs(HOSTILE)[-1].elements >= 59)
        eventually(lambda: len(job_of(service)["samples"]) >= 2)
        eventually(lambda: len(service.status().stored) == 1)
        yield service


def fetch(service: RealService, path: str) -> str:
    with urllib.request.urlopen(service.status().page + path, timeout=30) as answer:
        return str(answer.read().decode())


def job_of(service: RealService) -> dict[str, Any]:
    [job] = json.loads(fetch(service, "/api/status"))["jobs"]
    return dict(job)


def test_its_data_has_samples_beside_the_status(seen: RealService) -> None:
    job = job_of(seen)
    assert job["job_name"] == HOSTILE
    assert len(job["samples"]) >= 2
    assert {"at_s", "workers", "wanted", "batch_ms", "wait_share"} <= job["samples"][0].keys()
    assert any(sample["batch_ms"] for sample in job["samples"])


def test_prometheus_can_read_its_metrics(seen: RealService) -> None:
    families = {f.name: f for f in text_string_to_metric_families(fetch(seen, "/metrics"))}
    [elements] = families["cachew_job_elements"].samples
    assert elements.labels == {"job": HOSTILE}
    assert elements.value >= 119
    [wait] = families["cachew_job_wait_seconds"].samples
    assert wait.value > 1
    states = {s.labels["state"]: s.value for s in families["cachew_workers"].samples}
    assert sum(states.values()) == 2
    epochs = families["cachew_job_epochs"].samples
    assert sum(sample.value for sample in epochs) == 2
    assert families["cachew_job_worker_seconds"].samples[0].value > 0


def test_it_says_that_it_lives(seen: RealService) -> None:
    assert fetch(seen, "/healthz") == "ok\n"


@pytest.mark.skipif(BROWSER is None, reason="no chromium is installed: apt install chromium")
def test_a_browser_shows_jobs_with_their_plots_and_no_text_as_markup(
    seen: RealService, tmp_path: Path
) -> None:
    assert BROWSER is not None
    shown = subprocess.run(
        [
            BROWSER,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            f"--user-data-dir={tmp_path}",
            "--virtual-time-budget=4000",
            "--dump-dom",
            seen.status().page,
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    ).stdout
    assert "&lt;img src=x onerror=alert(1)&gt;: " in shown
    assert "<img" not in shown
    assert shown.count("<svg") == 3
    assert 'class="now"' in shown
    assert "rate_match" in shown
    assert "to begin with" in shown
    assert "<h2>stored: " in shown
    assert f"<td>{seen.status().stored[0].key[:12]}</td>" in shown
