"""`distribute`: hands a pipeline to the service, and gives back what its workers compute."""

from __future__ import annotations

import logging
import os
import socket
import uuid
import weakref
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from cachew_core import rpc, stock
from cachew_core.client import arguments, direct
from cachew_core.client.arguments import ReadOptions
from cachew_core.client.connection import Connection
from cachew_core.client.dataset import DistributedDataset
from cachew_core.client.membership import Membership
from cachew_core.client.metrics import IteratorMeter
from cachew_core.client.transformations import Transformation
from cachew_core.errors import PipelineError, ServiceUnavailableError, SettingsError
from cachew_core.pipeline import Limits, Prepared, prepare
from cachew_core.pipeline.points import CachePoint
from cachew_core.proto import cachew_pb2
from cachew_core.service_record import read_record
from cachew_core.settings import ClientSettings

log = logging.getLogger("cachew.client")


def distribute(
    service: str | None = None,
    job_name: str | None = None,
    processing_mode: str | tf.data.experimental.service.ShardingPolicy = "distributed_epoch",
    compression: str | None = None,
    max_outstanding_requests: int | None = None,
    *,
    prefetch: int | None = None,
    consumer_index: int | None = None,
    num_consumers: int | None = None,
    cross_trainer_cache: Any = None,
    target_workers: str = "AUTO",
    cache_policy: str | int | None = None,
    sources: Sequence[str | os.PathLike[str]] = (),
    trust_sources: bool = False,
    scaling_policy: str | int | None = None,
    max_workers: int | None = None,
    weight: float = 1.0,
    priority: int = 0,
    tenant: str = "",
    direct_reads: str | None = None,
    connect_deadline_s: float | None = None,
    workers_deadline_s: float | None = None,
    task_refresh_interval_ms: int | None = None,
    metrics_interval_s: float | None = None,
    max_graph_bytes: int | None = None,
) -> Transformation:
    """Runs the pipeline before it on a service's workers; what comes after it runs in the trainer.

    Use it as `dataset.apply(cachew.distribute(...))`, outside of any `tf.function`. The result is a
    `tf.data.Dataset` of the same elements as the pipeline's own. The pipeline is registered at
    once; each iterator over the result is one epoch (or as many as a final `repeat` says), which
    begins when the iterator is first asked for an element. The values of variables and tables that
    the pipeline uses are those of the moment of registration.

    Batches are exact: one trainer gets as many batches of each size in each epoch as a local run
    gives.

    **Sharing a job.** Trainers that give the same `job_name` and the same pipeline share each
    epoch: an element goes to one of them. An iterator joins the job's newest open epoch, if this
    trainer has not read from it yet and one of its readers is still connected; otherwise it starts
    the next epoch. So a trainer that comes when an epoch is finished starts the next one (and its
    log says so), and so does one that dropped its iterator half-way and comes back. A restarted
    trainer counts as a new one. An epoch that all its readers left ends as `abandoned`. Each
    trainer of a job makes its own batches whole, with a last, smaller one of its own.

    Args:
        service: `grpc://host:port`, or the name of a service on this machine. Default: the
            environment's `CACHEW_SERVICE`. With neither, the pipeline runs in this process, with
            the same elements, and a line in the log says so.
        job_name: up to 128 printable characters that identify a job which several trainers share.
            Default: a job of this trainer alone.
        processing_mode: what the workers do with the data.
            `"distributed_epoch"` (default; `ShardingPolicy.DYNAMIC`): the input's files or elements
            are handed out to the workers as they ask for them. Each element once an epoch, in no
            fixed order. Workers come and go in mid-epoch. A pipeline whose result would differ if
            its input were split runs whole on one worker, with a warning. `"parallel_epochs"`
            (`ShardingPolicy.OFF`): each worker runs the whole pipeline. With n workers an epoch has
            n times the data, each worker's in an order of its own; their number is fixed while an
            epoch lasts.
        compression: of elements on their way to the trainer: None (default), `"SNAPPY"`, or
            `"AUTO"`, which means Snappy. It pays where the network is slower than 300 MB/s or so.
        max_outstanding_requests: elements that may be under way to this trainer, which bounds its
            memory. Default: chosen by tf.data, by the number of workers.
        prefetch: elements in the buffer behind the service. Default: chosen by tf.data. 0: none.
            Use this and not `.prefetch()` behind `distribute`: that hides from the service how long
            the trainer waits.
        consumer_index: this trainer's number, from 0, in a coordinated read: `num_consumers`
            trainers get their elements in turn, each the same number of them.
        num_consumers: how many trainers read in turn. Needs `job_name`, `consumer_index` and an
            endless pipeline.
        cross_trainer_cache: a `tf.data.experimental.service.CrossTrainerCache`: trainers with
            different ids get the same elements out of a window in the workers' memory. Default:
            none.
        cache_policy: what the service stores of this pipeline: `"auto"`, `"compute"`, `"full"`,
            `"source"`, `"put"`, `"get"`, `"put_source"`, `"get_source"`, or the original's number.
            Default: the service's.
        sources: absolute paths of more files, folders and globs that the data depends on. What is
            stored is used again only while all files that the pipeline reads have the same sizes
            and times; those that stand in its graph are found without this.
        trust_sources: True: the files never change, so they are not looked at.
        scaling_policy: what decides how many workers the job gets: `"auto"` (as many as its
            trainers can use), `"all"`, `"rate_match"`, `"hill_climb"`, or the original's number.
            Default: the service's. It holds for `"distributed_epoch"`; other jobs get all.
        max_workers: the job gets no more than so many. Default: no limit.
        weight: where workers are scarce, a job with twice the weight gets twice as many.
        priority: a job with a higher one gets all that it wants first; -1000 to 1000.
        tenant: whose job it is: workers are shared out among tenants before they are among each
            one's jobs. Default: a tenant for all who name none.
        direct_reads: whether this trainer reads what is stored at the pipeline's end from the
            cache's files itself, without workers. `"auto"` (default): where it sees the cache's
            volume. `"never"`; or `"always"`, which makes it an error that it can't.
        target_workers: `"AUTO"` (default) or `"ANY"`; stock's `"LOCAL"` has no meaning here.
        connect_deadline_s: seconds to try to reach the service. Default: 60.
        workers_deadline_s: seconds to wait for a first worker, now and at each epoch's start.
            Default: 60.
        task_refresh_interval_ms: milliseconds between two looks for new workers and for the epoch's
            end. Default: 100. Raise it when very many trainers share a dispatcher.
        metrics_interval_s: seconds between two reports of batch, wait and step times. Default:
            0.25.
        max_graph_bytes: a larger pipeline graph is refused. Default: 1 GiB.

    `direct_reads` and the last five can also be set by `CACHEW_...` variables and in the settings
    file.

    Returns:
        What `tf.data.Dataset.apply` takes.

    Raises:
        PipelineError: an argument, or (when applied) the pipeline, can't be used; names it and says
            what to do.
        SettingsError: `service` or a setting can't be used.
        ServiceUnavailableError: when applied: not reachable, or without a worker, within the
            deadline.
        VersionMismatchError: when applied: trainer and service don't understand each other.
        ServiceError: when applied: the service refused for a reason of its own, such as its
            shutdown.
    """
    arguments.check_eager()
    options = arguments.checked(
        job_name=job_name,
        processing_mode=processing_mode,
        compression=compression,
        max_outstanding_requests=max_outstanding_requests,
        prefetch=prefetch,
        consumer_index=consumer_index,
        num_consumers=num_consumers,
        cross_trainer_cache=cross_trainer_cache,
        target_workers=target_workers,
        cache_policy=cache_policy,
        sources=sources,
        trust_sources=trust_sources,
        scaling_policy=scaling_policy,
        max_workers=max_workers,
        weight=weight,
        priority=priority,
        tenant=tenant,
    )
    settings = ClientSettings.load(
        service=service,
        direct_reads=direct_reads,
        connect_deadline_s=connect_deadline_s,
        workers_deadline_s=workers_deadline_s,
        task_refresh_interval_ms=task_refresh_interval_ms,
        metrics_interval_s=metrics_interval_s,
        max_graph_bytes=max_graph_bytes,
    )
    endpoint = _endpoint(settings.service)

    # Traced by a user's tf.function it must raise, and not be rewritten first.
    @tf.autograph.experimental.do_not_convert
    def apply(dataset: tf.data.Dataset) -> tf.data.Dataset:
        arguments.check_eager()
        if endpoint is None:
            return _local(dataset, options)
        return _distributed(dataset, endpoint, options, settings)

    transformation: Transformation = apply
    return transformation


