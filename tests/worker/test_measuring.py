"""Measurements on a real agent: they answer, fail, crash and hang, and leave nothing behind."""

import json
from pathlib import Path

import psutil
import pytest
import tensorflow as tf
from agent_process import Crew, StartAgent
from command_post import CommandPost
from real_service import eventually
from stock_job import StartJob

from cachew_core import stock
from cachew_core.pipeline.graph import DatasetGraph
from cachew_core.proto import cachew_pb2

Dataset = tf.data.Dataset


def ordered(
    profile_id: str, dataset: tf.data.Dataset, scratch: Path, *, budget_s: float
) -> cachew_pb2.Profile:
    """The order to measure a pipeline at its end."""
    graph = DatasetGraph(stock.graph_of(dataset))
    return cachew_pb2.Profile(
        profile_id=profile_id,
        graph=graph.serialize(),
        points=[graph.sink.name],
        scratch=str(scratch),
        budget_s=budget_s,
        batches=10,
    )


def answer(post: CommandPost, profile_id: str) -> cachew_pb2.ProfileResult:
    """Waits for the only answer to an order."""
    eventually(lambda: profile_id in [result.profile_id for result in post.profiles()])
    [result] = [result for result in post.profiles() if result.profile_id == profile_id]
    return result


def children(crew: Crew) -> list[psutil.Process]:
    """What the spawner has forked and not buried."""
    [spawner] = psutil.Process(crew.agent.pid).children()
    return list(spawner.children())


def check_nothing_is_left(crew: Crew, folder: Path) -> None:
    eventually(lambda: children(crew) == [])
    assert list(folder.iterdir()) == []


def test_a_child_measures_beside_slots_that_are_busy(
    crew: Crew, start_job: StartJob, tmp_path: Path
) -> None:
    job = start_job()
    for slot in range(3):
        crew.post.wait_until_serving(crew.assign(job.address, slot=slot))
    pipeline = stock.SleepDataset(Dataset.range(1000), 1000).batch(5).take(-1)
    crew.post.profile(ordered("good", pipeline, tmp_path / "scratch", budget_s=2))
    result = answer(crew.post, "good")
    assert result.error == ""
    figures = json.loads(result.json)
    assert figures["elements"] > 0
    assert figures["compute_s"] > 0.005
    assert len(figures["points"]) == 1
    assert figures["points"][0]["read_warm_s"] > 0
    assert list(tmp_path.iterdir()) == []


def test_an_error_of_the_pipeline_comes_back_in_words(crew: Crew, tmp_path: Path) -> None:
    pipeline = tf.data.TFRecordDataset([str(tmp_path / "absent.tfrecord")]).take(-1)
    crew.post.profile(ordered("bad", pipeline, tmp_path / "scratch", budget_s=2))
    result = answer(crew.post, "bad")
    assert "absent.tfrecord" in result.error
    assert result.json == ""
    check_nothing_is_left(crew, tmp_path)


def test_a_scratch_folder_that_is_there_is_left_alone(crew: Crew, tmp_path: Path) -> None:
    (tmp_path / "precious").touch()
    crew.post.profile(ordered("there", Dataset.range(3), tmp_path, budget_s=2))
    assert "is there already" in answer(crew.post, "there").error
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]


def test_a_child_that_is_killed_is_said_to_be_and_leaves_nothing(
    crew: Crew, tmp_path: Path
) -> None:
    pipeline = stock.SleepDataset(Dataset.range(1000), 1000)
    crew.post.profile(ordered("killed", pipeline, tmp_path / "scratch", budget_s=60))
    eventually(lambda: (tmp_path / "scratch").exists())
    [child] = children(crew)
    child.kill()
    assert "SIGKILL" in answer(crew.post, "killed").error
    check_nothing_is_left(crew, tmp_path)


def test_a_child_that_hangs_is_ended(crew: Crew, tmp_path: Path) -> None:
    pipeline = stock.SleepDataset(Dataset.range(2), 3_600_000_000)
    crew.post.profile(ordered("hanging", pipeline, tmp_path / "scratch", budget_s=0.5))
    assert "was ended" in answer(crew.post, "hanging").error
    check_nothing_is_left(crew, tmp_path)


@pytest.mark.parametrize("by", ["command", "signal"])
def test_an_agent_that_ends_takes_its_measurements_along(
    post: CommandPost, start_agent: StartAgent, tmp_path: Path, by: str
) -> None:
    agent = start_agent(post.port)
    eventually(lambda: post.hellos() != [])
    pipeline = stock.SleepDataset(Dataset.range(1000), 1000)
    post.profile(ordered("cut", pipeline, tmp_path / "scratch", budget_s=60))
    eventually(lambda: (tmp_path / "scratch").exists())
    assert len(agent.family()) == 2
    if by == "command":
        post.shut_down()
    else:
        agent.process.terminate()
    assert agent.wait() == 0
    agent.wait_until_nothing_is_left()
    assert list(tmp_path.iterdir()) == []
