"""Kubeflow Pipelines components that stand a Cachew service up and take it down.

    from cachew_components import CachewService, CachewTeardown

The two are factories: called inside a pipeline, each gives a `PipelineTask` that is ready to use.
They are resolved on first use, so that importing the package costs no kfp.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cachew_components.tasks import CachewService, CachewTeardown

__all__ = ["CachewService", "CachewTeardown"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("cachew_components.tasks"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
