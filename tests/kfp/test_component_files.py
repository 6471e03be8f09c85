"""Each component's description says what its code says."""

import importlib.resources as resources
import re
from importlib import import_module
from importlib.resources.abc import Traversable
from typing import Any

import pytest
import yaml

NAMES = ["cachew_service", "cachew_teardown"]


def folder_of(name: str) -> Traversable:
    """Where the component's files are installed."""
    return resources.files("cachew_components") / name


def component_of(name: str) -> Any:
    """The component, as kfp holds it."""
    return getattr(import_module(f"cachew_components.{name}.component"), name)


@pytest.mark.parametrize("name", NAMES)
def test_the_readme_lists_every_input_with_its_type_and_default(name: str) -> None:
    function = component_of(name).python_func
    inputs = component_of(name).component_spec.inputs or {}
    expected = {
        parameter: (function.__annotations__[parameter].__name__, repr(inputs[parameter].default))
        for parameter in inputs
    }
    inputs_part = (folder_of(name) / "README.md").read_text().partition("## Outputs")[0]
    listed = re.findall(r"^\| `(\w+)` \| `(\w+)` \| `([^`]*)` \|", inputs_part, re.MULTILINE)
    shown = {parameter: (kind, default.replace('"', "'")) for parameter, kind, default in listed}
    assert shown == expected


def test_the_readme_lists_every_output() -> None:
    outputs = component_of("cachew_service").component_spec.outputs
    outputs_part = (
        (folder_of("cachew_service") / "README.md").read_text().partition("## Outputs")[2]
    )
    listed = re.findall(r"^\| `(\w+)` \|", outputs_part, re.MULTILINE)
    assert set(listed) == set(outputs)


@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_is_described_for_the_kubeflow_page(name: str) -> None:
    inputs = component_of(name).component_spec.inputs
    assert [parameter for parameter, spec in inputs.items() if not spec.description] == []


@pytest.mark.parametrize("name", NAMES)
def test_the_metadata_names_the_component_and_its_stability(name: str) -> None:
    metadata = yaml.safe_load((folder_of(name) / "metadata.yaml").read_text())
    assert metadata["name"] == name
    assert metadata["stability"] in {"experimental", "alpha", "beta", "stable"}
    assert metadata["dependencies"]["kubeflow"][0]["name"] == "Pipelines"
    assert metadata["tags"]
    assert metadata["lastVerified"].tzinfo is not None
