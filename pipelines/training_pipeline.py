"""A complete Kubeflow pipeline: cuts photographs into records and trains on them through Cachew.

The service is set up and taken down around the training: the teardown is the exit task, so it runs
when the training fails, too. Run it on this machine, or compile it:

    python -m cachew_pipelines.training_pipeline run outputs
    python -m cachew_pipelines.training_pipeline compile training_pipeline.yaml
"""

# No `from __future__ import annotations` here: kfp reads annotations as they are.
import tempfile
import warnings
from pathlib import Path
from typing import Annotated
from uuid import uuid4

import typer
from kfp import compiler, dsl
from kfp import local as kfp_local

from cachew_components import CachewService, CachewTeardown, stop_signals
from cachew_components.image import IMAGE
from cachew_core.cluster import down
from cachew_pipelines.training_report import LOCAL_REPORTS

app = typer.Typer(
    help="Train on photographs through Cachew, in a Kubeflow pipeline.",
    pretty_exceptions_enable=False,
)


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def make_photograph_records(
    records: dsl.Output[dsl.Dataset], crops: int, files: int, data_dir: str
) -> None:
    """Makes TFRecord files of labelled crops of photographs.

    Args:
        records: In its metadata, the folder of the TFRecord files and the labels' names.
        crops: How many records in all.
        files: How many files they are spread over.
        data_dir: Keeps the files for later runs. Empty: they belong to this run.
    """
    from pathlib import Path

    from cachew_pipelines.photographs import PHOTOGRAPHS, kept_records

    folder = kept_records(Path(data_dir or records.path), crops=int(crops), files=int(files))
    records.metadata.update(folder=str(folder), labels=list(PHOTOGRAPHS), crops=crops, files=files)


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def train_classifier(
    records: dsl.Input[dsl.Dataset],
    report: dsl.Output[dsl.Artifact],
    endpoint: str,
    epochs: int,
    batch_size: int,
) -> None:
    """Trains a small image classifier on what the service prepares.

    Args:
        records: What `make_photograph_records` made.
        report: How each epoch went, as JSON.
        endpoint: Of the Cachew service.
        epochs: Passes over the data.
        batch_size: Records in a batch.
    """
    import logging
    import sys
    from pathlib import Path

    from cachew_pipelines.classifier import train

    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    trained = train(
        sorted(str(path) for path in Path(records.metadata["folder"]).glob("*.tfrecord")),
        labels=records.metadata["labels"],
        service=endpoint,
        epochs=epochs,
        batch_size=batch_size,
    )
    report.metadata.update(fingerprint=trained.fingerprint, accuracy=trained.epochs[-1].accuracy)
    Path(report.path).write_text(trained.model_dump_json(indent=2) + "\n")


@dsl.pipeline(
    name="cachew-photographs",
    description="Trains an image classifier on data that a Cachew service prepares.",
)
def training_pipeline(
    service_name: str = "",
    workers: int = 2,
    epochs: int = 3,
    batch_size: int = 32,
    crops: int = 1600,
    files: int = 16,
    idle_timeout_s: float = 1800.0,
    data_dir: str = "",
    cache_policy: str = "",
    store: str = "",
    cache_dir: str = "",
) -> None:
    """The pipeline.

    For a run to start with what an earlier one stored, both need the same `data_dir`, the same
    `store` or `cache_dir`.

    Args:
        service_name: The service's name. Empty: made from the run.
        workers: How many workers the service has.
        epochs: Passes over the data.
        batch_size: Records in a batch.
        crops: How many records the data set has.
        files: How many files they are spread over.
        idle_timeout_s: Should the teardown not run, the service ends itself after so long without
            a client.
        data_dir: Keeps the records for later runs. Empty: each run makes its own.
        cache_policy: What the service stores. Empty: its settings.
        store: The name of what outlives the service. Empty: one store of all such runs.
        cache_dir: A folder for the cache instead of the store's own, or gs://bucket/prefix. Empty:
            the service's settings.
    """
    with dsl.ExitHandler(CachewTeardown(name=service_name), name="with-cachew"):
        data = make_photograph_records(crops=crops, files=files, data_dir=data_dir)
        service = CachewService(
            name=service_name,
            workers=workers,
            idle_timeout_s=idle_timeout_s,
            cache_policy=cache_policy,
            store=store,
            cache_dir=cache_dir,
        ).after(data)
        train_classifier(
            records=data.outputs["records"],
            endpoint=service.outputs["endpoint"],
            epochs=epochs,
            batch_size=batch_size,
        )


