"""A call of a Python function as something that another process can be told to make.

A training needs a process of its own: TensorFlow stays in the memory of the one that imported it,
and a task that is killed must be able to take the training with it. The function is found again by
name: in a module, or in the file that defines it (Airflow loads DAG files under names that nobody
else can import). Arguments and result travel as JSON.

This module runs in the training's interpreter, which need not have Airflow: `python -m
cachew_operators.call DESCRIPTOR`.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO, NamedTuple

from cachew_core.errors import SettingsError

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of a module-level function."""

    function: str
    """Its name in the module; dotted for a static method of a class."""
    module: str | None = None
    """What to import. None: load `file`."""
    file: str | None = None
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any]
    import_roots: Sequence[str] = ()
    """Folders that the caller's `sys.path` has beside its interpreter's own."""


def call_of(
    function: str | Callable[..., Any],
    *,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any],
    import_roots: Sequence[str] = (),
) -> Call:
    """Describes a call so that another process can make it.

    Args:
        function: `"package.module:function"`, or the function itself.
        args: its positional arguments.
        kwargs: its keyword arguments.
        import_roots: folders to look for modules in, after the interpreter's own.

    Raises:
        SettingsError: the function can't be found by name, as a lambda can't.
    """
    place = _place_named(function) if isinstance(function, str) else _place_of(function)
    return Call(
        function=place.name,
        module=place.module,
        file=place.file,
        args=args,
        kwargs=kwargs,
        import_roots=import_roots,
    )


class _Place(NamedTuple):
    name: str
    module: str | None = None
    file: str | None = None


def _place_named(text: str) -> _Place:
    module, _, name = text.partition(":")
    if not (module and name):
        raise SettingsError(
            f"python_callable {text!r} names no function: write 'package.module:function'"
        )
    return _Place(name, module=module)


def _place_of(function: Callable[..., Any]) -> _Place:
    name = getattr(function, "__qualname__", "")
    if not name or "<" in name:
        raise SettingsError(
            f"python_callable {function!r} can't be found by name in another process: "
            "pass a function that a module defines at its top level"
        )
    if _is_importable(function.__module__):
        return _Place(name, module=function.__module__)
    return _Place(name, file=inspect.getsourcefile(function))


def _is_importable(module: str) -> bool:
    # Not importlib.util.find_spec, which takes a module that is loaded for one that can be found.
    top = module.partition(".")[0]
    return top != "__main__" and any(
        finder.find_spec(top, None) is not None for finder in sys.meta_path
    )


def own_import_roots() -> list[str]:
    """What this process's `sys.path` has beside its interpreter's own, as Airflow's DAG folder."""
    interpreter = {Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve()}
    return [
        entry
        for entry in sys.path
        if entry
        and not interpreter.intersection((path := Path(entry).resolve()).parents)
        and path.is_dir()
    ]


def write_call(call: Call, exchange: BinaryIO) -> None:
    """Lays a call down for the process that makes it.

    Args:
        call: the call.
        exchange: an open file that the other process inherits. It needs no name, so it can't be
            left behind by anybody.

    Raises:
        SettingsError: an argument is not JSON.
    """
    try:
        text = json.dumps(asdict(call))
    except (TypeError, ValueError) as error:
        raise SettingsError(
            f"op_args and op_kwargs of {call.function} must be JSON (text, numbers, lists, dicts), "
            f"and are not: {error}"
        ) from error
    _replace(exchange, text)


def read_result(exchange: BinaryIO) -> Any:
    """What the function returned; None where that was None or not JSON."""
    return json.loads(_content(exchange) or "null")


def _content(exchange: BinaryIO) -> str:
    exchange.seek(0)
    return exchange.read().decode()


def _replace(exchange: BinaryIO, text: str) -> None:
    exchange.seek(0)
    exchange.truncate()
    exchange.write(text.encode())
    exchange.flush()


def _load(call: Call) -> Callable[..., Any]:
    # At the end, as Airflow does: a DAG folder must not stand in for a module of Python's.
    sys.path += [root for root in call.import_roots if root not in sys.path]
    found: Any = importlib.import_module(call.module) if call.module else _load_file(str(call.file))
    for name in call.function.split("."):
        found = getattr(found, name)
    return found  # type: ignore[no-any-return]


def _load_file(file: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(file).stem, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _as_json(result: Any, *, function: str) -> str:
    try:
        return json.dumps(result)
    except (TypeError, ValueError) as error:
        logger.warning(
            "What %s returned is not passed on, since it is not JSON: %s", function, error
        )
        return ""


def main() -> None:
    """Makes the call that lies in the file with the given descriptor; leaves the result there."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    descriptor = int(sys.argv[1])
    # Not for the processes that the training may start.
    os.set_inheritable(descriptor, False)
    with open(descriptor, "r+b") as exchange:
        call = Call(**json.loads(_content(exchange)))
        # Emptied first: a training that leaves by itself with exit code 0 has no result.
        _replace(exchange, "")
        result = _load(call)(*call.args, **call.kwargs)
        _replace(exchange, _as_json(result, function=call.function))


if __name__ == "__main__":
    main()
