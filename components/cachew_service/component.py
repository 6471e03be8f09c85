"""Component that stands a Cachew service up and gives its endpoint.

kfp takes the function's source text into the compiled pipeline, so everything that it needs is
imported inside.
"""

from kfp import dsl

from cachew_components.image import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def cachew_service(
    service: dsl.Output[dsl.Artifact],
    endpoint: dsl.OutputPath(str),  # type: ignore[valid-type]
    name: str = "",
    run_name: str = "",
    run_id: str = "",
    workers: int = 2,
    backend: str = "local",
    idle_timeout_s: float = 1800.0,
    first_client_timeout_s: float = 21600.0,
) -> None:
    """Stands a Cachew service up, or adopts the running one of that name.

    Args:
        service: The service as JSON; name, endpoint, workers, backend and version are its
            metadata, too.
        endpoint: `grpc://host:port`, for `distribute(service=...)`.
        name: The service's name: 1 to 63 letters, digits, '.', '_' and '-'. Empty: made from the
            run.
        run_name: The run's display name, to make a name from.
        run_id: The run's id, to make a name from.
        workers: How many workers the service starts with.
        backend: Where the service's processes run. `local`: on this machine, for `kfp.local`.
        idle_timeout_s: The service ends itself after so many seconds without a client.
        first_client_timeout_s: The same before the first client came (a GPU step may queue for
            hours).
    """
    import json
    import logging
    import sys
    from pathlib import Path

    from cachew_components import launcher
    from cachew_components.naming import service_name
    from cachew_core import __version__

    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    record = launcher.start(
        name=service_name(name=name, run_name=run_name, run_id=run_id),
        workers=workers,
        backend=backend,
        idle_timeout_s=idle_timeout_s,
        first_client_timeout_s=first_client_timeout_s,
    )
    facts = {
        "name": record.name,
        "endpoint": record.endpoint,
        "workers": record.workers,
        "backend": backend,
        "version": __version__,
    }
    service.metadata.update(facts)
    Path(service.path).write_text(json.dumps(facts, indent=2) + "\n")
    endpoint_file = Path(endpoint)
    endpoint_file.parent.mkdir(parents=True, exist_ok=True)
    endpoint_file.write_text(record.endpoint)
