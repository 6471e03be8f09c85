"""An Airflow of our own, in a temporary place that is set before Airflow is imported."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

HERE = Path(__file__).parent
AIRFLOW_HOME = Path(tempfile.mkdtemp(prefix="cachew-airflow-"))
DAGS_FOLDER = AIRFLOW_HOME / "dags"

os.environ.update(
    AIRFLOW_HOME=str(AIRFLOW_HOME),
    AIRFLOW__CORE__DAGS_FOLDER=str(DAGS_FOLDER),
    AIRFLOW__CORE__LOAD_EXAMPLES="False",
    AIRFLOW__DATABASE__SQL_ALCHEMY_CONN=f"sqlite:///{AIRFLOW_HOME}/airflow.db",
    # An Airflow 2 that is asked for no metrics warns about their unit all the same.
    AIRFLOW__METRICS__TIMER_UNIT_CONSISTENCY="True",
)
# Airflow uses names that it has deprecated itself.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import cachew_operators.training  # noqa: F401

from cachew_core import cluster  # noqa: E402

DEADLINE_S = 120.0
"""Far more than anything takes, since the machine may be busy."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("default"))


def pytest_sessionfinish() -> None:
    shutil.rmtree(AIRFLOW_HOME, ignore_errors=True)


@pytest.fixture
def cachew_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, eventually: Callable[..., None]
) -> Iterator[Path]:
    """A place for services that no other test sees; none of them outlives the test."""
    monkeypatch.setenv("CACHEW_HOME", str(tmp_path))
    yield tmp_path
    for service in cluster.list_services():
        cluster.down(service.name)
    eventually(lambda: not _processes_of(tmp_path), "no process of a service is left")


def _processes_of(home: Path) -> list[psutil.Process]:
    return [process for process in psutil.process_iter() if _carries(process, home)]


def _carries(process: psutil.Process, home: Path) -> bool:
    try:
        own = process.pid == os.getpid()
        return not own and process.environ().get("CACHEW_HOME") == str(home)
    except (psutil.Error, OSError):
        return False


@pytest.fixture(scope="session")
def _database() -> None:
    DAGS_FOLDER.mkdir()
    for source in (HERE / "dags").glob("*.py"):
        shutil.copy(source, DAGS_FOLDER)
    example = HERE.parent.parent / "pipelines" / "airflow_training.py"
    shutil.copy(example, DAGS_FOLDER)
    subprocess.run(
        [sys.executable, "-m", "airflow", "db", "migrate"],
        check=True,
        capture_output=True,
        timeout=120,
    )


@pytest.fixture(scope="session")
def dags(_database: None) -> Mapping[str, Any]:
    """The DAGs of the DAGs folder by their ids, parsed as Airflow does it."""
    try:
        from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db
    except ImportError:
        from airflow.models import DagBag

        return dict(_parsed(DagBag(DAGS_FOLDER, include_examples=False)))

    from airflow.dag_processing.bundles.manager import DagBundlesManager

    bag = DagBag(DAGS_FOLDER, bundle_path=DAGS_FOLDER, bundle_name="dags-folder")
    DagBundlesManager().sync_bundles_to_db()
    sync_bag_to_db(bag, "dags-folder", None)
    return dict(_parsed(bag))


def _parsed(bag: Any) -> Mapping[str, Any]:
    assert bag.import_errors == {}
    return bag.dags


@pytest.fixture
def run_dag(dags: Mapping[str, Any], cachew_home: Path) -> Callable[..., Any]:
    """Runs a DAG of the DAGs folder in this process and returns its run."""

    def run(dag_id: str, **params: Any) -> Any:
        return dags[dag_id].test(run_conf=params)

    return run


@pytest.fixture
def eventually() -> Callable[..., None]:
    """Waits until something is so."""

    def wait(is_so: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not is_so():
            assert time.monotonic() < deadline, f"after {DEADLINE_S:g} s, still not so: {what}"
            time.sleep(0.05)

    return wait
