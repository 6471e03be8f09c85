"""A stock dispatch server in this process and stock workers in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import tensorflow as tf
from real_service import eventually

from cachew_core import stock
from cachew_core.pipeline.preparation import Prepared
from cachew_core.pipeline.variants import worker_variant
from cachew_core.proto import stock_pb2

WORKER = """
import socket, sys
from cachew_core import stock
with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    port = probe.getsockname()[1]
server = stock.start_worker_server(
    dispatcher_address=sys.argv[1], address=f"127.0.0.1:{port}", port=port, heartbeat_interval_ms=50
)
server.join()
"""


class StockServers:
    """Where variants of prepared pipelines can be read."""

    def __init__(self, server: Any) -> None:
        self.server = server
        self._datasets = 0

    def read(
        self, ready: Prepared, *, sharded: bool = True, single: bool = False, epoch: int = 0
    ) -> tf.data.Dataset:
        """One pass of a pipeline by all workers, put together again."""
        graph = worker_variant(ready.graph, sharded=sharded, single=single, epoch=epoch)
        self._datasets += 1
        dataset_id = f"dataset-{self._datasets}"
        self._register(dataset_id, graph, ready.element_spec)
        sent = stock.service_dataset(
            address=self.server.target.split("://")[1],
            dataset_id=dataset_id,
            job_name=dataset_id,
            processing_mode="distributed_epoch" if sharded else "parallel_epochs",
            element_spec=ready.element_spec,
            task_refresh_interval_ms=20,
        )
        return ready.restore(sent)

    def _register(self, dataset_id: str, graph: bytes, element_spec: Any) -> None:
        # By the call itself: stock's Python function would make the variables in this process.
        request = stock_pb2.GetOrRegisterDatasetRequest(
            dataset=stock_pb2.DatasetDef(graph=graph),
            metadata=stock_pb2.DataServiceMetadata(
                element_spec=stock.encode_element_spec(element_spec),
                compression=stock_pb2.COMPRESSION_OFF,
                cardinality=tf.data.UNKNOWN_CARDINALITY,
            ),
            dataset_id=dataset_id,
        )
        with grpc.insecure_channel(self.server.target.split("://")[1]) as channel:
            call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
                "/tensorflow.data.DispatcherService/GetOrRegisterDataset"
            )
            call(request.SerializeToString(), timeout=30)


@contextmanager
def stock_servers(workers: int) -> Iterator[StockServers]:
    """So many workers that have registered; all ended behind it."""
    with tempfile.TemporaryDirectory() as work_dir:
        server = stock.start_dispatch_server(
            port=0, work_dir=work_dir, client_timeout_ms=60_000, job_gc_ms=60_000
        )
        address = server.target.split("://")[1]
        processes = [
            subprocess.Popen(
                [sys.executable, "-c", WORKER, address],
                env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""},
            )
            for _ in range(workers)
        ]
        try:
            eventually(lambda: server._num_workers() == workers)
            yield StockServers(server)
        finally:
            for process in processes:
                process.kill()
                process.wait()
