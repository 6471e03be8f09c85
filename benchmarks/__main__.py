"""`python -m benchmarks`: measures, shows progress, ends with a table and JSON."""

from __future__ import annotations

import os

import typer

from benchmarks.autocaching import autocaching
from benchmarks.beside_stock import bench
from benchmarks.caching import caching
from benchmarks.scaling.autoscaling import autoscaling
from benchmarks.scaling.cost import cost
from benchmarks.scaling.joint import joint
from benchmarks.scaling.simulate import simulate
from benchmarks.scaling.starts import starts
from benchmarks.scaling.tenancy import multi_tenancy
from benchmarks.scaling.thresholds import thresholds

ENVIRONMENT = {
    "CUDA_VISIBLE_DEVICES": "-1",
    "TF_CPP_MIN_LOG_LEVEL": "2",
    # All sides are on this machine: no proxy may stand between.
    "no_proxy": "localhost,127.0.0.1",
    "no_grpc_proxy": "localhost,127.0.0.1",
    # Our processes are paused while stock's run.
    "CACHEW_AGENT_TIMEOUT_S": "600",
}
"""Of this process and all that it starts; set before TensorFlow is imported."""

app = typer.Typer(add_completion=False)
app.callback(invoke_without_command=True)(bench)
app.command()(caching)
app.command()(autocaching)
app.command()(autoscaling)
app.command()(simulate)
app.command()(thresholds)
app.command()(cost)
app.command(name="multi_tenancy")(multi_tenancy)
app.command()(joint)
app.command()(starts)


def main() -> None:
    """Runs the benchmarks' command line."""
    os.environ.update(ENVIRONMENT)
    app()


if __name__ == "__main__":
    main()