def run_locally(
    outputs: Path, *, service_name: str | None = None, **parameters: float | str
) -> Path:
    """Runs the pipeline on this machine, without a cluster, and returns the training's report.

    On Ctrl-C and SIGTERM kfp runs no exit task, so the service is taken down here in any case.

    Args:
        outputs: folder that gets what the steps wrote, in a folder for each run.
        service_name: the service's name; None takes a fresh one.
        **parameters: of `training_pipeline`.

    Returns:
        Path of the JSON file with a `TrainingReport`.

    Raises:
        RuntimeError: a step failed; names the step. Its output went to standard output.
    """
    name = service_name or f"photographs-{uuid4().hex[:8]}"
    before = set(outputs.glob(LOCAL_REPORTS))
    with (
        tempfile.TemporaryDirectory(prefix="kfp-workspace-") as workspace,
        stop_signals.as_exception(),
    ):
        kfp_local.init(
            kfp_local.SubprocessRunner(use_venv=False),
            pipeline_root=str(outputs),
            workspace_root=str(Path(workspace, "run")),
        )
        try:
            with warnings.catch_warnings():
                # kfp guesses from an image's name whether it holds Python: ours does. And it tells
                # what of a task matters on a cluster only: names and labels.
                warnings.filterwarnings("ignore", "You may be attemping to run a task")
                warnings.filterwarnings("ignore", ".*no effect in the current local runner")
                training_pipeline(service_name=name, **parameters)
        finally:
            with stop_signals.deferred():
                down(name)
    (report,) = set(outputs.glob(LOCAL_REPORTS)) - before
    return report


@app.command()
def run(
    outputs: Annotated[Path, typer.Argument(help="Folder that gets what the steps write.")],
    service_name: Annotated[
        str | None, typer.Option(help="Of the service; default: a fresh one.")
    ] = None,
    workers: Annotated[int, typer.Option(min=1)] = 2,
    epochs: Annotated[int, typer.Option(min=1)] = 3,
    batch_size: Annotated[int, typer.Option(min=1)] = 32,
    crops: Annotated[int, typer.Option(min=1)] = 1600,
    files: Annotated[int, typer.Option(min=1)] = 16,
    idle_timeout_s: Annotated[float, typer.Option(min=1)] = 1800.0,
    data_dir: Annotated[
        str, typer.Option(help="Keeps the records for later runs; default: each run makes its own.")
    ] = "",
    cache_policy: Annotated[
        str, typer.Option(help="What the service stores; default: its settings.")
    ] = "",
    store: Annotated[
        str, typer.Option(help="Of what outlives the service; default: the service's name.")
    ] = "",
    cache_dir: Annotated[
        str, typer.Option(help="Of the cache; default: the service's settings.")
    ] = "",
) -> None:
    """Run the pipeline on this machine."""
    try:
        report = run_locally(
            outputs,
            service_name=service_name,
            workers=workers,
            epochs=epochs,
            batch_size=batch_size,
            crops=crops,
            files=files,
            idle_timeout_s=idle_timeout_s,
            data_dir=data_dir,
            cache_policy=cache_policy,
            store=store,
            cache_dir=cache_dir,
        )
    except RuntimeError as error:
        typer.echo(error, err=True)
        raise typer.Exit(1) from None
    typer.echo(report)


@app.command("compile")
def compile_pipeline(
    package: Annotated[Path, typer.Argument(help="The YAML file to write.")],
) -> None:
    """Compile the pipeline for a Kubeflow cluster."""
    compiler.Compiler().compile(training_pipeline, str(package))


if __name__ == "__main__":
    app()
