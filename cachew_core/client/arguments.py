"""The arguments of `distribute`, checked before any network is touched.

Whatever is wrong here is wrong on every run, so it must fail on the line that is wrong, not minutes
later in a worker's log.
"""

from __future__ import annotations

import math
import numbers
import os
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from cachew_core.errors import PipelineError
from cachew_core.policy.autoscale import parse_scaling_policy
from cachew_core.policy.modes import parse_policy
from cachew_core.proto import cachew_pb2

LONGEST_JOB_NAME = 128
MOST_PRIORITY = 1000

_MODES = {
    "distributed_epoch": cachew_pb2.DISTRIBUTED_EPOCH,
    "parallel_epochs": cachew_pb2.PARALLEL_EPOCHS,
}
_COMPRESSIONS = {
    None: cachew_pb2.COMPRESSION_NONE,
    "AUTO": cachew_pb2.COMPRESSION_AUTO,
    "SNAPPY": cachew_pb2.COMPRESSION_SNAPPY,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """How a job is read.

    Attributes:
        job_name: shared with other trainers; None for a private job.
        processing_mode: `distributed_epoch` or `parallel_epochs`.
        compression: None, `AUTO` or `SNAPPY`.
        max_outstanding_requests: None lets stock choose.
        prefetch: elements in the buffer behind the service; None lets tf.data choose, 0 is no
            buffer.
        consumer_index: this trainer's place in a coordinated read.
        num_consumers: how many trainers read in step; None for an ordinary read.
        cross_trainer_cache: stock's `CrossTrainerCache`, or None.
        target_workers: `AUTO` or `ANY`.
        cache_policy: its name; empty: the service's.
        sources: more files that the pipeline reads.
        trust_sources: the source files never change.
        scaling_policy: its name; empty: the service's.
        max_workers: more are of no use; None: any number may be.
        weight: of its share where workers are scarce.
        priority: a higher one comes first.
        tenant: whose job it is.
    """

    job_name: str | None
    processing_mode: str
    compression: str | None
    max_outstanding_requests: int | None
    prefetch: int | None
    consumer_index: int | None
    num_consumers: int | None
    cross_trainer_cache: Any
    target_workers: str
    cache_policy: str
    sources: tuple[str, ...]
    trust_sources: bool
    scaling_policy: str
    max_workers: int | None
    weight: float
    priority: int
    tenant: str

    @property
    def proto_mode(self) -> cachew_pb2.ProcessingMode:
        """The mode as it is registered."""
        return _MODES[self.processing_mode]

    @property
    def proto_compression(self) -> cachew_pb2.Compression:
        """The compression as it is registered."""
        return _COMPRESSIONS[self.compression]


def checked(
    *,
    job_name: Any,
    processing_mode: Any,
    compression: Any,
    max_outstanding_requests: Any,
    prefetch: Any,
    consumer_index: Any,
    num_consumers: Any,
    cross_trainer_cache: Any,
    target_workers: Any,
    cache_policy: Any,
    sources: Any,
    trust_sources: Any,
    scaling_policy: Any,
    max_workers: Any,
    weight: Any,
    priority: Any,
    tenant: Any,
) -> ReadOptions:
    """The arguments as values that can be used.

    Raises:
        PipelineError: one of them can't; names it, its value and what would do.
    """
    _check_job_name(job_name)
    _check_consumers(consumer_index, num_consumers, job_name)
    _check_cross_trainer_cache(cross_trainer_cache)
    _check_target_workers(target_workers)
    return ReadOptions(
        job_name=job_name,
        processing_mode=_mode(processing_mode),
        compression=_compression(compression),
        max_outstanding_requests=_number(
            "max_outstanding_requests", max_outstanding_requests, least=1
        ),
        prefetch=_number("prefetch", prefetch, least=0),
        consumer_index=consumer_index,
        num_consumers=num_consumers,
        cross_trainer_cache=cross_trainer_cache,
        target_workers=target_workers,
        cache_policy="" if cache_policy is None else str(parse_policy(cache_policy)),
        sources=_sources(sources, trust_sources),
        trust_sources=bool(trust_sources),
        scaling_policy="" if scaling_policy is None else str(parse_scaling_policy(scaling_policy)),
        max_workers=_number("max_workers", max_workers, least=1),
        weight=_weight(weight),
        priority=_priority(priority),
        tenant=_tenant(tenant),
    )


def _weight(weight: Any) -> float:
    number = isinstance(weight, numbers.Real) and not isinstance(weight, bool)
    if not number or not math.isfinite(weight) or weight <= 0:
        raise PipelineError(f"weight={weight!r} can't be used: give a number above 0")
    return float(weight)


def _priority(priority: Any) -> int:
    if not is_whole(priority) or abs(priority) > MOST_PRIORITY:
        raise PipelineError(
            f"priority={priority!r} can't be used: give a whole number from {-MOST_PRIORITY} to "
            f"{MOST_PRIORITY}"
        )
    return int(priority)


def _tenant(tenant: Any) -> str:
    if not isinstance(tenant, str) or not tenant.isprintable() or len(tenant) > LONGEST_JOB_NAME:
        raise PipelineError(
            f"tenant={tenant!r} can't be used: give up to {LONGEST_JOB_NAME} printable characters"
        )
    return tenant


def _sources(sources: Any, trust_sources: Any) -> tuple[str, ...]:
    if not isinstance(trust_sources, bool):
        raise PipelineError(f"trust_sources={trust_sources!r} can't be used: give True or False")
    if isinstance(sources, str | bytes | os.PathLike):
        raise PipelineError(
            f"sources={sources!r} can't be used: give a list of paths, folders or globs"
        )
    try:
        paths = tuple(os.fspath(path) for path in sources or ())
    except TypeError as error:
        raise PipelineError(
            f"sources={sources!r} can't be used: give a list of paths, folders or globs"
        ) from error
    relative = [path for path in paths if not os.path.isabs(path) and "://" not in path]
    if relative:
        raise PipelineError(
            f"sources={relative[0]!r} can't be used: workers have a working directory of their "
            "own, so give absolute paths"
        )
    return paths


def check_eager() -> None:
    """Refuses a call while a graph is being traced.

    Raises:
        PipelineError: called inside a `tf.function` or a v1 graph.
    """
    if not tf.executing_eagerly():
        raise PipelineError(
            "distribute was applied inside a tf.function (or a v1 graph), where a pipeline can't "
            "be registered: apply it outside, and pass the dataset or its iterator into the "
            "function"
        )


def _check_job_name(job_name: Any) -> None:
    if job_name is None:
        return
    usable = isinstance(job_name, str) and job_name.strip() and job_name.isprintable()
    if not usable or len(job_name) > LONGEST_JOB_NAME:
        raise PipelineError(
            f"job_name={job_name!r} can't be used: give 1 to {LONGEST_JOB_NAME} printable "
            "characters, or None for a job of this trainer alone"
        )


def _mode(mode: Any) -> str:
    policy = tf.data.experimental.service.ShardingPolicy
    if isinstance(mode, policy):
        if mode is policy.OFF:
            return "parallel_epochs"
        if mode is policy.DYNAMIC:
            return "distributed_epoch"
        raise PipelineError(
            f"processing_mode={mode} can't be used: static sharding deals files out to a list of "
            "workers that is fixed before the service starts, and here workers come and go; use "
            "'distributed_epoch', which hands files out as workers ask for them"
        )
    if isinstance(mode, str) and mode in _MODES:
        return mode
    raise PipelineError(
        f"processing_mode={mode!r} can't be used: give 'distributed_epoch' (each element once an "
        "epoch) or 'parallel_epochs' (each worker gives a whole epoch)"
    )


def _compression(compression: Any) -> str | None:
    if compression is None or (isinstance(compression, str) and compression in _COMPRESSIONS):
        return compression
    raise PipelineError(
        f"compression={compression!r} can't be used: give None, 'AUTO' or 'SNAPPY' ('AUTO' means "
        "Snappy)"
    )


def _check_consumers(index: Any, consumers: Any, job_name: Any) -> None:
    if index is None and consumers is None:
        return
    if index is None or consumers is None:
        raise PipelineError(
            f"consumer_index={index!r} and num_consumers={consumers!r} go together: give both for "
            "a coordinated read, or none"
        )
    if not is_whole(consumers) or consumers < 1:
        raise PipelineError(
            f"num_consumers={consumers!r} can't be used: give the number of trainers, 1 or more"
        )
    if not is_whole(index) or not 0 <= index < consumers:
        raise PipelineError(
            f"consumer_index={index!r} can't be used: give this trainer's number, from 0 to "
            f"{consumers - 1}"
        )
    if job_name is None:
        raise PipelineError(
            f"num_consumers={consumers} needs a job_name: it is how the {consumers} trainers find "
            "the same job"
        )


def check_endless(options: ReadOptions, cardinality: int) -> None:
    """Refuses a coordinated read of data that ends, where consumers would wait for each other.

    Args:
        options: how the job is read.
        cardinality: of the user's pipeline; -1 for infinite, -2 for unknown.

    Raises:
        PipelineError: the read is coordinated and the pipeline is not known to be infinite.
    """
    if options.num_consumers is not None and cardinality != tf.data.INFINITE_CARDINALITY:
        length = "of unknown length" if cardinality < 0 else f"of {cardinality} elements"
        raise PipelineError(
            f"num_consumers={options.num_consumers} needs an endless pipeline, and this one is "
            f"{length}: trainers that read in step would wait for each other at its end; add "
            ".repeat() before distribute"
        )


def _check_cross_trainer_cache(cache: Any) -> None:
    kind = tf.data.experimental.service.CrossTrainerCache
    if cache is not None and not isinstance(cache, kind):
        raise PipelineError(
            f"cross_trainer_cache={cache!r} can't be used: give a "
            "tf.data.experimental.service.CrossTrainerCache, or None"
        )


def _check_target_workers(target: Any) -> None:
    if target == "LOCAL":
        raise PipelineError(
            "target_workers='LOCAL' can't be used: it reads only from workers inside the trainer's "
            "process, and Cachew's workers are processes of their own; leave it at 'AUTO'"
        )
    if target not in ("AUTO", "ANY"):
        raise PipelineError(f"target_workers={target!r} can't be used: give 'AUTO' or 'ANY'")


def _number(name: str, value: Any, *, least: int) -> int | None:
    if value is None:
        return None
    if not is_whole(value) or value < least:
        raise PipelineError(
            f"{name}={value!r} can't be used: give a whole number of {least} or more, or None"
        )
    return int(value)


def is_whole(value: Any) -> bool:
    """Whether it is a whole number of any integer type; True and False are not."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)
