"""What an import costs: a scheduler or a compiler must not pay for what only trainers need."""

import json
import subprocess
import sys

import pytest

HEAVY = {"tensorflow", "keras", "kfp", "airflow", "kubernetes"}

PRINT_LOADED = "import json, sys; print(json.dumps(sorted(sys.modules)))"


def loaded_after(statement: str) -> set[str]:
    """Top-level names in `sys.modules` of a fresh interpreter that ran the statement."""
    output = subprocess.run(
        [sys.executable, "-c", f"{statement}; {PRINT_LOADED}"],
        capture_output=True,
        check=True,
        text=True,
        timeout=120,
    ).stdout
    return {name.partition(".")[0] for name in json.loads(output.splitlines()[-1])}


@pytest.mark.parametrize(
    ("module", "allowed"),
    [
        ("cachew_core", set()),
        ("cachew_core.errors", set()),
        ("cachew_core.rpc", set()),
        ("cachew_core.service_record", set()),
        ("cachew_manifests", set()),
        ("cachew_pipelines", set()),
    ],
)
def test_importing_a_light_module_brings_no_heavy_library(module: str, allowed: set[str]) -> None:
    assert loaded_after(f"import {module}") & HEAVY <= allowed


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
