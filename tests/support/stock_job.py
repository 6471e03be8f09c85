"""A real stock dispatch server whose elements say which worker made them."""

from collections.abc import Callable, Iterator
from pathlib import Path

import tensorflow as tf
from real_service import eventually

from cachew_core import stock


class StockJob:
    """A stock dispatch server with one dataset: the values and who made each."""

    def __init__(self, work_dir: Path, values: range, *, sleep_us: int) -> None:
        self._server = stock.start_dispatch_server(
            port=0, work_dir=str(work_dir), client_timeout_ms=10_000, job_gc_ms=10_000
        )
        self.address = str(self._server.target).split("://")[1]
        self._epochs = 0
        dataset = tf.data.Dataset.range(values.start, values.stop)
        if sleep_us:
            dataset = stock.SleepDataset(dataset, sleep_us)
        # The worker's own pid, as Linux tells it to any process that asks.
        dataset = dataset.map(lambda value: (value, tf.io.read_file("/proc/self/stat")))
        tf.data.experimental.service.register_dataset(
            self._server.target, dataset, compression=None, dataset_id="values"
        )
        self._element_spec = dataset.element_spec

    def wait_for_workers(self, count: int) -> None:
        eventually(lambda: self._server._num_workers() == count)

    def read(self) -> Iterator[tuple[int, int]]:
        """One epoch, as (value, pid of the worker)."""
        self._epochs += 1
        dataset = stock.service_dataset(
            address=self.address,
            dataset_id="values",
            element_spec=self._element_spec,
            processing_mode="distributed_epoch",
            job_name=f"epoch-{self._epochs}",
            task_refresh_interval_ms=20,
        )
        for value, stat in dataset:
            yield int(value), int(bytes(stat.numpy()).split()[0])

    def close(self) -> None:
        self._server._stop()


StartJob = Callable[..., StockJob]