def _endpoint(service: str | None) -> str | None:
    """The endpoint of a service that was named in any way; None where none was."""
    if service is None:
        return None
    if not service.strip():
        raise SettingsError(
            f"service={service!r} can't be used: give grpc://host:port or a local service's name, "
            "or leave it (and CACHEW_SERVICE) unset to run the pipeline in this process"
        )
    if rpc.is_endpoint(service):
        rpc.address_of(service)
        return service
    record = read_record(service)
    if record is None:
        raise ServiceUnavailableError(
            f"there is no service {service!r} on this machine: start it with `cachew up "
            f"{service}`, or give the endpoint of a service elsewhere as grpc://host:port"
        )
    return record.endpoint


def _local(dataset: tf.data.Dataset, options: ReadOptions) -> tf.data.Dataset:
    log.warning(
        "no service was named (service= or CACHEW_SERVICE): the pipeline runs in this process"
    )
    return dataset.prefetch(options.prefetch) if options.prefetch else dataset


def _distributed(
    dataset: tf.data.Dataset, endpoint: str, options: ReadOptions, settings: ClientSettings
) -> tf.data.Dataset:
    prepared = prepare(
        dataset,
        processing_mode=options.processing_mode,
        compression=options.compression,
        num_consumers=options.num_consumers,
        endless=options.cross_trainer_cache is not None,
        limits=Limits(max_bytes=settings.max_graph_bytes, warn_bytes=settings.warn_graph_bytes),
    )
    arguments.check_endless(options, prepared.cardinality)
    client_id = uuid.uuid4().hex
    meter = IteratorMeter()
    with Connection(endpoint, settings) as connection:
        info = connection.greet()
        _check_size(prepared, info, connection.address)
        reading = direct.look(prepared, options, settings.direct_reads, info)
        request = _request(client_id, prepared, options, settings)
        request.cache_proof, request.dispatcher_address = reading.proof, connection.address
        response = connection.register(request)
        connection.await_workers()
        end = reading.end if response.direct_reads else None
        received = _received(
            connection.address, response.job_id, client_id, prepared, options, settings, end
        )
        passes = _passes(_one_pass(received, prepared, options), meter, prepared, options)
        result = DistributedDataset(passes, length=_length(prepared, options))
        membership = Membership(
            connection.kept(),
            client_id=client_id,
            job_id=response.job_id,
            meter=meter,
            metrics_interval_s=settings.metrics_interval_s,
        )
    for text in (*prepared.warnings, *response.notices):
        membership.say(text)
    if reading.reason and info.cache_proof_path:
        membership.say(f"reads what is stored through workers: {reading.reason}", logging.INFO)
    result.explain = membership.explain
    membership.start()
    # At exit another handler ends all memberships and waits for them.
    weakref.finalize(result, membership.leave).atexit = False
    return result


