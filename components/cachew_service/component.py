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
    max_workers: int = 0,
    standby: int = 0,
    scaling_policy: str = "",
    cache_policy: str = "",
    store: str = "",
    cache_dir: str = "",
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
        workers: How many workers there are; the fewest of them, where there is a `max_workers`.
        backend: Where the service's processes run. `local`: on this machine, for `kfp.local`.
        idle_timeout_s: The service ends itself after so many seconds without a client.
        first_client_timeout_s: The same before the first client came (a GPU step may queue for
            hours).
        max_workers: There are more than `workers` while jobs want them, up to so many. 0: always
            `workers`.
        standby: Of these, so many more are there than jobs want.
        scaling_policy: What decides how many workers a job wants whose `distribute` does not say:
            `auto`, `rate_match`, `hill_climb`, `all`. Empty: the service's settings.
        cache_policy: What is stored of pipelines whose `distribute` does not say: `auto`,
            `compute` (nothing), `full`, `source`, ... Empty: the service's settings.
        store: What the service stores outlives it under this name; the next service that is given
            it goes on from there. Empty: the service's name, or, where that is made from the run,
            one store of all such runs.
        cache_dir: A folder for the cache instead of the store's own, which must be there, or
            gs://bucket/prefix. Empty: the service's settings.
    """
    import json
    import logging
    import sys
    from pathlib import Path

    from cachew_components import launcher
    from cachew_components.naming import USUAL_STORE, service_name
    from cachew_core import __version__

    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    record = launcher.start(
        name=service_name(name=name, run_name=run_name, run_id=run_id),
        workers=workers,
        backend=backend,
        idle_timeout_s=idle_timeout_s,
        first_client_timeout_s=first_client_timeout_s,
        max_workers=max_workers,
        standby=standby,
        scaling_policy=scaling_policy,
        cache_policy=cache_policy,
        store=store,
        usual_store="" if name else USUAL_STORE,
        cache_dir=cache_dir,
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
