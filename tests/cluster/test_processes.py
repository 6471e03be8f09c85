from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator

import pytest

from cachew_core.cluster.processes import RUN_VARIABLE, RunProcesses

Check = Callable[..., None]

RUN = "a run of these tests"


@pytest.fixture
def loses_its_environment() -> Iterator[subprocess.Popen[str]]:
    """A process that forgets its environment, as one that ends does, when it reads a line."""
    with subprocess.Popen(
        ["/bin/sh", "-c", "read line; exec env -i sleep 60"],
        env={**os.environ, RUN_VARIABLE: RUN},
        stdin=subprocess.PIPE,
        text=True,
    ) as process:
        yield process
        process.kill()


def _lose_environment(process: subprocess.Popen[str]) -> None:
    print(file=process.stdin, flush=True)


def test_a_process_that_lost_its_environment_is_still_waited_for(
    loses_its_environment: subprocess.Popen[str], eventually: Check
) -> None:
    there = RunProcesses(RUN)
    _lose_environment(loses_its_environment)
    eventually(lambda: not RunProcesses(RUN).look())
    assert [process.pid for process in there.look()] == [loses_its_environment.pid]
    assert not there.gone_within(0.1)
    there.end(grace_s=10)
    assert loses_its_environment.wait(timeout=10) < 0


def test_what_ended_and_was_not_collected_counts_as_gone() -> None:
    with subprocess.Popen(["sleep", "60"], env={**os.environ, RUN_VARIABLE: RUN}) as process:
        there = RunProcesses(RUN)
        process.kill()
        assert there.gone_within(10)
