"""What Airflow and its users find once the package is installed."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module

from airflow.providers_manager import ProvidersManager

from cachew_core.version import __version__

DAG_FILE_IMPORTS = (
    "import json, sys; import cachew_operators as operators;"
    "[getattr(operators, name) for name in operators.__all__];"
    "print(json.dumps(sorted(sys.modules)))"
)


def test_airflow_lists_the_provider_with_the_packages_version() -> None:
    provider = ProvidersManager().providers["cachew-service"]
    assert provider.version == __version__
    assert provider.data["name"] == "Cachew"


def test_the_modules_that_the_provider_names_hold_the_operators() -> None:
    (entry,) = ProvidersManager().providers["cachew-service"].data["operators"]
    found = {name for module in entry["python-modules"] for name in dir(import_module(module))}
    assert {"CachewServiceOperator", "CachewTeardownOperator", "CachewTrainingOperator"} <= found


def test_a_dag_file_that_uses_the_operators_imports_no_tensorflow() -> None:
    process = subprocess.run(
        [sys.executable, "-c", DAG_FILE_IMPORTS], capture_output=True, check=True, timeout=120
    )
    modules = set(json.loads(process.stdout.splitlines()[-1]))
    assert "cachew_operators.training" in modules
    assert not modules & {"tensorflow", "keras", "kfp"}


def test_the_package_and_the_trainings_side_import_without_airflow() -> None:
    code = (
        "import sys; sys.modules['airflow'] = None;"
        "import cachew_operators.call, cachew_operators.guard, cachew_operators.provider"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_without_airflow_an_operators_name_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['airflow'] = None;"
        "from cachew_operators import CachewServiceOperator"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60
    )
    assert "pip install 'cachew-service[airflow]'" in process.stderr