def _check_size(prepared: Prepared, info: cachew_pb2.ServiceInfo, address: str) -> None:
    """Refuses a graph that the service would refuse, before it is sent."""
    if len(prepared.graph) > info.max_graph_bytes:
        raise PipelineError(
            f"the pipeline's graph has {len(prepared.graph)} bytes, and the service at {address} "
            f"takes {info.max_graph_bytes} (its max_graph_bytes): write the data that stands in "
            "the graph to files"
        )


def _request(
    client_id: str, prepared: Prepared, options: ReadOptions, settings: ClientSettings
) -> cachew_pb2.RegisterPipelineRequest:
    return cachew_pb2.RegisterPipelineRequest(
        client=rpc.own_versions(),
        client_id=client_id,
        job_name=options.job_name or "",
        fingerprint=prepared.fingerprint,
        graph=prepared.graph,
        processing_mode=options.proto_mode,
        compression=options.proto_compression,
        cardinality=prepared.cardinality,
        single_worker=bool(prepared.single_worker),
        single_worker_reasons=prepared.single_worker,
        num_consumers=options.num_consumers,
        cross_trainer_cache=options.cross_trainer_cache is not None,
        host=socket.gethostname(),
        pid=os.getpid(),
        workers_deadline_s=settings.workers_deadline_s,
        element_spec=stock.encode_element_spec(prepared.element_spec),
        cache_policy=options.cache_policy,
        sources=options.sources,
        trust_sources=options.trust_sources,
        scaling_policy=options.scaling_policy,
        max_workers=options.max_workers or 0,
        weight=options.weight,
        priority=options.priority,
        tenant=options.tenant,
    )


