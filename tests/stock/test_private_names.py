"""What the adapter takes from TensorFlow beyond its public API: one test a name, which it tells."""

import gc
from collections import Counter
from pathlib import Path
from typing import Any

import grpc
import pytest
import tensorflow as tf

import cachew_core.stock
from cachew_core.dispatcher.front import STOCK_VERSION
from cachew_core.proto import stock_pb2

stock: Any = cachew_core.stock
"""Untyped here: what it imports for itself is what this looks at."""

PRIVATE = [
    (tf.data.Dataset, "_variant_tensor"),
    (tf.data.Dataset, "_inputs"),
    (tf.data.Dataset, "_functions"),
    (tf.data.Dataset, "_flat_types"),
    (tf.data.Dataset, "_flat_shapes"),
    (stock.dataset_ops, "_VariantDataset"),
    (stock.dataset_ops, "UnaryDataset"),
    (stock.dataset_ops, "UnaryUnchangedStructureDataset"),
    (stock.iterator_ops, "OwnedIterator"),
    (stock.map_op, "_MapDataset"),
    (stock.data_service_ops, "_from_dataset_id"),
    (stock.compression_ops, "compress"),
    (stock.structure, "get_flat_tensor_specs"),
    (stock.nested_structure_coder, "encode_structure"),
    (stock.resource_variable_ops, "ResourceVariable"),
    (stock.resource_variable_ops, "EagerResourceDeleter"),
    (tf.raw_ops, "LatencyStatsDataset"),
    (tf.raw_ops, "SetStatsAggregatorDataset"),
    (tf.raw_ops, "StatsAggregatorHandle"),
    (tf.raw_ops, "StatsAggregatorSummary"),
    (stock.context.context(), "has_function"),
    (stock.context.context(), "add_function_def"),
]


@pytest.mark.parametrize(("holder", "name"), PRIVATE, ids=[name for _, name in PRIVATE])
def test_tensorflow_still_has_the_name(holder: Any, name: str) -> None:
    assert hasattr(holder, name) or name in getattr(holder, "__annotations__", {}), (
        f"TensorFlow {tf.__version__} no longer has {holder}.{name}: mend cachew_core/stock.py"
    )


def test_a_dataset_survives_its_graph() -> None:
    dataset = tf.data.Dataset.range(5).map(lambda i: {"a": i, "b": tf.strings.as_string(i)})
    again = stock.dataset_of(stock.graph_of(dataset), dataset.element_spec)
    assert [int(e["a"]) for e in again] == list(range(5))


def test_the_constants_of_a_source_and_of_a_functions_captures_are_found() -> None:
    weights = tf.constant([1.0, 2.0])
    source = tf.data.Dataset.from_tensor_slices([1, 2, 3])
    mapped = source.map(lambda i: weights * tf.cast(i, tf.float32))
    assert [t.shape for t in stock.constants_of(source)] == [[3]]
    assert [t.shape for t in stock.constants_of(mapped)] == [[2]]
    assert stock.inputs_of(mapped) == [source]


def test_a_map_on_the_asking_thread_gives_what_map_gives() -> None:
    dataset = stock.sequential_map(tf.data.Dataset.range(4), lambda i: i + 1)
    assert [int(i) for i in dataset] == [1, 2, 3, 4]


def test_the_variable_of_the_adapter_is_never_a_mirrored_one() -> None:
    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        variable = stock.cpu_variable(tf.constant(1))
    assert type(variable) is stock.resource_variable_ops.ResourceVariable


def test_what_passes_is_booked_by_tag_beside_the_books_of_other_operators() -> None:
    passages = stock.Passages()
    other = stock.Passages()
    slow = stock.SleepDataset(tf.data.Dataset.range(3), 10_000)
    both = stock.timed(slow, "slow").concatenate(stock.timed(tf.data.Dataset.range(4), "fast"))
    assert [int(i) for i in stock.TimedPassages(both, passages)] == [0, 1, 2, 0, 1, 2, 3]
    passed = passages.read()
    assert {tag: books.elements for tag, books in passed.items()} == {"slow": 3, "fast": 4}
    assert passed["slow"].wait_s >= 0.03
    assert 0.01 <= passed["slow"].longest_s < passed["slow"].wait_s
    assert other.read() == {}


