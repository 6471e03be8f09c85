"""Transformations that need no service: a mark where data may be cached, a wait without Python."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from cachew_core import stock
from cachew_core.client.arguments import is_whole
from cachew_core.errors import PipelineError
from cachew_core.pipeline.marks import END, marked

Transformation = Callable[["tf.data.Dataset"], "tf.data.Dataset"]
"""What `tf.data.Dataset.apply` takes."""

_MARK_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,62}")

_LONGEST_SLEEP_US = 24 * 3600 * 1_000_000
"""More than a day an element is a mistake of units."""


def mark(name: str = "source_cache", *, allow_random: bool = False) -> Transformation:
    """Marks a place in the pipeline at which the service may cache the data.

    The elements pass unchanged, with the service and without. Put it behind what is expensive and
    the same in every epoch (reading, decoding) and before what is random (augmentation). Use it as
    `dataset.apply(cachew.mark())`.

    Args:
        name: of this place, for logs, status and stored decisions: a letter, then up to 62 letters,
            digits or underscores; not "end", which is the place behind the whole pipeline. Several
            marks in one pipeline need different names.
        allow_random: nothing is stored at a mark that has random numbers before it, as each epoch
            would get the numbers of the first. True says that you want just that.

    Raises:
        PipelineError: an argument can't be used.
    """
    _check_name(name)
    if not isinstance(allow_random, bool):
        raise PipelineError(
            f"allow_random={allow_random!r} of mark {name!r} can't be used: give True or False"
        )
    return lambda dataset: marked(dataset, name, allow_random=allow_random)


def _check_name(name: Any) -> None:
    if not isinstance(name, str) or not _MARK_NAME.fullmatch(name):
        raise PipelineError(
            f"mark name {name!r} can't be used: take a letter and up to 62 letters, digits or "
            "underscores after it"
        )
    if name == END:
        raise PipelineError(
            f"mark name {name!r} can't be used: it stands for the end of the whole pipeline, which "
            "is marked by itself. Take another name"
        )


def sleep(microseconds: int) -> Transformation:
    """Waits before each element, on the worker that computes it, without any Python.

    It stands in for work of a known duration in examples, tests and benchmarks.

    Args:
        microseconds: how long to wait before each element; 0 waits not at all.

    Raises:
        PipelineError: not a whole number from 0 to a day.
    """
    if not is_whole(microseconds) or not 0 <= microseconds <= _LONGEST_SLEEP_US:
        raise PipelineError(
            f"sleep of {microseconds!r} microseconds can't be used: give a whole number from 0 to "
            f"{_LONGEST_SLEEP_US}"
        )

    def apply(dataset: tf.data.Dataset) -> tf.data.Dataset:
        return stock.SleepDataset(dataset, int(microseconds))

    return apply
