"""The dataset that `distribute` returns: a length where it is certain, our own words at a save."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import tensorflow as tf

from cachew_core import stock
from cachew_core.client.membership import FROM_WORKER
from cachew_core.errors import CheckpointError

_CHECKPOINT_TEXT = (
    "the position inside a distributed dataset can't be saved: its elements are on their way from "
    "several workers. Save the number of finished epochs in the model's checkpoint (a tf.Variable "
    "in tf.train.Checkpoint), and after a restore begin at the start of the next epoch; leave the "
    "iterator out of the checkpoint"
)


class DistributedIterator(stock.OwnedIterator):
    """An iterator whose errors say more than stock's: why it can't be saved, which file is broken.

    Args:
        dataset: what it reads.
        explain: gives a sentence for the text of a worker's error; empty: no more is known.
    """

    def __init__(self, dataset: tf.data.Dataset, explain: Callable[[str], str]) -> None:
        super().__init__(dataset)
        self._explain = explain

    def __next__(self) -> Any:
        """The next element.

        Raises:
            tf.errors.OpError: a worker or the pipeline failed; names the worker, and the file if it
                is one that can't be read.
        """
        with self._explained():
            return super().__next__()

    def get_next(self) -> Any:
        """The next element; see `__next__`."""
        with self._explained():
            return super().get_next()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except UnicodeDecodeError as error:
            # TensorFlow takes its own text for UTF-8, and it may quote a record.
            text = bytes(error.object).decode(errors="backslashreplace")
            raise tf.errors.InvalidArgumentError(None, None, self._told(text) or text) from error
        except tf.errors.OpError as error:
            words = self._told(error.message)
            if not words:
                raise
            raise type(error)(error.node_def, error.op, words) from error

    def _told(self, text: str) -> str:
        """An error's text with what the service knows of it; empty: no more than it says."""
        words = self._explain(text) if FROM_WORKER in text else ""
        return f"{words}. {text}" if words else ""

    def _save(self) -> NoReturn:
        raise CheckpointError(_CHECKPOINT_TEXT)

    def _serialize_to_tensors(self) -> NoReturn:
        raise CheckpointError(_CHECKPOINT_TEXT)


class DistributedDataset(stock.UnaryUnchangedStructureDataset):
    """A dataset whose elements come from the service.

    Args:
        dataset: all of it, as far as tf.data is concerned.
        length: elements in one iteration; `tf.data.INFINITE_CARDINALITY` or
            `tf.data.UNKNOWN_CARDINALITY`. It is only told, never enforced: an element more or less
            after a worker's loss must not fail a training.

    Attributes:
        explain: asks the service about the text of an error; empty: no more is known.
    """

    def __init__(self, dataset: tf.data.Dataset, *, length: int) -> None:
        options = tf.data.Options()
        # The service shards already; a strategy that did it again would drop data.
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
        self._input_dataset = dataset.with_options(options)
        self._length = length
        self.explain: Callable[[str], str] = lambda _: ""
        super().__init__(self._input_dataset, stock.variant_of(self._input_dataset))

    def __iter__(self) -> Any:
        """A new iterator; the epoch is opened when it is first asked for an element."""
        if not (tf.executing_eagerly() or tf.inside_function()):
            return super().__iter__()
        return DistributedIterator(self, self.explain)

    def cardinality(self) -> tf.Tensor:
        """Elements of one iteration, -1 for infinite, -2 for unknown, as a scalar int64."""
        return tf.constant(self._length, tf.int64)
