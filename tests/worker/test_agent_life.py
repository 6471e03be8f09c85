"""An agent's start, its end by signal, command or loss, and what it leaves behind: nothing."""

import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
import psutil
import pytest
from agent_process import AgentProcess, StartAgent, refuses
from command_post import CommandPost, Report
from lasting_ports import lasting_port
from real_service import eventually
from stock_job import StartJob, StockJob

from cachew_core.proto import cachew_pb2


def serve(
    post: CommandPost, agent: AgentProcess, job: StockJob, *, slot: int = 0
) -> cachew_pb2.AssignmentReport:
    """Has a slot serve the job as assignment `a<slot>`."""
    eventually(lambda: post.hellos() != [] or agent.process.poll() is not None)
    post.assign(f"a{slot}", job.address, slot=slot)
    report = post.wait_until_serving(f"a{slot}")
    assert psutil.Process(report.pid) in agent.family()
    return report


def test_the_hello_names_versions_slots_host_and_pid(
    post: CommandPost, start_agent: StartAgent
) -> None:
    agent = start_agent(post.port, slots=2, host="127.0.0.1")
    eventually(lambda: post.hellos() != [])
    hello = post.hellos()[0]
    assert hello.versions == post.versions
    assert (hello.slots, hello.host, hello.pid) == (2, "127.0.0.1", agent.pid)
    agent.family()
    agent.process.terminate()
    assert agent.wait() == 0
    agent.wait_until_nothing_is_left()


def test_a_killed_agent_leaves_no_process_port_or_file(
    post: CommandPost, start_agent: StartAgent, start_job: StartJob
) -> None:
    agent, job = start_agent(post.port, slots=2), start_job()
    addresses = [serve(post, agent, job, slot=slot).address for slot in range(2)]
    assert len(agent.family()) == 3
    agent.process.kill()
    agent.wait()
    agent.wait_until_nothing_is_left()
    assert all(refuses(address) for address in addresses)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_an_agent_that_is_ended_at_its_start_leaves_nothing(
    post: CommandPost, start_agent: StartAgent, number: signal.Signals
) -> None:
    agent = start_agent(post.port)
    eventually(lambda: agent.family() != set())
    assert post.hellos() == []
    agent.process.send_signal(number)
    assert agent.wait() == (0 if number == signal.SIGTERM else -number)
    agent.wait_until_nothing_is_left()


def test_a_signal_to_all_the_terminals_processes_drains_in_mid_epoch(
    post: CommandPost, start_agent: StartAgent, start_job: StartJob
) -> None:
    job = start_job(range(400), sleep_us=2_000)
    with CommandPost() as other:
        going, staying = start_agent(post.port), start_agent(other.port)
        serve(post, going, job)
        serve(other, staying, job)
        post.on_leaving = lambda: post.drain("a0")
        values = []
        for value, _ in job.read():
            values.append(value)
            if len(values) == 100:
                going.signal_its_group(signal.SIGINT)
            if len(values) >= 100 and not post.ended("a0"):
                threading.Event().wait(0.02)
        assert going.wait() == 0
    assert sorted(values) == list(range(400))
    assert post.reports("a0")[-1].end == Report.DRAINED
    going.wait_until_nothing_is_left()


def test_an_agent_that_leaves_waits_for_orders_and_drops_the_rest_after_its_grace(
    post: CommandPost, start_agent: StartAgent, start_job: StartJob
) -> None:
    agent, job = start_agent(post.port, slots=2, grace_s=2), start_job()
    serve(post, agent, job, slot=0)
    serve(post, agent, job, slot=1)
    post.on_leaving = lambda: post.release("a1")
    agent.process.terminate()
    post.wait_until_ended("a1")
    assert post.states("a0") == ["STARTING", "SERVING"]
    assert agent.wait() == 0
    assert not post.ended("a0")
    agent.wait_until_nothing_is_left()


def test_a_second_signal_ends_a_leaving_agent_at_once(
    post: CommandPost, start_agent: StartAgent, start_job: StartJob
) -> None:
    agent, job = start_agent(post.port, grace_s=600), start_job()
    serve(post, agent, job)
    agent.process.terminate()
    eventually(lambda: any(message.HasField("leaving") for message in post.messages))
    agent.process.terminate()
    assert agent.wait() == 0
    agent.wait_until_nothing_is_left()


