"""The operator that runs a training against a service."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar

from airflow.providers.common.compat.sdk import AirflowException, context_to_airflow_vars

from cachew_core import cluster
from cachew_core.errors import SettingsError
from cachew_operators.base import CachewOperator
from cachew_operators.call import call_of, own_import_roots, read_result, write_call

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

_TAIL_LINES = 20
"""How much of the output goes into the error; the task's log holds all of it."""


class CachewTrainingOperator(CachewOperator):
    """Runs a training in a process of its own, with the endpoint as `CACHEW_SERVICE`.

    `cachew_core.distribute()` finds the service there. The output goes to the task's log line by
    line. When the task is killed, times out or loses its own process, all processes of the
    training's process group are ended: SIGTERM, and SIGKILL after `kill_grace_s`. What the training
    left behind in its process group is ended with it, too.

    Give one of `python_callable` and `command`.

    :param python_callable: a function that a module or the DAG file defines at its top level, or
        its name as ``"package.module:function"``, which keeps the module's imports out of Airflow's
        processes. What it returns goes to XCom, if it is JSON.
    :param op_args: its positional arguments, JSON; templated.
    :param op_kwargs: its keyword arguments, JSON; templated.
    :param command: a list (a program and its arguments) or a text for `sh`; templated.
    :param env: environment variables beside those of Airflow's worker; templated.
    :param cwd: the working directory; modules are looked for there, too. Templated. Default: the
        worker's.
    :param python: the interpreter for `python_callable`; templated. It must have this package, and
        Airflow only if the function is in a DAG file. Default: the worker's.
    :param service_name: the service's name; templated. Default: that of the DAG run, as in
        :class:`CachewServiceOperator`.
    :param endpoint: ``grpc://host:port`` of a service to use instead of looking for `service_name`
        on this machine; templated.
    :param kill_grace_s: seconds between SIGTERM and SIGKILL.
    """

    template_fields: Sequence[str] = (
        "service_name",
        "endpoint",
        "op_args",
        "op_kwargs",
        "command",
        "env",
        "cwd",
        "python",
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {
        "op_args": "py",
        "op_kwargs": "py",
        "command": "bash",
        "env": "json",
    }

    def __init__(
        self,
        *,
        python_callable: str | Callable[..., Any] | None = None,
        op_args: Sequence[Any] = (),
        op_kwargs: Mapping[str, Any] | None = None,
        command: str | Sequence[str] | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        python: str | None = None,
        endpoint: str | None = None,
        kill_grace_s: float = 10,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.python_callable = python_callable
        self.op_args = op_args
        self.op_kwargs = op_kwargs
        self.command = command
        self.env = env
        self.cwd = cwd
        self.python = python
        self.endpoint = endpoint
        self.kill_grace_s = kill_grace_s
        self._guard: subprocess.Popen[str] | None = None

    def execute(self, context: Context) -> Any:
        """Runs the training to its end.

        Returns:
            What `python_callable` returned, if it is JSON; else None.

        Raises:
            AirflowException: it ended with an error or was killed; holds the end of its output.
            SettingsError: an argument can't be used.
            ServiceError: the service is not there.
        """
        tail: deque[str] = deque(maxlen=_TAIL_LINES)
        with tempfile.TemporaryFile() as exchange:
            command = self._command_line(exchange)
            code = self._run(command, self._environment(context), exchange.fileno(), tail)
            self._refuse_if_killed()
            if code:
                raise AirflowException(
                    f"the training of task {self.task_id} {_describe(code)}; "
                    "the end of its output:\n" + "\n".join(tail)
                )
            return read_result(exchange) if self.python_callable is not None else None

    def _command_line(self, exchange: BinaryIO) -> list[str]:
        if (self.python_callable is None) == (self.command is None):
            raise SettingsError(f"task {self.task_id}: give one of python_callable and command")
        if self.python_callable is None:
            return _arguments_of(self.command or "")
        call = call_of(
            self.python_callable,
            args=self.op_args,
            kwargs=self.op_kwargs or {},
            import_roots=[*([self.cwd] if self.cwd else []), *own_import_roots()],
        )
        write_call(call, exchange)
        # -P: a module that lies in the working directory must not stand in for one of Python's.
        call_it = ["-P", "-m", "cachew_operators.call", str(exchange.fileno())]
        return [self.python or sys.executable, *call_it]

    def _environment(self, context: Context) -> dict[str, str]:
        return {
            **os.environ,
            **context_to_airflow_vars(context, in_env_var_format=True),
            # Output must reach the log when it is written, not when a buffer is full.
            "PYTHONUNBUFFERED": "1",
            "CACHEW_SERVICE": self.endpoint or cluster.status(self._name()).endpoint,
            **{name: str(value) for name, value in (self.env or {}).items()},
        }

    def _run(
        self, command: list[str], environment: dict[str, str], exchange: int, tail: deque[str]
    ) -> int:
        if self.cwd and not Path(self.cwd).is_dir():
            raise SettingsError(f"task {self.task_id}: cwd {self.cwd!r} is no folder")
        guard = ["-P", "-m", "cachew_operators.guard", str(self.kill_grace_s)]
        with subprocess.Popen(
            [sys.executable, *guard, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=self.cwd,
            env=environment,
            pass_fds=[exchange],
            start_new_session=True,
            encoding="utf-8",
            errors="replace",
        ) as self._guard:
            # The kill may have come while there was no guard yet that it could end.
            self._refuse_if_killed()
            # However the block is left, the guard's input is closed, and that ends the training.
            return self._follow(self._guard, tail)

    def _follow(self, guard: subprocess.Popen[str], tail: deque[str]) -> int:
        assert guard.stdout is not None
        for line in guard.stdout:
            text = line.rstrip()
            tail.append(text)
            self.log.info("%s", text)
        return guard.wait()

    def on_kill(self) -> None:
        """Ends the training. The guard sees it through, even when this process is killed first."""
        self._killed = True
        if self._guard is not None:
            self._guard.terminate()


def _arguments_of(command: str | Sequence[str]) -> list[str]:
    return ["/bin/sh", "-c", command] if isinstance(command, str) else [str(one) for one in command]


def _describe(code: int) -> str:
    if code <= 128:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(code - 128).name}"
    except ValueError:
        return f"ended with exit code {code}"