def _received(
    address: str,
    job_id: str,
    client_id: str,
    prepared: Prepared,
    options: ReadOptions,
    settings: ClientSettings,
    end: CachePoint | None,
) -> tf.data.Dataset:
    """What the workers send in one epoch; read from files where the epoch is read directly.

    Args:
        address: of the dispatcher.
        job_id: of the job.
        client_id: of this trainer.
        prepared: the pipeline.
        options: how the job is read.
        settings: of this trainer.
        end: the pipeline's end, where this trainer may read it from files; else None.
    """
    if end is not None:
        return direct.Halves(
            address=address,
            job_id=job_id,
            client_id=client_id,
            end=end,
            element_spec=prepared.element_spec,
            compressed=options.compression is not None,
            max_outstanding_requests=options.max_outstanding_requests,
            task_refresh_interval_ms=settings.task_refresh_interval_ms,
        ).dataset()
    return stock.service_dataset(
        address=address,
        dataset_id=job_id,
        job_name=client_id,
        processing_mode=options.processing_mode,
        element_spec=prepared.element_spec,
        consumer_index=options.consumer_index,
        num_consumers=options.num_consumers,
        max_outstanding_requests=options.max_outstanding_requests,
        task_refresh_interval_ms=settings.task_refresh_interval_ms,
        cross_trainer_cache=options.cross_trainer_cache,
        target_workers=options.target_workers,
    )


def _one_pass(
    received: tf.data.Dataset, prepared: Prepared, options: ReadOptions
) -> tf.data.Dataset:
    """One epoch as the trainer sees it: our half of the pipeline, and a buffer."""
    elements = prepared.restore(received)
    if options.prefetch == 0:
        return elements
    return elements.prefetch(tf.data.AUTOTUNE if options.prefetch is None else options.prefetch)


def _passes(
    one_pass: tf.data.Dataset, meter: IteratorMeter, prepared: Prepared, options: ReadOptions
) -> tf.data.Dataset:
    """The passes that one iterator makes, measured."""
    if options.job_name is None or prepared.repeats != tf.data.INFINITE_CARDINALITY:
        return meter.attach(one_pass).repeat(prepared.repeats)
    # `repeat` ends at a pass that was empty from its start, and a pass is empty for a trainer whose
    # fellows took all.
    return meter.attach(one_pass, passes=prepared.repeats)


def _length(prepared: Prepared, options: ReadOptions) -> int:
    """Elements of one iteration where that is certain, else infinite or unknown."""
    if prepared.cardinality == 0:
        return 0
    if tf.data.INFINITE_CARDINALITY in (prepared.cardinality, prepared.repeats):
        return int(tf.data.INFINITE_CARDINALITY)
    whole = options.job_name is None and options.cross_trainer_cache is None
    if prepared.cardinality < 0 or not whole or options.processing_mode != "distributed_epoch":
        return int(tf.data.UNKNOWN_CARDINALITY)
    return prepared.cardinality * prepared.repeats
