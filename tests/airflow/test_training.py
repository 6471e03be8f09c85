"""What a training gets and gives back, and that nothing of it outlives its task."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import pytest
from airflow.providers.common.compat.sdk import AirflowException, AirflowTaskTimeout, timeout

from cachew_core.errors import ServiceError, SettingsError
from cachew_operators import CachewTrainingOperator

HERE = Path(__file__).parent
ENDPOINT = "grpc://127.0.0.1:1"

# Ignores SIGTERM, as does its child; both write their pids.
STUBBORN = """
trap "" TERM
sleep 600 & echo $! > child
echo $$ > leader.new; mv leader.new leader
wait
"""


def operator(**arguments: Any) -> CachewTrainingOperator:
    given = {"task_id": "training", "endpoint": ENDPOINT, **arguments}
    return CachewTrainingOperator(**given)


def is_alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def pids_in(folder: Path) -> list[int]:
    return [int((folder / name).read_text()) for name in ("leader", "child")]


@pytest.fixture
def trainings() -> Iterator[ModuleType]:
    """A module under a name that another process can't import, as Airflow loads DAG files."""
    spec = importlib.util.spec_from_file_location("unusual_prefix_trainings", HERE / "trainings.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def test_a_function_runs_in_another_process_and_its_result_comes_back(
    trainings: ModuleType,
) -> None:
    result = operator(
        python_callable=trainings.double, op_args=[4], op_kwargs={"times": 2}
    ).execute({})
    assert result["number"] == 16
    assert result["service"] == ENDPOINT
    assert result["pid"] != os.getpid()


def test_a_function_named_by_its_module_is_looked_for_in_the_working_directory() -> None:
    result = operator(
        python_callable="trainings:double", op_kwargs={"number": 1}, cwd=str(HERE)
    ).execute({})
    assert result["number"] == 2


def test_a_static_method_can_be_called(trainings: ModuleType) -> None:
    assert operator(python_callable=trainings.Trainer.train).execute({}) == "trained"


def test_a_result_that_is_not_json_is_left_out(trainings: ModuleType) -> None:
    assert operator(python_callable=trainings.give_an_object).execute({}) is None


def test_an_error_of_the_function_fails_the_task_with_its_text(trainings: ModuleType) -> None:
    with pytest.raises(AirflowException, match=r"exit code 1(.|\n)*the loss is not a number"):
        operator(python_callable=trainings.diverge).execute({})


def test_a_function_without_a_name_is_refused() -> None:
    with pytest.raises(SettingsError, match="top level"):
        operator(python_callable=lambda: 1).execute({})


@pytest.mark.parametrize("name", ["trainings.double", ":double", "trainings:"])
def test_a_text_that_names_no_function_is_refused(name: str) -> None:
    with pytest.raises(SettingsError, match=r"'package\.module:function'"):
        operator(python_callable=name).execute({})


def test_arguments_that_are_not_json_are_refused(trainings: ModuleType) -> None:
    with pytest.raises(SettingsError, match=r"double must be JSON.*set"):
        operator(python_callable=trainings.double, op_args=[{1, 2}]).execute({})


@pytest.mark.parametrize("arguments", [{}, {"python_callable": "a:b", "command": "true"}])
def test_exactly_one_of_function_and_command_is_asked_for(arguments: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match="one of python_callable and command"):
        operator(**arguments).execute({})


def test_a_command_runs_where_and_with_what_it_is_told(tmp_path: Path) -> None:
    program = (
        "import os; open('seen', 'w').write(os.environ['CACHEW_SERVICE'] + os.environ['RATE'])"
    )
    operator(command=[sys.executable, "-c", program], env={"RATE": 0.5}, cwd=str(tmp_path)).execute(
        {}
    )
    assert (tmp_path / "seen").read_text() == f"{ENDPOINT}0.5"


def test_the_environment_that_the_author_gives_wins() -> None:
    operator(command='test "$CACHEW_SERVICE" = mine', env={"CACHEW_SERVICE": "mine"}).execute({})


def test_a_command_that_fails_names_its_exit_code_and_shows_the_end_of_its_output() -> None:
    with pytest.raises(AirflowException) as caught:
        operator(command="seq 100; echo no space left >&2; exit 3").execute({})
    assert "exit code 3" in str(caught.value)
    assert str(caught.value).endswith("99\n100\nno space left")
    assert "\n50\n" not in str(caught.value)


def test_a_command_that_a_signal_ended_names_the_signal() -> None:
    with pytest.raises(AirflowException, match="was ended by SIGKILL"):
        operator(command="kill -9 $$").execute({})


def test_a_program_that_is_not_there_is_named() -> None:
    with pytest.raises(AirflowException, match="no-such-program can't be started"):
        operator(command=["no-such-program"]).execute({})


def test_a_working_directory_that_is_not_there_is_named() -> None:
    with pytest.raises(SettingsError, match="'/no/such/folder' is no folder"):
        operator(command="true", cwd="/no/such/folder").execute({})


