"""What trainers register, sent as bytes: by one that dies at once, and by none of ours."""

from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
import tensorflow as tf
from real_service import RealService, eventually

from cachew_core import rpc, stock
from cachew_core.proto import cachew_pb2, cachew_pb2_grpc

ANSWER_S = 120.0


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealService]:
    folder: Path = tmp_path_factory.mktemp("service")
    with RealService(folder, "--client-reconnect", "1", "--client-timeout", "3600") as running:
        yield running


def register(service: RealService, name: str, graph: bytes) -> None:
    request = cachew_pb2.RegisterPipelineRequest(
        client=rpc.own_versions(),
        client_id=name,
        host="here",
        job_name=name,
        fingerprint="f" * 64,
        processing_mode=cachew_pb2.DISTRIBUTED_EPOCH,
        graph=graph,
    )
    with grpc.insecure_channel(rpc.address_of(service.endpoint)) as channel:
        cachew_pb2_grpc.DispatcherStub(channel).RegisterPipeline(request, timeout=ANSWER_S)


def test_a_trainer_that_dies_before_its_stream_begins_is_gone_soon(service: RealService) -> None:
    register(service, "short", stock.graph_of(tf.data.Dataset.range(1)).SerializeToString())
    eventually(lambda: service.job("short").state == "ended")


def _without_result(graph: stock.GraphDef) -> None:
    del graph.node[-1]
    assert all(node.op != "_Retval" for node in graph.node)


def _with_a_dangling_input(graph: stock.GraphDef) -> None:
    graph.node[-1].input[0] = "nowhere:0"


def _that_returns_nothing(graph: stock.GraphDef) -> None:
    del graph.node[-1].input[:]


@pytest.mark.parametrize(
    ("breaking", "said"),
    [
        (_without_result, "has no result"),
        (_with_a_dangling_input, r"reads nodes that it lacks: \['nowhere'\]"),
        (_that_returns_nothing, "returns nothing"),
    ],
)
def test_a_broken_graph_is_refused_and_leaves_no_job(
    service: RealService, breaking: Callable[[stock.GraphDef], None], said: str
) -> None:
    graph = stock.graph_of(tf.data.Dataset.range(1))
    breaking(graph)
    with pytest.raises(grpc.RpcError, match=said) as refused:
        register(service, "broken", graph.SerializeToString())
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "broken" not in {job.job_name for job in service.status().jobs}


def test_what_is_no_graph_is_refused(service: RealService) -> None:
    with pytest.raises(grpc.RpcError, match="can't be read") as refused:
        register(service, "noise", b"\xff\xff not a graph")
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
