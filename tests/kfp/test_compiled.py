"""What a cluster gets: the compiled pipeline has what setup and teardown depend on."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from kfp import compiler, components, dsl

import cachew_components
from cachew_components import CachewService, CachewTeardown
from cachew_components.image import IMAGE
from cachew_core import __version__
from cachew_pipelines.training_pipeline import training_pipeline

SETUP, TEARDOWN = "cachew-service", "cachew-teardown"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The training pipeline, compiled."""
    path = tmp_path_factory.mktemp("compiled") / "pipeline.yaml"
    compiler.Compiler().compile(training_pipeline, str(path))
    return path


@pytest.fixture(scope="module")
def specification(package: Path) -> dict[str, Any]:
    """The pipeline itself."""
    specification: dict[str, Any] = next(yaml.safe_load_all(package.read_text()))
    return specification


@pytest.fixture(scope="module")
def tasks(specification: dict[str, Any]) -> dict[str, Any]:
    """All its tasks by name, inside and outside of the exit handler."""
    groups = [specification["root"], *specification["components"].values()]
    return {
        name: task
        for group in groups
        if "dag" in group
        for name, task in group["dag"]["tasks"].items()
    }


@pytest.mark.parametrize("name", [SETUP, TEARDOWN])
def test_setup_and_teardown_are_never_taken_from_the_cache(
    tasks: dict[str, Any], name: str
) -> None:
    assert not tasks[name]["cachingOptions"].get("enableCache", False)


def test_the_teardown_runs_however_the_group_ended(tasks: dict[str, Any]) -> None:
    (group,) = tasks[TEARDOWN]["dependentTasks"]
    assert tasks[TEARDOWN]["triggerPolicy"]["strategy"] == "ALL_UPSTREAM_TASKS_COMPLETED"
    assert tasks[group]["componentRef"]["name"].startswith("comp-exit-handler")


def test_the_teardown_reads_no_output_of_another_task(tasks: dict[str, Any]) -> None:
    parameters = tasks[TEARDOWN]["inputs"]["parameters"]
    assert parameters
    kinds = {kind for source in parameters.values() for kind in source}
    assert kinds <= {"runtimeValue", "componentInputParameter"}
    assert "artifacts" not in tasks[TEARDOWN]["inputs"]


def test_setup_and_teardown_make_the_name_from_the_same_things(tasks: dict[str, Any]) -> None:
    def naming(task: str) -> list[str]:
        parameters = tasks[task]["inputs"]["parameters"]
        run = [parameters[name]["runtimeValue"]["constant"] for name in ("run_name", "run_id")]
        # Inside of the exit handler's group a parameter of the pipeline has a prefix.
        chosen = parameters["name"]["componentInputParameter"].removeprefix("pipelinechannel--")
        return [*run, chosen]

    # The backend replaces a placeholder only where it is all of the value.
    assert naming(SETUP) == ["{{$.pipeline_job_name}}", "{{$.pipeline_job_uuid}}", "service_name"]
    assert naming(TEARDOWN) == naming(SETUP)


def test_every_step_runs_in_the_one_image_and_installs_nothing(
    specification: dict[str, Any],
) -> None:
    containers = [
        executor["container"] for executor in specification["deploymentSpec"]["executors"].values()
    ]
    assert len(containers) == 4
    assert {container["image"] for container in containers} == {IMAGE}
    assert "pip install" not in str(containers)


def test_setup_and_teardown_have_names_and_labels_that_people_find(
    package: Path, tasks: dict[str, Any]
) -> None:
    assert tasks[SETUP]["taskInfo"]["name"] == "Start Cachew"
    assert tasks[TEARDOWN]["taskInfo"]["name"] == "Take Cachew down"
    _, platforms = yaml.safe_load_all(package.read_text())
    executors = platforms["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    for name in (SETUP, TEARDOWN):
        labels = executors[f"exec-{name}"]["podMetadata"]["labels"]
        assert labels["app.kubernetes.io/part-of"] == "cachew"


def test_the_training_comes_after_the_service_and_reads_its_endpoint(
    tasks: dict[str, Any],
) -> None:
    training = tasks["train-classifier"]
    assert SETUP in training["dependentTasks"]
    assert training["inputs"]["parameters"]["endpoint"]["taskOutputParameter"] == {
        "outputParameterKey": "endpoint",
        "producerTask": SETUP,
    }


def test_the_compiled_pipeline_loads_again(package: Path) -> None:
    loaded = components.load_component_from_file(str(package))
    assert loaded.name == "cachew-photographs"
    assert {"service_name", "workers", "epochs"} <= set(loaded.component_spec.inputs)


@pytest.mark.parametrize(
    ("variables", "image"),
    [
        ({}, f"cachew-service:{__version__}"),
        ({"CACHEW_IMAGE": "registry.example.com/cachew:1"}, "registry.example.com/cachew:1"),
    ],
    ids=["default", "CACHEW_IMAGE"],
)
def test_the_image_is_the_one_named_when_compiling(
    tmp_path: Path, variables: dict[str, str], image: str
) -> None:
    path = tmp_path / "pipeline.yaml"
    subprocess.run(
        [sys.executable, "-m", "cachew_pipelines.training_pipeline", "compile", str(path)],
        env={
            **{key: value for key, value in os.environ.items() if key != "CACHEW_IMAGE"},
            **variables,
        },
        check=True,
        timeout=120,
    )
    executors = next(yaml.safe_load_all(path.read_text()))["deploymentSpec"]["executors"]
    assert {executor["container"]["image"] for executor in executors.values()} == {image}


def test_the_name_may_be_left_to_the_run(tmp_path: Path) -> None:
    @dsl.pipeline(name="unnamed")
    def unnamed() -> None:
        with dsl.ExitHandler(CachewTeardown()):
            CachewService()

    path = tmp_path / "unnamed.yaml"
    compiler.Compiler().compile(unnamed, str(path))
    compiled = next(yaml.safe_load_all(path.read_text()))
    parameters = compiled["root"]["dag"]["tasks"][TEARDOWN]["inputs"]["parameters"]
    assert parameters["name"]["runtimeValue"]["constant"] == ""


def test_an_unknown_component_is_an_attribute_error_that_names_it() -> None:
    with pytest.raises(AttributeError, match="no attribute 'CachewServices'"):
        _ = cachew_components.CachewServices
