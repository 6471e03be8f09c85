"""Assignments on one agent: they serve, drain, end, crash, and never meet another job's readers."""

import os
import signal
import threading
from pathlib import Path

import grpc
import psutil
from agent_process import Crew, alive, refuses
from command_post import Report
from real_service import eventually
from stock_job import StartJob, StockJob

from cachew_core.proto import stock_pb2


def values_of(job: StockJob) -> list[int]:
    return sorted(value for value, _ in job.read())


def test_an_assigned_slot_serves_its_job_from_the_reported_process(
    crew: Crew, start_job: StartJob
) -> None:
    job = start_job(range(100))
    report = crew.post.wait_until_serving(crew.assign(job.address))
    elements = list(job.read())
    assert sorted(value for value, _ in elements) == list(range(100))
    assert {pid for _, pid in elements} == {report.pid}
    assert report.slot == 0
    assert report.address.startswith("127.0.0.1:")


def test_several_slots_share_one_epoch(crew: Crew, start_job: StartJob) -> None:
    job = start_job(range(200), sleep_us=2_000)
    ids = [crew.assign(job.address, slot=slot) for slot in range(3)]
    pids = {crew.post.wait_until_serving(assignment).pid for assignment in ids}
    elements = list(job.read())
    assert sorted(value for value, _ in elements) == list(range(200))
    assert {pid for _, pid in elements} == pids


def test_a_drain_in_mid_epoch_loses_and_repeats_nothing(crew: Crew, start_job: StartJob) -> None:
    job = start_job(range(600), sleep_us=2_000)
    going = crew.assign(job.address, slot=0)
    staying = crew.assign(job.address, slot=1)
    going_pid = crew.post.wait_until_serving(going).pid
    crew.post.wait_until_serving(staying)
    elements, read_when_drained = [], 0
    for element in job.read():
        elements.append(element)
        if len(elements) == 150:
            crew.post.drain(going)
        if len(elements) >= 150 and not read_when_drained:
            if crew.post.ended(going):
                read_when_drained = len(elements)
            else:
                # A reader that takes its time: the epoch must not end before the drain.
                threading.Event().wait(0.02)
    assert sorted(value for value, _ in elements) == list(range(600))
    assert 150 < read_when_drained < 600
    assert any(pid == going_pid for _, pid in elements[:150])
    assert crew.post.states(going) == ["STARTING", "SERVING", "DRAINING", "ENDED"]
    assert crew.post.wait_until_ended(going).end == Report.DRAINED
    assert not crew.post.ended(staying)


def test_an_idle_worker_is_drained_at_once(crew: Crew, start_job: StartJob) -> None:
    assignment = crew.assign(start_job().address)
    pid = crew.post.wait_until_serving(assignment).pid
    crew.post.drain(assignment)
    assert crew.post.wait_until_ended(assignment).end == Report.DRAINED
    eventually(lambda: not psutil.pid_exists(pid))


def test_a_drain_ordered_before_the_worker_serves_is_kept(crew: Crew, start_job: StartJob) -> None:
    assignment = crew.assign(start_job().address)
    crew.post.drain(assignment)
    assert crew.post.wait_until_ended(assignment).end == Report.DRAINED


def test_a_released_worker_is_gone_when_its_end_is_reported(
    crew: Crew, start_job: StartJob
) -> None:
    assignment = crew.assign(start_job().address)
    serving = crew.post.wait_until_serving(assignment)
    child = psutil.Process(serving.pid)
    crew.post.release(assignment)
    ended = crew.post.wait_until_ended(assignment)
    assert ended.end == Report.RELEASED
    assert not alive(child)
    assert refuses(serving.address)


def test_a_worker_that_is_stopped_is_ended_all_the_same(crew: Crew, start_job: StartJob) -> None:
    assignment = crew.assign(start_job().address)
    child = psutil.Process(crew.post.wait_until_serving(assignment).pid)
    child.suspend()
    crew.post.release(assignment)
    assert crew.post.wait_until_ended(assignment).end == Report.RELEASED
    assert not alive(child)


def test_a_killed_worker_is_reported_as_crashed_with_the_signal(
    crew: Crew, start_job: StartJob
) -> None:
    assignment = crew.assign(start_job().address)
    os.kill(crew.post.wait_until_serving(assignment).pid, signal.SIGKILL)
    ended = crew.post.wait_until_ended(assignment)
    assert ended.end == Report.CRASHED
    assert "SIGKILL" in ended.error


