"""Jobs whose epochs are stored: what a service did about them, and what their trainers got."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from real_service import DEADLINE_S, RealService, eventually


def modes(service: RealService, job: str) -> list[str]:
    """The modes of a job's epochs, oldest first."""
    return [epoch.mode for epoch in service.epochs(job)]


def reasons(service: RealService, job: str) -> str:
    """All that was decided for a job, as status tells it."""
    return "\n".join(decision.reason for decision in service.job(job).decisions)


def await_stored(service: RealService, job: str, epoch: int = 1) -> None:
    """Waits until what that epoch wrote can be read."""
    eventually(lambda: f"job {job}: epoch {epoch} stored" in service.log_text())


def multiset(dataset: tf.data.Dataset) -> Counter[str]:
    """The elements of one pass without their order."""
    return Counter(text_of(element) for element in dataset)


def text_of(element: Any) -> str:
    """A text in which structure, types, shapes and values stand: equal elements have equal ones."""
    if isinstance(element, dict):
        return f"{{{', '.join(f'{k}: {text_of(v)}' for k, v in element.items())}}}"
    if isinstance(element, tuple):
        return f"{type(element).__name__}({', '.join(text_of(value) for value in element)})"
    if element is None:
        return "None"
    if isinstance(element, tf.experimental.Optional):
        return f"optional {text_of(element.get_value()) if element.has_value() else None}"
    if isinstance(element, tf.RaggedTensor | tf.SparseTensor):
        parts = tf.nest.flatten(element, expand_composites=True)
        return f"{type(element).__name__} {[text_of(part) for part in parts]}"
    array = np.asarray(element.numpy())
    content = array.tolist() if element.dtype == tf.string else hash(array.tobytes())
    return f"{element.dtype.name} {array.shape} {content}"


class Calls:
    """Shows which elements passed a place in the pipeline, in any process, by a file for each."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()

    def counted(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        return dataset.map(self._count)

    def _count(self, element: tf.Tensor) -> tf.Tensor:
        name = tf.strings.join([str(self._folder), "/", element])
        with tf.control_dependencies([tf.io.write_file(name, "")]):
            return tf.identity(element)

    def taken(self) -> int:
        """How many passed since this was last asked."""
        files = list(self._folder.iterdir())
        for file in files:
            file.unlink()
        return len(files)


class Trainer(threading.Thread):
    """Reads one epoch in the background and keeps what it got, or the error.

    Args:
        dataset: what it reads.
        hold_at: the element after which it waits until it may `go_on`; 0: it never waits.
    """

    def __init__(self, dataset: tf.data.Dataset, *, hold_at: int = 0) -> None:
        super().__init__(daemon=True)
        self._dataset = dataset
        self._hold_at = hold_at
        self._free = threading.Event()
        self._error: Exception | None = None
        self._got: Counter[str] = Counter()
        self.start()

    def run(self) -> None:
        """Reads all."""
        try:
            for element in self._dataset:
                self._got[text_of(element)] += 1
                if self._got.total() == self._hold_at:
                    self._free.wait(DEADLINE_S)
        except Exception as error:  # raised again where it is waited for
            self._error = error

    def go_on(self) -> None:
        """Reads on."""
        self._free.set()

    def has(self, count: int) -> bool:
        """Whether it has read so many elements, or none will follow."""
        return self._got.total() >= count or not self.is_alive()

    def done(self) -> Counter[str]:
        """What it has read, once it is through."""
        self.join(120)
        assert not self.is_alive(), f"hangs with {self._got.total()} elements"
        if self._error is not None:
            raise self._error
        return self._got
