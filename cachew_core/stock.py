"""The only module that names private parts of TensorFlow, and the door to stock tf.data service.

Each private name stands here once, with the reason; `tests/stock` fails, naming it, when a
TensorFlow version changes one. Importing this module imports TensorFlow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import tensorflow as tf

# The GraphDef and server messages have no public import path, only public functions that take them.
from tensorflow.core.framework import graph_pb2
from tensorflow.core.protobuf import service_config_pb2

# `tf.data.experimental.service.from_dataset_id` leaves out `task_refresh_interval_hint_ms`, without
# which an epoch ends up to 1 s late.
from tensorflow.python.data.experimental.ops import compression_ops, data_service_ops

# A dataset op that has no Python class is wrapped by deriving from these.
# `map_op` holds the map that runs its function on the thread that asks
# (`use_inter_op_parallelism`).
from tensorflow.python.data.ops import dataset_ops, iterator_ops, map_op

# Flat tensor specs of a nested element spec are what dataset nodes declare; no public function
# gives them.
from tensorflow.python.data.util import structure

# Functions that `import_graph_def` brings along are known to one graph only; datasets look theirs
# up in the context.
from tensorflow.python.eager import context

# `tf.Variable` in a strategy's scope is a mirrored one; this class is always the plain one.
from tensorflow.python.ops import resource_variable_ops

# `encode_structure` turns an element spec into the bytes that stock keeps with a dataset.
from tensorflow.python.saved_model import nested_structure_coder

GraphDef: TypeAlias = graph_pb2.GraphDef

UnaryUnchangedStructureDataset: TypeAlias = dataset_ops.UnaryUnchangedStructureDataset
OwnedIterator: TypeAlias = iterator_ops.OwnedIterator

_IGNORE_EXTERNAL_STATE = 1
"""Stateful operators are judged by our own checks, with better words than stock's."""


def graph_of(dataset: tf.data.Dataset) -> GraphDef:
    """The dataset as a graph, its inputs as constants.

    Raises:
        tf.errors.OpError: an operator can't be serialized.
    """
    serialized = tf.raw_ops.DatasetToGraphV2(
        input_dataset=dataset._variant_tensor,
        external_state_policy=_IGNORE_EXTERNAL_STATE,
        strip_device_assignment=True,
    )
    return GraphDef.FromString(serialized.numpy())


def dataset_of(graph: GraphDef, element_spec: Any) -> tf.data.Dataset:
    """The dataset that a graph describes; the inverse of `graph_of`."""
    variant = tf.raw_ops.DatasetFromGraph(graph_def=graph.SerializeToString())
    return dataset_ops._VariantDataset(variant, element_spec)


def variant_dataset(variant: tf.Tensor, element_spec: Any) -> tf.data.Dataset:
    """A dataset around the variant tensor that a raw dataset op made."""
    return dataset_ops._VariantDataset(variant, element_spec)


def variant_of(dataset: tf.data.Dataset) -> tf.Tensor:
    """The variant tensor that raw dataset ops take as their input."""
    return dataset._variant_tensor


def inputs_of(dataset: tf.data.Dataset) -> list[tf.data.Dataset]:
    """The datasets that a dataset reads from."""
    return list(dataset._inputs())


def constants_of(dataset: tf.data.Dataset) -> Iterator[tf.Tensor]:
    """The tensors that a dataset node would bring into a serialized graph, without doing that."""
    yield from getattr(dataset, "_tensors", ())
    for function in dataset._functions():
        yield from function.function.captured_inputs


def encode_element_spec(element_spec: Any) -> bytes:
    """An element spec as stock stores it with a dataset."""
    return bytes(nested_structure_coder.encode_structure(element_spec).SerializeToString())


