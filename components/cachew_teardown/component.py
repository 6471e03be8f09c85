"""Component that takes a Cachew service down, safe to run twice or with nothing there.

kfp takes the function's source text into the compiled pipeline, so everything that it needs is
imported inside.
"""

from kfp import dsl

from cachew_components.image import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def cachew_teardown(
    name: str = "",
    run_name: str = "",
    run_id: str = "",
    backend: str = "local",
    drain: bool = False,
) -> None:
    """Takes a Cachew service down, and returns when nothing of it is left.

    Args:
        name: The service's name, as given to `cachew_service`. Empty: made from the run.
        run_name: The run's display name, to make a name from.
        run_id: The run's id, to make a name from.
        backend: Where the service's processes run, as given to `cachew_service`.
        drain: Wait for the epochs that are being read; else they end with one clear error.
    """
    import logging
    import sys

    from cachew_components import launcher
    from cachew_components.naming import service_name

    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    launcher.stop(
        name=service_name(name=name, run_name=run_name, run_id=run_id),
        backend=backend,
        drain=drain,
    )
