"""The components as people use them in a pipeline: factories that give configured tasks.

A component used bare is cached. A cached setup hands out the endpoint of a service that is gone,
and a cached teardown leaves one running, so the factories turn caching off.
"""

from __future__ import annotations

from typing import TypeAlias

from kfp import dsl, kubernetes
from kfp.dsl.pipeline_channel import PipelineChannel

from cachew_components.cachew_service.component import cachew_service
from cachew_components.cachew_teardown.component import cachew_teardown

# A value, or a parameter of the pipeline that is known once it runs.
Text: TypeAlias = str | PipelineChannel
Whole: TypeAlias = int | PipelineChannel
Seconds: TypeAlias = float | PipelineChannel
Flag: TypeAlias = bool | PipelineChannel

# The backend replaces a placeholder only where it is a whole value, so name and id travel as two
# parameters.
RUN_NAME = dsl.PIPELINE_JOB_NAME_PLACEHOLDER
RUN_ID = dsl.PIPELINE_JOB_ID_PLACEHOLDER


def CachewService(  # noqa: N802 - public names of components are capitalised in Kubeflow's libraries
    *,
    name: Text = "",
    workers: Whole = 2,
    backend: Text = "local",
    idle_timeout_s: Seconds = 1800.0,
    first_client_timeout_s: Seconds = 21600.0,
    max_workers: Whole = 0,
    standby: Whole = 0,
    scaling_policy: Text = "",
    cache_policy: Text = "",
    store: Text = "",
    cache_dir: Text = "",
) -> dsl.PipelineTask:
    """A task that stands a Cachew service up, or adopts the running one of that name.

    Its outputs are `endpoint` (`grpc://host:port`, for `distribute(service=...)`) and `service`
    (an artifact that describes it). Put a `CachewTeardown` of the same name into the exit task,
    since a pipeline that fails in the middle must not leave the service running; should the exit
    task not run either (a terminated run, a lost node), the service ends itself after
    `idle_timeout_s`.

    Args:
        name: the service's name: 1 to 63 letters, digits, '.', '_' and '-', with a letter or digit
            at both ends.
            Empty: made from the run's name and id, so that runs at the same time don't collide.
        workers: how many workers there are; the fewest of them, where there is a `max_workers`.
        backend: where the service's processes run. `local`, the only one so far: on the machine
            that runs the step, as `kfp.local` does. In a pod of its own a service would end with
            the step, so that is refused.
        idle_timeout_s: the service ends itself after so many seconds without a client.
        first_client_timeout_s: the same before the first client came (a GPU step may queue for
            hours).
        max_workers: there are more than `workers` while jobs want them, up to so many. 0: always
            `workers`.
        standby: of these, so many more are there than jobs want.
        scaling_policy: what decides how many workers a job wants whose `distribute` does not say:
            `auto`, `rate_match`, `hill_climb`, `all`. Empty: the service's settings, where it is
            `auto` unless set.
        cache_policy: what is stored of pipelines whose `distribute` does not say: `auto` (what
            pays), `compute` (nothing), `full` (what the pipeline gives), `source` (what its last
            mark gives), ... Empty: the service's settings, where it is `auto` unless set.
        store: what the service stores outlives it under this name, and the next run that gives the
            name goes on from there. Empty: the service's name, or, where that is made from the run,
            `kubeflow-pipelines`, so that each run starts from what earlier ones stored (a run that
            comes while another one uses it gets an empty store).
        cache_dir: a folder for the cache instead of the store's own, on a path that the service and
            all its workers have in common, which must be there; or `gs://bucket/prefix`. Empty: the
            service's settings.
    """
    task = cachew_service(
        name=name,
        run_name=RUN_NAME,
        run_id=RUN_ID,
        workers=workers,
        backend=backend,
        idle_timeout_s=idle_timeout_s,
        first_client_timeout_s=first_client_timeout_s,
        max_workers=max_workers,
        standby=standby,
        scaling_policy=scaling_policy,
        cache_policy=cache_policy,
        store=store,
        cache_dir=cache_dir,
    )
    return _configured(task, display_name="Start Cachew", component="service-launcher")


def CachewTeardown(  # noqa: N802 - as above
    *, name: Text = "", backend: Text = "local", drain: Flag = False
) -> dsl.PipelineTask:
    """A task that takes a Cachew service down; fit to be an exit task.

    It needs no output of another task, does nothing where there is no service, and may run twice.

    Args:
        name: the service's name, as given to `CachewService`. Empty: the one made from the run.
        backend: as given to `CachewService`.
        drain: wait for the epochs that are being read; else they end with one clear error.
    """
    task = cachew_teardown(
        name=name, run_name=RUN_NAME, run_id=RUN_ID, backend=backend, drain=drain
    )
    return _configured(task, display_name="Take Cachew down", component="service-teardown")


def _configured(task: dsl.PipelineTask, *, display_name: str, component: str) -> dsl.PipelineTask:
    task.set_caching_options(False)
    task.set_display_name(display_name)
    kubernetes.add_pod_label(task, "app.kubernetes.io/part-of", "cachew")
    kubernetes.add_pod_label(task, "app.kubernetes.io/component", component)
    return task
