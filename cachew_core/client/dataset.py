"""The dataset that `distribute` returns: a length where it is certain, our own words at a save."""

from __future__ import annotations

from typing import Any, NoReturn

import tensorflow as tf

from cachew_core import stock
from cachew_core.errors import CheckpointError

_CHECKPOINT_TEXT = (
    "the position inside a distributed dataset can't be saved: its elements are on their way from "
    "several workers. Save the number of finished epochs in the model's checkpoint (a tf.Variable "
    "in tf.train.Checkpoint), and after a restore begin at the start of the next epoch; leave the "
    "iterator out of the checkpoint"
)


class DistributedIterator(stock.OwnedIterator):
    """An iterator that says why it can't be saved, where stock's says "not yet supported"."""

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
    """

    def __init__(self, dataset: tf.data.Dataset, *, length: int) -> None:
        options = tf.data.Options()
        # The service shards already; a strategy that did it again would drop data.
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
        self._input_dataset = dataset.with_options(options)
        self._length = length
        super().__init__(self._input_dataset, stock.variant_of(self._input_dataset))

    def __iter__(self) -> Any:
        """A new iterator; the epoch is opened when it is first asked for an element."""
        if not (tf.executing_eagerly() or tf.inside_function()):
            return super().__iter__()
        return DistributedIterator(self)

    def cardinality(self) -> tf.Tensor:
        """Elements of one iteration, -1 for infinite, -2 for unknown, as a scalar int64."""
        return tf.constant(self._length, tf.int64)
