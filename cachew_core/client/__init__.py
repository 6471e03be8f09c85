"""What trainers use: `mark`, `distribute` and `sleep`, to be applied to a `tf.data.Dataset`."""

from cachew_core.client.distribution import distribute
from cachew_core.client.transformations import mark, sleep

__all__ = ["distribute", "mark", "sleep"]
