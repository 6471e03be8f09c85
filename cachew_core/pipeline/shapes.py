"""Flat tensors and what is known of their shapes: batches, and what stands in for them."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

__all__ = ["Specs", "Tensors", "as_is", "batched", "ensured", "loose", "nothing", "shaped"]

Tensors = tuple[tf.Tensor, ...]
Specs = tuple[tf.TensorSpec, ...]

as_is = tf.autograph.experimental.do_not_convert
"""For functions that are graph code already, and call modules that autograph can't read."""


def batched(rows: Specs, size: int | None) -> Specs:
    """What so many rows make; None: any number."""
    return tuple(tf.TensorSpec(tf.TensorShape([size]) + spec.shape, spec.dtype) for spec in rows)


def loose(specs: Specs) -> Specs:
    """The same tensors with any sizes, so that nothing can stand in their place."""
    return tuple(
        tf.TensorSpec(tf.TensorShape([None] * spec.shape.rank), spec.dtype)
        if spec.shape.rank is not None
        else spec
        for spec in specs
    )


def nothing(specs: Specs) -> Tensors:
    """Tensors without elements, as far as their specs allow."""
    return tuple(tf.zeros(_smallest(spec.shape), spec.dtype) for spec in specs)


def shaped(values: Sequence[tf.Tensor], specs: Specs) -> Tensors:
    """The tensors, with shapes that are known to hold."""
    for value, spec in zip(values, specs, strict=True):
        value.set_shape(spec.shape)
    return tuple(values)


def ensured(values: Sequence[tf.Tensor], specs: Specs) -> Tensors:
    """The tensors, with shapes that are checked when they run."""
    return tuple(
        # The operator can't be told that nothing is known.
        value if spec.shape.rank is None else tf.ensure_shape(value, spec.shape)
        for value, spec in zip(values, specs, strict=True)
    )


def _smallest(shape: tf.TensorShape) -> list[int]:
    return [0] if shape.rank is None else [size or 0 for size in shape]
