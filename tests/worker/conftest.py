"""Agents, scripted dispatchers and stock dispatch servers for the tests of this folder."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from agent_process import AgentProcess, Crew, StartAgent
from command_post import CommandPost
from real_service import eventually
from stock_job import StartJob, StockJob


@pytest.fixture
def start_agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartAgent]:
    """Starts agents of the test's own."""
    with ExitStack() as stack:

        def start(port: int, **settings: object) -> AgentProcess:
            agent = AgentProcess(tmp_path_factory.mktemp("agent"), port, **settings)
            stack.callback(agent.end)
            return agent

        yield start


@pytest.fixture
def start_job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartJob]:
    """Starts stock dispatch servers."""
    with ExitStack() as stack:

        def start(values: range = range(100), *, sleep_us: int = 0) -> StockJob:
            job = StockJob(tmp_path_factory.mktemp("stock"), values, sleep_us=sleep_us)
            stack.callback(job.close)
            return job

        yield start


@pytest.fixture
def post() -> Iterator[CommandPost]:
    """A dispatcher of the test's own."""
    with CommandPost() as own:
        yield own


@pytest.fixture(scope="module")
def shared_crew(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crew]:
    with CommandPost() as post:
        agent = AgentProcess(tmp_path_factory.mktemp("crew"), post.port, slots=3)
        eventually(lambda: post.hellos() != [])
        yield Crew(post, agent)
        agent.end()


@pytest.fixture
def crew(shared_crew: Crew) -> Iterator[Crew]:
    """The shared crew; what the test leaves assigned is released."""
    yield shared_crew
    post = shared_crew.post
    ids = {m.report.assignment_id for m in post.messages if m.HasField("report")}
    for assignment_id in ids:
        if not post.ended(assignment_id):
            post.release(assignment_id)
            post.wait_until_ended(assignment_id)
