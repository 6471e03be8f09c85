"""The only module that names private parts of TensorFlow, and the door to stock tf.data service.

Each private name stands here once, with the reason; `tests/stock` fails, naming it, when a
TensorFlow version changes one. Importing this module imports TensorFlow.
"""

from __future__ import annotations

import uuid
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import tensorflow as tf

# These messages have no public import path, only public functions and raw ops that take them.
from tensorflow.core.framework import graph_pb2
from tensorflow.core.protobuf import data_service_pb2, service_config_pb2

# `tf.data.experimental.service.from_dataset_id` leaves out `task_refresh_interval_hint_ms`, without
# which an epoch ends up to 1 s late.
from tensorflow.python.data.experimental.ops import compression_ops, data_service_ops

# A dataset op that has no Python class is wrapped by deriving from these.
# `map_op` holds the map that runs its function on the thread that asks
# (`use_inter_op_parallelism`).
# `structured_function` traces the function of an op that has no method of `tf.data.Dataset`.
from tensorflow.python.data.ops import dataset_ops, iterator_ops, map_op, structured_function

# Flat tensor specs of a nested element spec are what dataset nodes declare; no public function
# gives them.
from tensorflow.python.data.util import structure

# Functions that `import_graph_def` brings along are known to one graph only; datasets look theirs
# up in the context.
from tensorflow.python.eager import context

# `tf.Variable` in a strategy's scope is a mirrored one; this class is always the plain one. The
# module also ends a resource with the Python object that holds it.
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


def save_dataset(
    dataset: tf.data.Dataset,
    path: str | tf.Tensor,
    shard_of: Callable[..., tf.Tensor] | None = None,
) -> tf.data.Dataset:
    """The same elements, written to files while they pass.

    `Dataset.save` is no pass-through, and stock's Python class of this op writes to `path` when it
    is built.

    Args:
        dataset: its elements are flat tuples.
        path: of a folder, which is made when an iterator is.
        shard_of: gives an element's file number, a scalar int64, from its components; None: there
            is one file.
    """
    spec = dataset.element_spec
    function = structured_function.StructuredFunctionWrapper(
        tf.autograph.experimental.do_not_convert(shard_of or _only_file), "save", dataset=dataset
    ).function
    variant = tf.raw_ops.SaveDatasetV2(
        input_dataset=dataset._variant_tensor,
        path=path,
        shard_func_other_args=function.captured_inputs,
        shard_func=function,
        use_shard_func=shard_of is not None,
        compression="",
        output_types=structure.get_flat_tensor_types(spec),
        output_shapes=structure.get_flat_tensor_shapes(spec),
    )
    return dataset_ops._VariantDataset(variant, spec)


def _only_file(*_: tf.Tensor) -> tf.Tensor:
    return tf.constant(0, tf.int64)


def saved_elements(file: tf.Tensor, element_spec: Any) -> tf.data.Dataset:
    """The elements in one file that `save_dataset` wrote, uncompressed.

    Args:
        file: its path, a scalar string.
        element_spec: of the dataset that was saved.
    """
    variant = tf.raw_ops.SnapshotChunkDataset(
        chunk_file=file,
        compression="",
        output_types=structure.get_flat_tensor_types(element_spec),
        output_shapes=structure.get_flat_tensor_shapes(element_spec),
    )
    return dataset_ops._VariantDataset(variant, element_spec)


def encode_element_spec(element_spec: Any) -> bytes:
    """An element spec as stock stores it with a dataset."""
    with warnings.catch_warnings():
        # Of a None in the structure, which whoever reads this has imported with TensorFlow.
        warnings.filterwarnings("ignore", "Encoding a StructuredValue with type tf.NoneTensorSpec")
        encoded = nested_structure_coder.encode_structure(element_spec)
    return bytes(encoded.SerializeToString())


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Passed:
    """What passed a `timed` dataset, all iterators over it together.

    Attributes:
        elements: that came through, and errors in an element's place.
        wait_s: whoever asked waited for them.
        longest_s: the longest of these waits.
    """

    elements: int = 0
    wait_s: float = 0.0
    longest_s: float = 0.0


class Passages:
    """Where `timed` datasets under a `TimedPassages` keep their books, in C++; safe in all threads.

    The public `tf.data.experimental.StatsAggregator` has left TensorFlow; its kernels have not.
    """

    def __init__(self) -> None:
        with tf.init_scope(), tf.device("CPU:0"):
            # Without a name of its own it would be that of all others.
            self._handle = tf.raw_ops.StatsAggregatorHandle(shared_name=f"passages-{uuid.uuid4()}")
        # The op's resource outlives its handle. TensorFlow ends those of its variables so.
        self._deleter = resource_variable_ops.EagerResourceDeleter(self._handle, "CPU:0")

    @property
    def handle(self) -> tf.Tensor:
        """The resource, as raw dataset ops take it."""
        return self._handle

    def read(self) -> dict[str, Passed]:
        """What has passed so far, by tag."""
        encoded = tf.raw_ops.StatsAggregatorSummary(iterator=self._handle).numpy()
        return {
            value.tag.removeprefix(_WAITS): Passed(
                elements=int(value.histo.num),
                wait_s=1e-6 * value.histo.sum,
                longest_s=1e-6 * value.histo.max,
            )
            for value in tf.compat.v1.Summary.FromString(encoded).value
            if value.tag.startswith(_WAITS)
        }


