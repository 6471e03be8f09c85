"""Trainers that are frozen, killed or started again."""

import signal
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path

import tensorflow as tf
from real_service import RealService, eventually

import cachew_core as cachew

TRAINER = """
    import sys, time
    import tensorflow as tf
    import cachew_core as cachew
    dataset = tf.data.Dataset.range(4000).apply(cachew.sleep(1000)).apply(
        cachew.distribute(service=sys.argv[1], job_name="job"))
    seen = 0
    try:
        for _ in dataset:
            seen += 1
            print(seen, flush=True)
            time.sleep(0.005)
    except tf.errors.OpError as error:
        print("error:", error.message, flush=True)
"""


class TrainerProcess:
    """A trainer in a process of its own that reads one epoch and prints how far it is."""

    def __init__(self, service: RealService, folder: Path) -> None:
        self._output = folder / "trainer.log"
        with self._output.open("wb") as stream:
            self.process = subprocess.Popen(
                [sys.executable, "-c", textwrap.dedent(TRAINER), service.endpoint],
                stdout=stream,
                stderr=subprocess.STDOUT,
            )

    def output(self) -> str:
        return self._output.read_text(errors="replace")

    def wait_for(self, text: str) -> None:
        eventually(lambda: text in self.output())


def test_a_frozen_trainer_hears_why_its_epoch_ended(tmp_path: Path) -> None:
    with RealService(tmp_path, "--client-timeout", "2") as service:
        service.add_agent(1)
        trainer = TrainerProcess(service, tmp_path)
        trainer.wait_for("\n20\n")
        trainer.process.send_signal(signal.SIGSTOP)
        eventually(lambda: service.job("job").state != "running")
        trainer.process.send_signal(signal.SIGCONT)
        trainer.wait_for("error:")
        trainer.process.wait(60)
        message = trainer.output().partition("error:")[2]
        assert "silent for too long" in message
        assert "start the epoch again" in message


def test_a_killed_trainer_frees_its_workers_and_its_successor_gets_a_whole_epoch(
    service: RealService, tmp_path: Path
) -> None:
    service.add_agent(1)
    trainer = TrainerProcess(service, tmp_path)
    trainer.wait_for("\n20\n")
    trainer.process.kill()
    trainer.process.wait()
    dataset = tf.data.Dataset.range(4000).apply(cachew.sleep(1000))
    successor = dataset.apply(cachew.distribute(service=service.endpoint, job_name="job"))
    assert Counter(int(i) for i in successor) == Counter(range(4000))
    assert [epoch.epoch for epoch in service.epochs("job")] == [1, 2]


def test_a_killed_trainer_is_gone_long_before_one_that_is_only_silent(tmp_path: Path) -> None:
    with RealService(tmp_path, "--client-reconnect", "1", "--client-timeout", "3600") as service:
        service.add_agent(1)
        trainer = TrainerProcess(service, tmp_path)
        trainer.wait_for("\n20\n")
        trainer.process.kill()
        trainer.process.wait()
        eventually(lambda: service.job("job").state == "ended")
        eventually(lambda: all(not worker.job for worker in service.status().workers))
