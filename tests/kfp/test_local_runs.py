"""Pipelines run by kfp.local: a real service comes up in a step, serves the next, and goes."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from kfp import dsl, local

from cachew_components import CachewService, CachewTeardown
from cachew_components.image import IMAGE
from cachew_core.cluster import list_services, status
from cachew_pipelines.training_pipeline import run_locally

pytestmark = [
    # A service and each step import TensorFlow: seconds on a free machine, minutes on a busy one.
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore:You may be attemping to run a task"),
    pytest.mark.filterwarnings("ignore:.*no effect in the current local runner"),
]


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def read_numbers(endpoint: str, epochs: int) -> int:
    """Sums 0 to 99 over the epochs, through the service."""
    import tensorflow as tf

    import cachew_core as cachew

    dataset = tf.data.Dataset.range(100).apply(cachew.distribute(service=endpoint))
    return sum(int(number) for _ in range(epochs) for number in dataset)


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def fail_while_reading(endpoint: str) -> None:
    """Fails in the middle of an epoch, with the service in use."""
    import tensorflow as tf

    import cachew_core as cachew

    dataset = tf.data.Dataset.range(100).apply(cachew.distribute(service=endpoint))
    for number in dataset:
        raise RuntimeError(f"the training failed after element {int(number)}")


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def write_down(endpoint: str, file: str) -> None:
    """Leaves the endpoint in a file that the test reads."""
    from pathlib import Path

    Path(file).write_text(endpoint)


@pytest.fixture
def outputs(tmp_path: Path, home: Path) -> Path:
    """Where kfp.local, ready to run pipelines, puts what steps write."""
    folder = tmp_path / "outputs"
    local.init(
        local.SubprocessRunner(use_venv=False),
        pipeline_root=str(folder),
        workspace_root=str(tmp_path / "workspace"),
    )
    return folder


def steps_that_ran(outputs: Path) -> set[str]:
    """Names of the steps of the one run in the folder."""
    (run,) = outputs.iterdir()
    return {step.name for step in run.iterdir()}


def test_a_step_reads_through_the_service_that_the_pipeline_brought_up(
    outputs: Path, leftovers: Callable[[], list[str]]
) -> None:
    @dsl.pipeline(name="numbers")
    def numbers(workers: int, epochs: int) -> None:
        with dsl.ExitHandler(CachewTeardown()):
            service = CachewService(workers=workers)
            read_numbers(endpoint=service.outputs["endpoint"], epochs=epochs)

    # Parameters of a pipeline are floats once they reach a step, whatever they were.
    numbers(workers=2, epochs=2)

    (result,) = outputs.glob("*/read-numbers/executor_output.json")
    assert json.loads(result.read_text())["parameterValues"]["Output"] == 2 * sum(range(100))
    (described,) = outputs.glob("*/cachew-service/service")
    service = json.loads(described.read_text())
    (endpoint,) = outputs.glob("*/cachew-service/endpoint")
    assert service["endpoint"] == endpoint.read_text()
    assert service["workers"] == 2
    assert service["name"].startswith("numbers-")
    assert leftovers() == []


def test_a_failing_training_fails_the_pipeline_and_leaves_no_service(
    outputs: Path, leftovers: Callable[[], list[str]]
) -> None:
    @dsl.pipeline(name="failing")
    def failing() -> None:
        with dsl.ExitHandler(CachewTeardown()):
            service = CachewService(workers=1)
            fail_while_reading(endpoint=service.outputs["endpoint"])

    with pytest.raises(RuntimeError, match="fail-while-reading"):
        failing()
    assert "cachew-teardown" in steps_that_ran(outputs)
    assert leftovers() == []


def test_a_setup_that_fails_fails_the_pipeline_and_the_teardown_does_not_mind(
    outputs: Path, leftovers: Callable[[], list[str]]
) -> None:
    @dsl.pipeline(name="refused")
    def refused() -> None:
        with dsl.ExitHandler(CachewTeardown(name="still-fine")):
            CachewService(name="still-fine", workers=0)

    with pytest.raises(RuntimeError, match="cachew-service"):
        refused()
    assert "cachew-teardown" in steps_that_ran(outputs)
    assert leftovers() == []


def test_a_service_without_its_teardown_stays_and_any_later_teardown_ends_it(
    outputs: Path, tmp_path: Path, leftovers: Callable[[], list[str]]
) -> None:
    found = tmp_path / "endpoint"

    @dsl.pipeline(name="left-running")
    def left_running() -> None:
        service = CachewService(name="shared", workers=1)
        write_down(endpoint=service.outputs["endpoint"], file=str(found))

    @dsl.pipeline(name="taken-down")
    def taken_down() -> None:
        CachewTeardown(name="shared").after(CachewTeardown(name="shared"))

    left_running()
    endpoint = found.read_text()
    assert status(endpoint).name == "shared"
    # A second run with the name adopts the service.
    left_running()
    assert found.read_text() == endpoint
    assert [service.name for service in list_services()] == ["shared"]
    taken_down()
    assert leftovers() == []


def test_a_training_pipeline_that_fails_says_which_step_and_leaves_no_service(
    tmp_path: Path, home: Path, leftovers: Callable[[], list[str]]
) -> None:
    with pytest.raises(RuntimeError, match="make-photograph-records"):
        run_locally(tmp_path / "outputs", crops=1, files=2)
    assert leftovers() == []
