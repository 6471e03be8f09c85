"""The command `cachew`: local services by name, and one process of a service in the foreground."""

from __future__ import annotations

import contextlib
import faulthandler
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
from cachew_core.cache_commands import caches
from cachew_core.cluster.runs import last_one_tidies_up
from cachew_core.errors import CachewError, ServiceError, SettingsError
from cachew_core.settings import AgentSettings, DispatcherSettings, LogSettings
from cachew_core.status_document import status_document
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
    # It tells of every part of its own that it loads.
    logging.getLogger("alembic").setLevel(logging.WARNING)


@app.command()
def up(
    name: Name,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers", metavar="N", help="How many workers, always. (default 2, or those it has)"
        ),
    ] = None,
    min_workers: Annotated[
        int | None,
        typer.Option("--min-workers", metavar="N", help="The fewest workers. (default 1)"),
    ] = None,
    max_workers: Annotated[
        int | None,
        typer.Option(
            "--max-workers",
            metavar="N",
            help="The most workers, when jobs want them; instead of --workers.",
        ),
    ] = None,
    standby: Annotated[
        int | None,
        typer.Option(
            "--standby", metavar="N", help="So many more are there than jobs want. (default 0)"
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
    page_port: Annotated[
        int | None,
        typer.Option(
            "--page-port", help="The port of its page and metrics; -1: none. (default a free one)"
        ),
    ] = None,
    cache_policy: Annotated[
        str | None,
        typer.Option(
            "--cache-policy",
            metavar="POLICY",
            help="What is stored: auto, compute, full, source, ... (default auto)",
        ),
    ] = None,
    scaling_policy: Annotated[
        str | None,
        typer.Option(
            "--scaling-policy",
            metavar="POLICY",
            help="How many workers a job gets: auto (as many as its trainers can use), all, "
            "hill_climb. (default auto)",
        ),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            "--store", metavar="NAME", help="Go on from this store. (default the service's name)"
        ),
    ] = None,
    cache_dir: Annotated[
        str | None,
        typer.Option(
            "--cache-dir",
            metavar="PLACE",
            help="Where the cache lies: a folder, or gs://bucket/prefix. (default in the store's "
            "folder)",
        ),
    ] = None,
    cache_capacity_bytes: Annotated[
        int | None,
        typer.Option(
            "--cache-capacity", metavar="BYTES", help="The most that is stored. (default no limit)"
        ),
    ] = None,
    cache_needs_mount: Annotated[
        bool | None,
        typer.Option("--cache-needs-mount", help="Refuse a cache folder that is no mount."),
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
        min_workers=min_workers,
        max_workers=max_workers,
        standby=standby,
        host=host,
        port=port,
        page_port=page_port,
        idle_timeout_s=idle_timeout_s,
        first_client_timeout_s=first_client_timeout_s,
        cache_policy=cache_policy,
        scaling_policy=scaling_policy,
        store=store,
        cache_dir=cache_dir,
        cache_capacity_bytes=cache_capacity_bytes,
        cache_needs_mount=cache_needs_mount,
        ready_timeout_s=ready_timeout_s,
    )
    _errors.print(
        f"service {name} runs with {'up to ' if max_workers else ''}{record.workers} workers; end "
        f"it with: cachew down {name}"
    )
    if record.page:
        _errors.print(f"its page: {record.page}")
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


@app.command()
def explain(
    service: Annotated[
        str, typer.Argument(metavar="NAME", help="A service's name, or grpc://host:port.")
    ],
    job_name: Annotated[str, typer.Argument(metavar="JOB", help="A job's name, as in status.")],
) -> None:
    """Say what is stored for a job and how many workers it wants, and why."""
    jobs = [job for job in _document(service)["jobs"] if job["job_name"] == job_name]
    if not jobs:
        raise ServiceError(
            f"service {service!r} has no job {job_name!r}: see cachew status {service}"
        )
    _output.print(tables.explanation_view(jobs[-1]))


@app.command()
def scale(
    service: Annotated[
        str, typer.Argument(metavar="NAME", help="A service's name, or grpc://host:port.")
    ],
    job_name: Annotated[str, typer.Argument(metavar="JOB", help="A job's name, as in status.")],
    workers: Annotated[
        int | None,
        typer.Option("--workers", metavar="N", help="How many. (default as its policy says)"),
    ] = None,
) -> None:
    """Set how many workers a job gets, or give it back to its policy."""
    cluster.scale(service, job_name, workers)


app.add_typer(caches)


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
    # A pool of threads made at import would not live on in a forked process.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    from cachew_core.dispatcher import server

    _show_stacks_when_asked()
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

    _show_stacks_when_asked()
    with last_one_tidies_up():
        agent.run(settings)


def _show_stacks_when_asked() -> None:
    """`kill -USR1` writes to the log what each thread does, even of a process that is stuck."""
    faulthandler.register(signal.SIGUSR1, all_threads=True)


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
