"""The command `cachew`: local services by name, and one process of a service in the foreground."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Iterator
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.live import Live

from cachew_core import cluster, flags, tables
from cachew_core.cluster.document import status_document
from cachew_core.cluster.runs import last_one_tidies_up
from cachew_core.errors import CachewError, SettingsError
from cachew_core.settings import AgentSettings, DispatcherSettings, LogSettings
from cachew_core.version import __version__

app = typer.Typer(
    name="cachew",
    help="Machine learning input data processing as a service.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)

_errors = Console(stderr=True, soft_wrap=True, highlight=False, markup=False)
_output = Console(soft_wrap=True, highlight=False, markup=False)

_WATCH_INTERVAL_S = 1.0
_pause = time.sleep

_OPEN_PORTS = (
    "note: the workers' data ports are TensorFlow's. They listen on every address of this machine, "
    "without TLS or a password: whoever reaches them can read the data and run graphs. Keep them "
    "behind a firewall."
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The service's name.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def _print_version(wanted: bool) -> None:
    if wanted:
        _output.print(f"cachew {__version__}")
        raise typer.Exit


@app.callback()
def _start_logging(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    logging.basicConfig(
        level=LogSettings.load().log_level,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )


@app.command()
def up(
    name: Name,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers", metavar="N", help="How many workers. (default 2, or those it has)"
        ),
    ] = None,
    idle_timeout_s: Annotated[
        float | None,
        typer.Option(
            "--idle-timeout", metavar="SECONDS", help="End it after so long without a client."
        ),
    ] = None,
    first_client_timeout_s: Annotated[
        float | None,
        typer.Option(
            "--first-client-timeout",
            metavar="SECONDS",
            help="The same before the first client came.",
        ),
    ] = None,
    host: Annotated[
        str | None, typer.Option("--host", help="The address to listen on. (default 127.0.0.1)")
    ] = None,
    port: Annotated[
        int | None, typer.Option("--port", help="The dispatcher's port. (default a free one)")
    ] = None,
    ready_timeout_s: Annotated[
        float,
        typer.Option("--ready-timeout", metavar="SECONDS", help="How long the start may take."),
    ] = cluster.READY_TIMEOUT_S,
) -> None:
    """Start a service on this machine, or adopt the running one; prints its endpoint."""
    signal.signal(signal.SIGTERM, _interrupt)
    record = cluster.up(
        name,
        workers=workers,
        host=host,
        port=port,
        idle_timeout_s=idle_timeout_s,
        first_client_timeout_s=first_client_timeout_s,
        ready_timeout_s=ready_timeout_s,
    )
    _errors.print(
        f"service {name} runs with {record.workers} workers; end it with: cachew down {name}"
    )
    _errors.print(_OPEN_PORTS)
    _output.print(record.endpoint)


def _interrupt(number: int, _: object) -> None:
    """An orchestrator ends a step with SIGTERM; a half-started service must not outlive it."""
    raise SystemExit(128 + number)


@app.command()
def down(
    name: Name,
    drain: Annotated[
        bool, typer.Option("--drain", help="Wait for the epochs that are being read.")
    ] = False,
) -> None:
    """End a service on this machine; returns once nothing of it is left but its logs."""
    cluster.down(name, drain=drain)


@app.command()
def status(
    service: Annotated[
        str, typer.Argument(metavar="NAME", help="A service's name, or grpc://host:port.")
    ],
    as_json: Json = False,
    watch: Annotated[bool, typer.Option("--watch", help="Show it again every second.")] = False,
) -> None:
    """Show a service's workers, jobs and epochs."""
    documents = _documents(service) if watch else iter([_document(service)])
    # Ctrl-C is how one ends a watch.
    with contextlib.suppress(KeyboardInterrupt) if watch else contextlib.nullcontext():
        if as_json:
            for document in documents:
                _output.print(json.dumps(document, indent=None if watch else 2))
        elif watch:
            _show_live(documents)
        else:
            _output.print(tables.status_view(next(documents)))


def _show_live(documents: Iterator[dict[str, Any]]) -> None:
    with Live(console=_output, auto_refresh=False) as live:
        for document in documents:
            live.update(tables.status_view(document), refresh=True)


def _document(service: str) -> dict[str, Any]:
    return status_document(cluster.status(service))


def _documents(service: str) -> Iterator[dict[str, Any]]:
    while True:
        yield _document(service)
        _pause(_WATCH_INTERVAL_S)


@app.command("list")
def list_services(as_json: Json = False) -> None:
    """List the services on this machine."""
    services = cluster.list_services()
    if as_json:
        columns = ("name", "endpoint", "state")
        rows = [{column: getattr(service, column) for column in columns} for service in services]
        _output.print(json.dumps(rows, indent=2))
    else:
        _output.print(tables.services_view(services))


def dispatcher(**given: Any) -> None:
    """Run a dispatcher in the foreground."""
    settings = DispatcherSettings.load(**given)
    # TensorFlow reads these when it is imported. The GPUs are the trainer's.
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    from cachew_core.dispatcher import server

    with last_one_tidies_up():
        server.run(settings)
    # All is done and nothing is left, but Python would take TensorFlow apart piece by piece: a
    # second of an idle machine, five of a busy one, while somebody waits for this process to end.
    logging.shutdown()
    os._exit(0)


def worker(**given: Any) -> None:
    """Run a worker node's agent in the foreground."""
    settings = AgentSettings.load(**given)
    from cachew_core.worker import agent

    with last_one_tidies_up():
        agent.run(settings)


app.command()(flags.command_of(DispatcherSettings, dispatcher))
app.command()(flags.command_of(AgentSettings, worker))


def main() -> None:
    """Runs the command; what goes wrong in a known way is one sentence, not a traceback."""
    try:
        app(prog_name="cachew")
    except SettingsError as error:
        _errors.print(f"error: {error}")
        sys.exit(2)
    except CachewError as error:
        _errors.print(f"error: {error}")
        sys.exit(1)


if __name__ == "__main__":
    main()
