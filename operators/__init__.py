"""Airflow operators that stand a Cachew service up, train through it and take it down.

The public names are resolved on first use: Airflow reads `cachew_operators.provider` on every
start, and the trainer's side of `CachewTrainingOperator` runs in interpreters that need not have
Airflow.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cachew_operators.scope import cachew_service
    from cachew_operators.service import CachewServiceOperator
    from cachew_operators.teardown import CachewTeardownOperator
    from cachew_operators.training import CachewTrainingOperator

__all__ = [
    "CachewServiceOperator",
    "CachewTeardownOperator",
    "CachewTrainingOperator",
    "cachew_service",
]

_MODULE_OF_NAME = {
    "CachewServiceOperator": "cachew_operators.service",
    "CachewTeardownOperator": "cachew_operators.teardown",
    "CachewTrainingOperator": "cachew_operators.training",
    "cachew_service": "cachew_operators.scope",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF_NAME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(_MODULE_OF_NAME[name]), name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "airflow":
            raise
        raise ImportError(
            f"{name} needs Airflow, and {error.name} is not installed: "
            "pip install 'cachew-service[airflow]'"
        ) from error


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