def test_a_slot_that_is_busy_or_not_there_is_refused_by_name(
    crew: Crew, start_job: StartJob
) -> None:
    job = start_job()
    holding = crew.assign(job.address)
    crew.post.wait_until_serving(holding)
    busy = crew.post.wait_until_ended(crew.assign(job.address))
    assert (busy.end, busy.error) == (Report.FAILED, f"slot 0 is busy with {holding}")
    missing = crew.post.wait_until_ended(crew.assign(job.address, slot=3))
    assert (missing.end, missing.error) == (Report.FAILED, "the agent has no slot 3: it has 3")
    assert not crew.post.ended(holding)


def test_commands_for_an_assignment_that_is_not_there_are_answered(crew: Crew) -> None:
    crew.post.release("gone")
    assert crew.post.wait_until_ended("gone").end == Report.RELEASED
    crew.post.drain("never")
    assert crew.post.wait_until_ended("never").end == Report.FAILED


def test_no_port_serves_twice(crew: Crew, start_job: StartJob) -> None:
    job = start_job()
    addresses = []
    for _ in range(6):
        assignment = crew.assign(job.address)
        addresses.append(crew.post.wait_until_serving(assignment).address)
        crew.post.release(assignment)
        crew.post.wait_until_ended(assignment)
    assert len(set(addresses)) == 6
    assert all(refuses(address) for address in addresses)


def test_a_straggling_reader_never_gets_the_next_jobs_elements(
    crew: Crew, start_job: StartJob
) -> None:
    first, second = start_job(range(1_000), sleep_us=1_000), start_job(range(5_000, 5_100))
    assignment = crew.assign(first.address)
    address = crew.post.wait_until_serving(assignment).address
    got: list[int] = []
    straggler = threading.Thread(target=read_into, args=(got, first), daemon=True)
    straggler.start()
    eventually(lambda: len(got) > 10)
    crew.post.release(assignment)
    crew.post.wait_until_ended(assignment)
    crew.post.wait_until_serving(crew.assign(second.address))
    assert values_of(second) == list(range(5_000, 5_100))
    end_tasks(first.address, address)
    straggler.join(60)
    assert not straggler.is_alive()
    assert 10 < len(got) < 1_000
    assert set(got) <= set(range(1_000))


def read_into(got: list[int], job: StockJob) -> None:
    """Reads an epoch, showing each value at once."""
    for value, _ in job.read():
        got.append(value)


def end_tasks(dispatch_address: str, worker_address: str) -> None:
    """Says for a worker that is gone that its task is completed; stock counts tasks from 4000."""
    update = stock_pb2.WorkerUpdateRequest(
        worker_address=worker_address,
        updates=[stock_pb2.TaskProgress(task_id=4000, completed=True)],
    )
    with grpc.insecure_channel(dispatch_address) as channel:
        call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
            "/tensorflow.data.DispatcherService/WorkerUpdate"
        )
        call(update.SerializeToString(), timeout=30)


def test_the_agent_beats_and_has_no_tensorflow_in_it(crew: Crew) -> None:
    before = crew.post.beats
    eventually(lambda: crew.post.beats > before + 2)
    maps = Path(f"/proc/{crew.agent.pid}/maps").read_text()
    assert "tensorflow" not in maps
    assert psutil.Process(crew.agent.pid).memory_info().rss < 80 * 1024**2


def test_a_worker_holds_no_descriptor_of_its_siblings(crew: Crew, start_job: StartJob) -> None:
    job = start_job()
    ids = [crew.assign(job.address, slot=slot) for slot in range(2)]
    first, second = (crew.post.wait_until_serving(assignment).pid for assignment in ids)
    own = [sockets_of(first), sockets_of(second)]
    assert own[0]
    assert not own[0] & own[1]
    assert not (own[0] | own[1]) & sockets_of(psutil.Process(first).ppid())


def sockets_of(pid: int) -> set[str]:
    links = [os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir() if path.is_symlink()]
    return {link for link in links if link.startswith("socket:")}


def test_the_agent_survives_the_death_of_the_process_that_forks(
    crew: Crew, start_job: StartJob
) -> None:
    before = crew.assign(start_job().address)
    pid = crew.post.wait_until_serving(before).pid
    forking = psutil.Process(pid).parent()
    assert forking is not None
    forking.kill()
    ended = crew.post.wait_until_ended(before)
    assert ended.end == Report.CRASHED
    eventually(lambda: not psutil.pid_exists(pid))
    job = start_job()
    crew.post.wait_until_serving(crew.assign(job.address))
    assert values_of(job) == list(range(100))
