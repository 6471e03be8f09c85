"""Synchronous training: two trainer processes under MultiWorkerMirroredStrategy, a custom loop."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

from real_service import RealService

from cachew_core.ports import PortPool

STEPS = 12

TRAINER = """
    import sys
    import tensorflow as tf
    import cachew_core as cachew

    strategy = tf.distribute.MultiWorkerMirroredStrategy()

    def dataset(context):
        numbers = tf.data.Dataset.range(96).map(lambda i: tf.cast(i, tf.float32))
        batches = numbers.batch(8, drop_remainder=True).repeat()
        return batches.apply(cachew.distribute(service=sys.argv[1], job_name="synchronous"))

    @tf.function
    def step(batch):
        sums = strategy.run(tf.reduce_sum, args=(batch,))
        return strategy.reduce(tf.distribute.ReduceOp.SUM, sums, axis=None)

    batches = iter(strategy.distribute_datasets_from_function(dataset))
    totals = [float(step(next(batches))) for _ in range(int(sys.argv[2]))]
    print("totals", totals, flush=True)
"""


def trainer(
    index: int, addresses: list[str], service: RealService, log: Path
) -> subprocess.Popen[bytes]:
    cluster = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
    with log.open("wb") as stream:
        return subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(TRAINER), service.endpoint, str(STEPS)],
            env={**os.environ, "TF_CONFIG": json.dumps(cluster), "CUDA_VISIBLE_DEVICES": ""},
            stdout=stream,
            stderr=subprocess.STDOUT,
        )


def test_two_synchronous_trainers_share_a_job_and_take_the_same_steps(
    four_workers: RealService, tmp_path: Path
) -> None:
    with PortPool(rest_s=0) as ports:
        reservations = [ports.reserve() for _ in range(2)]
        addresses = [f"localhost:{reservation.port}" for reservation in reservations]
    logs = [tmp_path / f"{index}.log" for index in range(2)]
    trainers = [trainer(i, addresses, four_workers, log) for i, log in enumerate(logs)]
    try:
        codes = [process.wait(240) for process in trainers]
    finally:
        for process in trainers:
            process.kill()
    texts = [log.read_text(errors="replace") for log in logs]
    assert codes == [0, 0], texts
    totals = [text.partition("totals ")[2].splitlines()[0] for text in texts]
    assert totals[0] == totals[1]
    assert len(json.loads(totals[0])) == STEPS