def compressed(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """The dataset with its elements compressed as stock clients expect them."""
    return dataset.map(
        lambda *element: compression_ops.compress(element), num_parallel_calls=tf.data.AUTOTUNE
    )


def sequential_map(dataset: tf.data.Dataset, function: Callable[..., Any]) -> tf.data.Dataset:
    """`dataset.map(function)` for a few cheap operators.

    No thread is woken for them, which saves 30 us an element.
    """
    plain = tf.autograph.experimental.do_not_convert(function)
    return map_op._MapDataset(dataset, plain, use_inter_op_parallelism=False)


def cpu_variable(initial: tf.Tensor) -> tf.Variable:
    """A variable on the CPU that belongs to no model and no strategy, wherever it is made."""
    with tf.init_scope(), tf.device("CPU:0"):
        return resource_variable_ops.ResourceVariable(initial_value=initial, trainable=False)


def optional_value_spec(spec: tf.OptionalSpec) -> Any:
    """What an optional holds (its spec has no public property for it)."""
    return spec._element_spec


def register_functions(graph: GraphDef) -> None:
    """Makes a graph's functions known to this process: datasets can call and serialize them."""
    for function in graph.library.function:
        if not context.context().has_function(function.signature.name):
            context.context().add_function_def(function)


def flat_specs(element_spec: Any) -> tuple[tf.TensorSpec, ...]:
    """The flat tensors in which datasets hold a spec's elements (ragged, sparse: as variants)."""
    return tuple(structure.get_flat_tensor_specs(element_spec))


class Respecified(dataset_ops.UnaryDataset):
    """The same elements under another spec with the same flat tensors; no operator of its own."""

    def __init__(self, input_dataset: tf.data.Dataset, element_spec: Any) -> None:
        self._spec = element_spec
        super().__init__(input_dataset, input_dataset._variant_tensor)

    @property
    def element_spec(self) -> Any:
        """What the elements are taken for."""
        return self._spec


class SleepDataset(UnaryUnchangedStructureDataset):
    """Waits before each element, in C++ (the raw op has no Python class)."""

    def __init__(self, input_dataset: tf.data.Dataset, microseconds: int) -> None:
        variant = tf.raw_ops.SleepDataset(
            input_dataset=input_dataset._variant_tensor,
            sleep_microseconds=tf.constant(microseconds, tf.int64),
            output_types=self._types(input_dataset),
            output_shapes=self._shapes(input_dataset),
        )
        super().__init__(input_dataset, variant)

    @staticmethod
    def _types(dataset: tf.data.Dataset) -> list[tf.DType]:
        return list(dataset._flat_types)

    @staticmethod
    def _shapes(dataset: tf.data.Dataset) -> list[tf.TensorShape]:
        return list(dataset._flat_shapes)


def service_dataset(
    *,
    address: str,
    dataset_id: str,
    job_name: str,
    processing_mode: str,
    element_spec: Any,
    consumer_index: int | None = None,
    num_consumers: int | None = None,
    max_outstanding_requests: int | None = None,
    task_refresh_interval_ms: int,
    cross_trainer_cache: Any = None,
    target_workers: str = "AUTO",
) -> tf.data.Dataset:
    """The stock client op: reads a registered dataset from the service at `host:port`."""
    return data_service_ops._from_dataset_id(
        processing_mode,
        f"grpc://{address}",
        dataset_id,
        element_spec,
        job_name=job_name,
        consumer_index=consumer_index,
        num_consumers=num_consumers,
        max_outstanding_requests=max_outstanding_requests,
        task_refresh_interval_hint_ms=task_refresh_interval_ms,
        cross_trainer_cache=cross_trainer_cache,
        target_workers=target_workers,
    )


def start_dispatch_server(
    *, port: int, work_dir: str, client_timeout_ms: int, job_gc_ms: int
) -> tf.data.experimental.service.DispatchServer:
    """A stock dispatcher that is already serving.

    The public `DispatcherConfig` has no client time-out and no switch to collect abandoned epochs;
    the message behind it, which the public class also takes, has both.

    Args:
        port: to listen on, on every address of the machine (stock knows no other way).
        work_dir: journal and datasets; makes it survive a restart.
        client_timeout_ms: a reader silent for so long is dropped.
        job_gc_ms: an epoch without a reader ends on the workers after so long.
    """
    config = service_config_pb2.DispatcherConfig(
        port=port,
        protocol="grpc",
        work_dir=work_dir,
        fault_tolerant_mode=True,
        job_gc_check_interval_ms=job_gc_ms,
        job_gc_timeout_ms=job_gc_ms,
        gc_dynamic_sharding_jobs=True,
        client_timeout_ms=client_timeout_ms,
    )
    return tf.data.experimental.service.DispatchServer(config)


def start_worker_server(
    *, dispatcher_address: str, address: str, port: int, heartbeat_interval_ms: int
) -> tf.data.experimental.service.WorkerServer:
    """A stock worker that has registered and is serving.

    Blocks with the GIL held until it has registered.

    Args:
        dispatcher_address: `host:port` of what it takes for its dispatcher (our gate).
        address: `host:port` that trainers are told.
        port: to listen on.
        heartbeat_interval_ms: how often it asks for tasks.
    """
    config = service_config_pb2.WorkerConfig(
        port=port,
        protocol="grpc",
        dispatcher_address=dispatcher_address,
        worker_address=address,
        heartbeat_interval_ms=heartbeat_interval_ms,
        dispatcher_timeout_ms=3_600_000,
        data_transfer_protocol="grpc",
        data_transfer_address=address,
    )
    return tf.data.experimental.service.WorkerServer(config)