# Operators that the elements come from may keep books of their own in the same place.
_WAITS = "cachew-waits:"


class TimedPassages(UnaryUnchangedStructureDataset):
    """The dataset, whose `timed` parts keep their books in `passages`, which it keeps alive."""

    def __init__(self, input_dataset: tf.data.Dataset, passages: Passages) -> None:
        self._passages = passages
        variant = tf.raw_ops.SetStatsAggregatorDataset(
            input_dataset=input_dataset._variant_tensor,
            stats_aggregator=passages.handle,
            tag="",
            counter_prefix="",
            **_flat(input_dataset),
        )
        super().__init__(input_dataset, variant)


def timed(dataset: tf.data.Dataset, tag: tf.Tensor) -> tf.data.Dataset:
    """The same elements; each one's wait is booked under `tag`, a scalar string, by C++ alone.

    That costs a quarter of what one function an element costs. Needs a `TimedPassages` behind it.
    """
    variant = tf.raw_ops.LatencyStatsDataset(
        input_dataset=dataset._variant_tensor, tag=_WAITS + tag, **_flat(dataset)
    )
    return dataset_ops._VariantDataset(variant, dataset.element_spec)


def ending_with(dataset: tf.data.Dataset, at_end: Callable[[], Any]) -> tf.data.Dataset:
    """The same elements; `at_end` makes its operators once, when the first one asks in vain."""

    def nothing(_: tf.Tensor) -> tf.data.Dataset:
        at_end()
        return dataset.take(0)

    tail = tf.data.Dataset.from_tensors(0).flat_map(
        tf.autograph.experimental.do_not_convert(nothing)
    )
    # `Dataset.concatenate` compares the specs, and not every spec can be compared.
    variant = tf.raw_ops.ConcatenateDataset(
        input_dataset=dataset._variant_tensor,
        another_dataset=tail._variant_tensor,
        **_flat(dataset),
    )
    return dataset_ops._VariantDataset(variant, dataset.element_spec)


def _flat(dataset: tf.data.Dataset) -> dict[str, Any]:
    return {
        "output_types": list(dataset._flat_types),
        "output_shapes": list(dataset._flat_shapes),
    }


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
            **_flat(input_dataset),
        )
        super().__init__(input_dataset, variant)


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


def service_elements(
    *,
    address: str,
    dataset_id: str,
    job_name: tf.Tensor,
    element_spec: Any,
    compressed: bool = False,
    max_outstanding_requests: int | None = None,
    task_refresh_interval_ms: int,
) -> tf.data.Dataset:
    """The stock client op for a graph in which each pass makes it anew, with a name of its own.

    `service_dataset` would also look up, each time, whether elements come compressed.

    Args:
        address: `host:port` of the dispatcher.
        dataset_id: of the registered dataset.
        job_name: a scalar string.
        element_spec: of its elements.
        compressed: whether they come compressed.
        max_outstanding_requests: None lets stock choose.
        task_refresh_interval_ms: how often the dispatcher is asked for workers.
    """
    flat = flat_specs(element_spec)
    sent = (tf.TensorSpec([], tf.variant),) if compressed else flat
    unused = structured_function.StructuredFunctionWrapper(
        lambda *components: components,
        "service_elements",
        input_structure=sent,
    ).function
    mode = data_service_pb2.ProcessingModeDef(
        sharding_policy=data_service_pb2.ProcessingModeDef.DYNAMIC
    )
    variant = tf.raw_ops.DataServiceDatasetV4(
        dataset_id=dataset_id,
        processing_mode=mode.SerializeToString(),
        address=address,
        protocol="grpc",
        job_name=job_name,
        consumer_index=tf.constant(-1, tf.int64),
        num_consumers=tf.constant(-1, tf.int64),
        max_outstanding_requests=tf.constant(
            tf.data.AUTOTUNE if max_outstanding_requests is None else max_outstanding_requests,
            tf.int64,
        ),
        iteration_counter=tf.raw_ops.DummyIterationCounter(),
        output_types=[spec.dtype for spec in sent],
        output_shapes=[spec.shape for spec in sent],
        uncompress_fn=unused,
        task_refresh_interval_hint_ms=task_refresh_interval_ms,
        # AUTO asks the service where its workers are.
        target_workers="ANY",
        uncompress=False,
    )
    received = dataset_ops._VariantDataset(variant, sent)
    if not compressed:
        return Respecified(received, element_spec)
    return received.map(
        lambda element: compression_ops.uncompress(element, output_spec=element_spec),
        num_parallel_calls=tf.data.AUTOTUNE,
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
