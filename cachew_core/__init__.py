"""Cachew: input data processing as a service for tf.data pipelines.

Usually imported as ``import cachew_core as cachew``. The public names are resolved on first use, so
that importing the package costs no TensorFlow: an Airflow scheduler or a pipeline compiler may
import it, too.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from cachew_core.version import __version__

if TYPE_CHECKING:
    from cachew_core import errors
    from cachew_core.client import distribute, mark, sleep

__all__ = ["__version__", "distribute", "errors", "mark", "sleep"]

_MODULE_OF_NAME = {
    "distribute": "cachew_core.client",
    "mark": "cachew_core.client",
    "sleep": "cachew_core.client",
}


def __getattr__(name: str) -> Any:
    if name == "errors":
        return import_module("cachew_core.errors")
    if name in _MODULE_OF_NAME:
        return getattr(import_module(_MODULE_OF_NAME[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