def test_modules_in_the_working_directory_do_not_stand_in_for_pythons(tmp_path: Path) -> None:
    (tmp_path / "signal.py").write_text("raise ImportError('not this one')")
    (tmp_path / "model.py").write_text("import signal\ndef train(): return signal.SIGTERM.name")
    assert operator(python_callable="model:train", cwd=str(tmp_path)).execute({}) == "SIGTERM"


def test_output_that_is_not_text_does_not_stop_the_training() -> None:
    operator(command=r"printf '\377\n'").execute({})


def test_without_a_service_of_that_name_the_training_does_not_start(
    cachew_home: Path, tmp_path: Path
) -> None:
    task = operator(command=f"touch {tmp_path}/started", endpoint=None, service_name="nobody")
    with pytest.raises(ServiceError, match="'nobody'"):
        task.execute({})
    assert not (tmp_path / "started").exists()


@contextmanager
def killed_when(task: CachewTrainingOperator, file: Path) -> Iterator[None]:
    """Kills the task, from another thread, once the training has made a file."""

    def kill() -> None:
        deadline = time.monotonic() + 120
        while not file.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        task.on_kill()

    killer = threading.Thread(target=kill)
    killer.start()
    yield
    killer.join()
    assert file.exists()


def test_killing_the_task_ends_even_a_training_that_ignores_sigterm(
    tmp_path: Path,
) -> None:
    task = operator(command=STUBBORN, cwd=str(tmp_path), kill_grace_s=0.3)
    with (
        killed_when(task, tmp_path / "leader"),
        pytest.raises(AirflowException, match="was killed"),
    ):
        task.execute({})
    assert not any(map(is_alive, pids_in(tmp_path)))


def test_a_training_that_ends_well_on_sigterm_is_a_killed_task_all_the_same(
    tmp_path: Path,
) -> None:
    patient = 'trap "echo saved > checkpoint; exit 0" TERM; touch ready; sleep 600 & wait'
    task = operator(command=patient, cwd=str(tmp_path), kill_grace_s=20)
    with killed_when(task, tmp_path / "ready"), pytest.raises(AirflowException, match="was killed"):
        task.execute({})
    assert (tmp_path / "checkpoint").read_text() == "saved\n"


def test_a_timeout_ends_the_training(tmp_path: Path) -> None:
    task = operator(command=STUBBORN, cwd=str(tmp_path), kill_grace_s=0.3)
    with pytest.raises(AirflowTaskTimeout), timeout(2):
        task.execute({})
    task.on_kill()
    assert not any(map(is_alive, pids_in(tmp_path)))


# A task's process, which treats SIGTERM as Airflow 3 does: `execute` goes on after `on_kill`.
TASK_PROCESS = f"""
import signal
from cachew_operators import CachewTrainingOperator
task = CachewTrainingOperator(
    task_id="training", endpoint={ENDPOINT!r}, command={STUBBORN!r}, kill_grace_s=0.3
)
signal.signal(signal.SIGTERM, lambda *_: task.on_kill())
task.execute({{}})
"""


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_training_ends_when_the_tasks_process_is_told_to_end_or_is_killed(
    tmp_path: Path, eventually: Callable[..., None], how: signal.Signals
) -> None:
    process = subprocess.Popen([sys.executable, "-c", TASK_PROCESS], cwd=tmp_path)
    try:
        eventually((tmp_path / "leader").exists, "the training runs")
        process.send_signal(how)
        code = process.wait(60)
    finally:
        process.kill()
        process.wait()
    assert code == (1 if how == signal.SIGTERM else -signal.SIGKILL)
    pids = pids_in(tmp_path)
    eventually(lambda: not any(map(is_alive, pids)), "the training ended")


def test_what_a_training_leaves_behind_in_its_process_group_ends_with_it(tmp_path: Path) -> None:
    operator(command="sleep 600 & echo $! > left", cwd=str(tmp_path)).execute({})
    assert not is_alive(int((tmp_path / "left").read_text()))


def test_a_daemon_that_holds_the_output_open_does_not_hold_the_task(tmp_path: Path) -> None:
    start = "import os, subprocess; p = subprocess.Popen(['sleep', '600'], start_new_session=True);"
    write = "open('daemon', 'w').write(str(p.pid))"
    operator(command=[sys.executable, "-c", start + write], cwd=str(tmp_path)).execute({})
    daemon = int((tmp_path / "daemon").read_text())
    assert is_alive(daemon)
    os.kill(daemon, signal.SIGKILL)


def test_a_line_is_passed_on_as_soon_as_it_is_written(tmp_path: Path) -> None:
    command = "echo first; while ! test -e go; do sleep 0.05; done; echo second"
    guard = [sys.executable, "-m", "cachew_operators.guard", "1", "/bin/sh", "-c", command]
    with subprocess.Popen(
        guard, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=tmp_path
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "first\n"
        (tmp_path / "go").touch()
        assert process.stdout.read() == "second\n"
        assert process.wait() == 0
