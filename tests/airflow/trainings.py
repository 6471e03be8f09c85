"""Functions that tests have called in a process of their own."""

from __future__ import annotations

import os


def double(number: int, *, times: int = 1) -> dict[str, object]:
    return {
        "number": number * 2**times,
        "pid": os.getpid(),
        "service": os.environ["CACHEW_SERVICE"],
    }


def diverge() -> None:
    raise FloatingPointError("the loss is not a number")


def give_an_object() -> object:
    return object()


class Trainer:
    @staticmethod
    def train() -> str:
        return "trained"
