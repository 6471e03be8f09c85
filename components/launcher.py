"""What the two components do once they run: start a service by name, or end it.

Kept out of the components' own functions, whose source text travels in the compiled pipeline: this
is the code that the image holds, and it can be tested without kfp.
"""

from __future__ import annotations

import os

from cachew_components import stop_signals
from cachew_core.cluster import local
from cachew_core.errors import ServiceError, SettingsError
from cachew_core.service_record import ServiceRecord

BACKENDS = ("local",)
"""Where a service's processes can run: `local`, on the machine that runs the step (for
`kfp.local`)."""


def start(
    *,
    name: str,
    workers: float,
    backend: str,
    idle_timeout_s: float,
    first_client_timeout_s: float,
    max_workers: float = 0,
    standby: float = 0,
    scaling_policy: str = "",
    cache_policy: str = "",
    store: str = "",
    usual_store: str = "",
    cache_dir: str = "",
) -> ServiceRecord:
    """Stands a service up, or adopts the running one of that name.

    A start that fails, or gets SIGTERM, leaves nothing behind.

    Args:
        name: the service's name.
        workers: how many workers; a whole number (kfp hands integers on as floats).
        max_workers: if not 0, there are from `workers` to so many, as jobs want them.
        standby: of these, so many more than jobs want.
        scaling_policy: what decides how many a job wants that doesn't say; empty: the settings'.
        backend: one of `BACKENDS`.
        idle_timeout_s: the service ends itself after so long without a client.
        first_client_timeout_s: the same before the first client came.
        cache_policy: what is stored of pipelines that don't say; empty: the settings'.
        store: the name of what outlives the service; empty: the usual store's, or the service's.
        usual_store: the store if none is named and no other service has this one; empty: none.
        cache_dir: the folder of the cache, which is there; empty: the settings', or the store's.

    Raises:
        SettingsError: an argument can't be used.
        ServiceError: the service did not start; says why.
    """
    _check_backend(backend)
    _refuse_a_pod_of_its_own()
    count, most = whole_number("workers", workers), whole_number("max_workers", max_workers)
    with stop_signals.as_exception():
        return local.up(
            name,
            workers=None if most else count,
            min_workers=count if most else None,
            max_workers=most or None,
            standby=whole_number("standby", standby) or None,
            scaling_policy=scaling_policy or None,
            idle_timeout_s=idle_timeout_s,
            first_client_timeout_s=first_client_timeout_s,
            cache_policy=cache_policy or None,
            store=store or None,
            usual_store=usual_store or None,
            cache_dir=cache_dir or None,
        )


def stop(*, name: str, backend: str, drain: bool) -> None:
    """Ends a service; does nothing where there is none. Signals don't cut it short.

    Args:
        name: the service's name.
        backend: one of `BACKENDS`.
        drain: wait for the epochs that are being read; else they end with one clear error.

    Raises:
        SettingsError: an argument can't be used.
        ServiceError: the service did not end; says what is left.
    """
    _check_backend(backend)
    with stop_signals.deferred():
        local.down(name, drain=drain)


def whole_number(parameter: str, value: float) -> int:
    """The value as an integer.

    Raises:
        SettingsError: it has a fraction, or is not a number; names the parameter.
    """
    try:
        count = int(value)
    except (TypeError, ValueError, OverflowError):
        count = None
    if count is None or count != value:
        raise SettingsError(
            f"parameter {parameter}={value!r} of the component must be a whole number"
        )
    return count


def _check_backend(backend: str) -> None:
    if backend not in BACKENDS:
        raise SettingsError(
            f"backend {backend!r} is not supported; take one of: {', '.join(map(repr, BACKENDS))}"
        )


def _refuse_a_pod_of_its_own() -> None:
    # Set by Kubeflow's backend in the pods of steps, and not in a notebook that runs kfp.local on
    # a cluster.
    pod = os.environ.get("KFP_POD_NAME")
    if pod:
        raise ServiceError(
            f"backend 'local' would start the service inside this step's pod ({pod}), where it "
            "ends with the step: run the pipeline with kfp.local, or start the service outside "
            "the pipeline and give its endpoint to the training step"
        )
