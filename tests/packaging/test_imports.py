"""What an import costs: a scheduler or a compiler must not pay for what only trainers need."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = {"tensorflow", "keras", "kfp", "airflow", "kubernetes"}

PRINT_LOADED = "import json, sys; print(json.dumps(sorted(sys.modules)))"


def loaded_after(statement: str, **environment: str) -> set[str]:
    """Top-level names in `sys.modules` of a fresh interpreter that ran the statement."""
    output = subprocess.run(
        [sys.executable, "-c", f"{statement}; {PRINT_LOADED}"],
        env={**os.environ, **environment},
        capture_output=True,
        check=True,
        text=True,
        timeout=120,
    ).stdout
    return {name.partition(".")[0] for name in json.loads(output.splitlines()[-1])}


@pytest.mark.parametrize(
    "module",
    [
        "cachew_core",
        "cachew_core.cli",
        "cachew_core.cluster",
        "cachew_core.worker.agent",
        "cachew_components",
        "cachew_manifests",
        "cachew_operators",
        "cachew_operators.provider",
        "cachew_pipelines",
    ],
)
def test_importing_a_light_module_brings_no_heavy_library(module: str) -> None:
    assert loaded_after(f"import {module}").isdisjoint(HEAVY)


def test_the_kubeflow_components_bring_no_tensorflow_and_no_airflow() -> None:
    loaded = loaded_after("from cachew_components import CachewService, CachewTeardown")
    assert "kfp" in loaded
    assert loaded.isdisjoint({"tensorflow", "keras", "airflow"})


def test_the_airflow_operators_bring_no_tensorflow_and_no_kubeflow(tmp_path: Path) -> None:
    names = "CachewServiceOperator, CachewTrainingOperator, CachewTeardownOperator"
    loaded = loaded_after(f"from cachew_operators import {names}", AIRFLOW_HOME=str(tmp_path))
    assert "airflow" in loaded
    assert loaded.isdisjoint({"tensorflow", "keras", "kfp"})


@pytest.mark.parametrize("module", ["cachew_core.cli", "cachew_core.worker.agent"])
def test_google_cloud_storage_is_imported_with_the_first_bucket_only(module: str) -> None:
    modules = f"import {module}, sys; assert 'google.cloud.storage' not in sys.modules"
    assert "requests" not in loaded_after(modules)


def test_importing_cachew_core_brings_the_standard_library_only() -> None:
    before = loaded_after("pass")
    new = loaded_after("import cachew_core") - before
    assert new - set(sys.stdlib_module_names) == {"cachew_core"}


def test_an_unknown_name_is_an_attribute_error_that_names_it() -> None:
    import cachew_core

    with pytest.raises(AttributeError, match="no attribute 'distribut'"):
        _ = cachew_core.distribut


def test_the_public_names_show_up_in_dir() -> None:
    import cachew_core

    assert {"mark", "distribute", "sleep", "errors"} <= set(dir(cachew_core))


def test_errors_are_reached_through_the_package() -> None:
    import cachew_core as cachew

    assert issubclass(cachew.errors.PipelineError, cachew.errors.CachewError)
