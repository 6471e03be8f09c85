"""Direct reads: a trainer that sees the cache's volume reads what is stored itself.

Whether an epoch is read directly is decided at its start, by the dispatcher. So the trainer's graph
holds both ways, one behind the other, and one of them is empty: a dataset of chunk files' names,
which are read here, and then what the workers send.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from cachew_core import rpc, stock
from cachew_core.cache import read_proof
from cachew_core.client.arguments import ReadOptions
from cachew_core.errors import SettingsError
from cachew_core.pipeline import Prepared
from cachew_core.pipeline.caching import stored_elements
from cachew_core.pipeline.points import CachePoint, cache_points
from cachew_core.policy.modes import END, CachePolicy, parse_policy
from cachew_core.proto import cachew_pb2

READING_POLICIES = frozenset({CachePolicy.AUTO, CachePolicy.FULL, CachePolicy.GET})
"""Under the others nobody reads the pipeline's end."""

NAMES_REFRESH_MS = 10
"""Between two questions whether there are more names; the dispatcher holds back the answer while
nothing has changed.
"""

ITERATORS = 256
"""Iterators whose files are counted; far more than are open at one time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectReading:
    """How a trainer can read its job's data without workers.

    Attributes:
        end: the pipeline's end; None: it can't.
        proof: what it read on the cache's volume; empty: it can't.
        reason: why it can't, where somebody may want to know.
    """

    end: CachePoint | None = None
    proof: str = ""
    reason: str = ""


def look(
    prepared: Prepared, options: ReadOptions, direct_reads: str, info: cachew_pb2.ServiceInfo
) -> DirectReading:
    """Whether, and how, a trainer reads directly.

    Args:
        prepared: its pipeline.
        options: how the job is read.
        direct_reads: the setting.
        info: what the service says of itself.

    Raises:
        SettingsError: it must, by the setting, and can't.
    """
    if direct_reads == "never":
        return DirectReading()
    found = _look(prepared, options, info)
    if found.reason and direct_reads == "always":
        raise SettingsError(
            f"setting direct_reads='always' can't be kept: {found.reason}; make it so that it can, "
            "or set direct_reads to 'auto'"
        )
    return found


def _look(prepared: Prepared, options: ReadOptions, info: cachew_pb2.ServiceInfo) -> DirectReading:
    if not info.cache_proof_path:
        return DirectReading(reason=f"service {info.name!r} has no cache")
    if parse_policy(options.cache_policy or info.cache_policy) not in READING_POLICIES:
        return DirectReading()
    if refusal := _refusal(options):
        return DirectReading(reason=refusal)
    end = next((point for point in cache_points(prepared.graph) if point.name == END), None)
    if end is None or end.refusal:
        return DirectReading()
    if end.rebatch and options.job_name is not None:
        return DirectReading(
            reason="trainers that share a job can't make its shuffled batches anew from files"
        )
    proof = read_proof(info.cache_proof_path, info.cache_proof_sha256)
    if not proof:
        return DirectReading(
            reason="this trainer does not see the cache's volume: what the service wrote to "
            f"{info.cache_proof_path} can't be read there"
        )
    return DirectReading(end=end, proof=proof)


def _refusal(options: ReadOptions) -> str:
    """Why a job that is read like that is never read directly."""
    if options.processing_mode != "distributed_epoch":
        return f"processing_mode={options.processing_mode!r} reads nothing from a cache"
    if options.num_consumers is not None or options.cross_trainer_cache is not None:
        return "coordinated reads and cross_trainer_cache read nothing from a cache"
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Halves:
    """What workers send, or would send, read from files or sent by them: which, each epoch shows.

    Attributes:
        address: `host:port` of the dispatcher.
        job_id: of the job.
        client_id: of this trainer.
        end: the pipeline's end.
        element_spec: of what workers send.
        compressed: whether they send it compressed.
        max_outstanding_requests: of what workers send; None lets stock choose.
        task_refresh_interval_ms: how often the dispatcher is asked for workers.
    """

    address: str
    job_id: str
    client_id: str
    end: CachePoint
    element_spec: Any
    compressed: bool
    max_outstanding_requests: int | None
    task_refresh_interval_ms: int

    def dataset(self) -> tf.data.Dataset:
        """The elements; each iterator over it is one epoch."""
        opened = stock.cpu_variable(tf.constant(-1, tf.int64))
        files = stock.cpu_variable(tf.zeros([ITERATORS], tf.int64))
        halves = tf.data.Dataset.from_tensor_slices([True, False])
        # Both halves of an iterator are told by its number to belong together.
        numbered = halves.scan(
            tf.constant(-1, tf.int64),
            lambda number, is_first: _twice(
                tf.cond(is_first, lambda: opened.assign_add(1), lambda: number), is_first
            ),
        )
        # `concatenate` would keep the first half until the second one ends.
        elements = numbered.flat_map(
            lambda number, is_first: stock.variant_dataset(
                self._half(number, is_first, files), stock.flat_specs(self.element_spec)
            )
        )
        return stock.Respecified(elements, self.element_spec)

    def _half(self, number: tf.Tensor, is_first: tf.Tensor, files: tf.Variable) -> tf.Tensor:
        reader = tf.strings.join([self.client_id, tf.strings.as_string(number)], "/")
        place = number % ITERATORS

        def stored() -> tf.Tensor:
            files.scatter_nd_update([[place]], [0])
            return stock.variant_of(self._stored(reader, place, files))

        def sent() -> tf.Tensor:
            # A name that was lost on its way would else be a file that nobody reads.
            counted = tf.strings.join([reader, tf.strings.as_string(files[place])], "/")
            return stock.variant_of(self._sent(counted))

        variant: tf.Tensor = tf.cond(is_first, stored, sent)
        return variant

    def _stored(self, reader: tf.Tensor, place: tf.Tensor, files: tf.Variable) -> tf.data.Dataset:
        names = stock.service_elements(
            address=self.address,
            dataset_id=self.job_id + rpc.NAMES,
            job_name=reader,
            element_spec=tf.TensorSpec([], tf.string),
            # What lies in a buffer can't be read by another trainer of the job.
            max_outstanding_requests=1,
            task_refresh_interval_ms=NAMES_REFRESH_MS,
        )
        end = self.end

        def counted(name: tf.Tensor) -> tf.Tensor:
            files.scatter_nd_add([[place]], [1])
            return name

        return stored_elements(
            stock.sequential_map(names, counted),
            end.specs,
            shuffle_rows=_shuffle_rows(end),
            rebatch=end.rebatch,
        )

    def _sent(self, reader: tf.Tensor) -> tf.data.Dataset:
        return stock.service_elements(
            address=self.address,
            dataset_id=self.job_id,
            job_name=reader,
            element_spec=self.element_spec,
            compressed=self.compressed,
            max_outstanding_requests=self.max_outstanding_requests,
            task_refresh_interval_ms=self.task_refresh_interval_ms,
        )


def _twice(number: tf.Tensor, is_first: tf.Tensor) -> tuple[tf.Tensor, tuple[tf.Tensor, tf.Tensor]]:
    """A scan's new state, and its element."""
    return number, (number, is_first)


def _shuffle_rows(end: CachePoint) -> int:
    """The buffer that shuffles at least as well as all of the pipeline's shuffles; 0: none did."""
    buffers = [shuffle.buffer for shuffle in end.shuffles]
    return -2 if any(buffer < 1 for buffer in buffers) else max(buffers, default=0)