def test_the_dispatcher_can_end_an_agent(
    post: CommandPost, start_agent: StartAgent, start_job: StartJob
) -> None:
    agent, job = start_agent(post.port), start_job()
    address = serve(post, agent, job).address
    post.shut_down()
    assert agent.wait() == 0
    assert refuses(address)
    agent.wait_until_nothing_is_left()


def test_children_serve_while_the_dispatcher_is_away_and_are_reported_when_it_is_back(
    start_agent: StartAgent, start_job: StartJob
) -> None:
    job = start_job(range(300), sleep_us=2_000)
    with CommandPost(port=lasting_port()) as before:
        agent = start_agent(before.port, slots=2)
        first = serve(before, agent, job)
        before.assign("doomed", job.address, slot=1)
        doomed = before.wait_until_serving("doomed")
    values = [value for value, _ in job.read()]
    psutil.Process(doomed.pid).kill()
    with CommandPost(port=before.port) as after:
        eventually(lambda: after.reports("a0") != [] and after.ended("doomed"))
        assert after.hellos()[0].agent_id == before.hellos()[0].agent_id
        again = after.reports("a0")[0]
        assert (again.state, again.pid, again.address) == (
            Report.SERVING,
            first.pid,
            first.address,
        )
        assert after.wait_until_ended("doomed").end == Report.CRASHED
        after.release("a0")
        after.wait_until_ended("a0")
    assert sorted(values) == list(range(300))


def test_an_agent_whose_dispatcher_stays_away_ends_with_one_sentence(
    start_agent: StartAgent, start_job: StartJob
) -> None:
    with CommandPost() as post:
        agent = start_agent(post.port, dispatcher_deadline_s=2)
        serve(post, agent, start_job())
    assert agent.wait() == 1
    agent.wait_until_nothing_is_left()
    last = agent.log.read_text().splitlines()[-1]
    assert last.startswith(f"error: the dispatcher at grpc://127.0.0.1:{post.port} could not be")


def test_an_agent_that_finds_no_dispatcher_ends_with_one_sentence(start_agent: StartAgent) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    agent = start_agent(port, dispatcher_deadline_s=0.5)
    assert agent.wait() == 1
    assert f"error: the dispatcher at grpc://127.0.0.1:{port} could not" in agent.log.read_text()


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("api", 99, "speaks version 99 of Cachew's API"),
        ("tensorflow", "2.5.0", "runs TensorFlow 2.5.0, which Cachew does not support"),
    ],
)
def test_a_dispatcher_of_another_version_is_refused_before_the_hello(
    post: CommandPost, start_agent: StartAgent, field: str, value: object, words: str
) -> None:
    setattr(post.versions, field, value)
    agent = start_agent(post.port)
    assert agent.wait() == 1
    last = agent.log.read_text().splitlines()[-1]
    assert last.startswith("error: ")
    assert words in last
    assert post.hellos() == []


def test_a_range_of_ports_is_kept_to_and_its_end_is_reported(
    post: CommandPost, start_agent: StartAgent, start_job: StartJob
) -> None:
    with socket.create_server(("::", 0), family=socket.AF_INET6) as probe:
        port = probe.getsockname()[1]
    agent, job = start_agent(post.port, slots=2, port_range=f"{port}-{port}"), start_job()
    assert serve(post, agent, job).address == f"127.0.0.1:{port}"
    post.assign("more", job.address, slot=1)
    ended = post.wait_until_ended("more")
    assert ended.end == Report.FAILED
    assert f"no port is free in {port}-{port}: 1 are in use here" in ended.error


def test_an_agent_without_a_dispatcher_setting_says_how_to_give_it(start_agent: StartAgent) -> None:
    agent = start_agent(1, dispatcher="")
    assert agent.wait() == 2
    assert "setting dispatcher is empty" in agent.log.read_text()


def test_an_endpoint_that_is_no_dispatcher_is_refused_with_a_question(
    start_agent: StartAgent,
) -> None:
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    agent = start_agent(port)
    assert agent.wait() == 1
    server.stop(0).wait()
    assert agent.log.read_text().splitlines()[-1].endswith("is it a Cachew dispatcher?")