def test_the_books_end_with_their_last_user() -> None:
    passages = stock.Passages()
    dataset = stock.TimedPassages(tf.data.Dataset.range(1), passages)
    handle = passages.handle
    del passages
    tf.raw_ops.StatsAggregatorSummary(iterator=handle)
    del dataset
    gc.collect()
    with pytest.raises(tf.errors.NotFoundError):
        tf.raw_ops.StatsAggregatorSummary(iterator=handle)


def test_the_end_is_told_once_when_it_is_reached() -> None:
    told = stock.cpu_variable(tf.constant(0))
    dataset = stock.ending_with(tf.data.Dataset.range(3), lambda: told.assign_add(1))
    iterator = iter(dataset)
    assert [int(next(iterator)) for _ in range(3)] == [0, 1, 2]
    assert told.numpy() == 0
    assert list(iterator) == []
    assert told.numpy() == 1


def test_sleep_gives_the_elements_it_gets() -> None:
    assert [int(i) for i in stock.SleepDataset(tf.data.Dataset.range(3), 1)] == [0, 1, 2]


def test_the_server_messages_have_the_fields_that_the_public_classes_lack() -> None:
    dispatcher = stock.service_config_pb2.DispatcherConfig.DESCRIPTOR.fields_by_name
    assert {"client_timeout_ms", "gc_dynamic_sharding_jobs", "job_gc_timeout_ms"} <= set(dispatcher)


def test_stock_speaks_the_version_and_the_messages_that_the_front_speaks(tmp_path: Path) -> None:

    server = stock.start_dispatch_server(
        port=0, work_dir=str(tmp_path), client_timeout_ms=60_000, job_gc_ms=1_000
    )
    service = "/tensorflow.data.DispatcherService/"
    with grpc.insecure_channel(server.target.split("://")[1]) as channel:

        def call(method: str, request: Any) -> bytes:
            ask: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(service + method)
            return ask(request.SerializeToString(), timeout=30)

        version = stock_pb2.GetVersionResponse.FromString(
            call("GetVersion", stock_pb2.GetVersionRequest())
        )
        assert version.version == STOCK_VERSION
        registered = stock_pb2.GetOrRegisterDatasetResponse.FromString(
            call(
                "GetOrRegisterDataset",
                stock_pb2.GetOrRegisterDatasetRequest(
                    dataset=stock_pb2.DatasetDef(
                        graph=stock.graph_of(tf.data.Dataset.range(3)).SerializeToString()
                    ),
                    metadata=stock_pb2.DataServiceMetadata(
                        element_spec=stock.encode_element_spec(tf.TensorSpec([], tf.int64)),
                        compression=stock_pb2.COMPRESSION_OFF,
                        cardinality=3,
                    ),
                    dataset_id="three",
                ),
            )
        )
        assert registered.dataset_id == "three"
        metadata = stock_pb2.GetDataServiceMetadataResponse.FromString(
            call(
                "GetDataServiceMetadata",
                stock_pb2.GetDataServiceMetadataRequest(dataset_id="three"),
            )
        ).metadata
        assert (metadata.cardinality, metadata.compression) == (3, stock_pb2.COMPRESSION_OFF)
    server.stop()


def test_the_elements_of_a_compressed_dataset_are_one_variant() -> None:
    compressed = stock.compressed(tf.data.Dataset.range(3).map(lambda i: (i, i)))
    assert stock.flat_specs(compressed.element_spec)[0].dtype == tf.variant
    assert Counter(1 for _ in compressed) == Counter({1: 3})


def test_a_name_as_we_send_it_is_a_scalar_string_to_tensorflow() -> None:
    name = stock_pb2.StringTensor(
        dtype=tf.string.as_datatype_enum,
        tensor_shape=stock_pb2.StringTensor.Shape(),
        string_val=[b"/a/path"],
    )
    proto = tf.make_tensor_proto(0)
    proto.ParseFromString(name.SerializeToString())
    tensor = tf.constant(tf.make_ndarray(proto))
    assert (tensor.shape, tensor.numpy()) == ([], b"/a/path")
