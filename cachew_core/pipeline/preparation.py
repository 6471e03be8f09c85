"""What a trainer does to a pipeline before it registers it: checks, and the cut into two halves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from cachew_core import stock
from cachew_core.errors import PipelineError
from cachew_core.pipeline.batches import plan_batches
from cachew_core.pipeline.checks import (
    Limits,
    check_constants,
    check_element_spec,
    check_marks,
    check_operators,
    check_size,
    one_worker_reasons,
)
from cachew_core.pipeline.fingerprint import fingerprint
from cachew_core.pipeline.graft import append
from cachew_core.pipeline.graph import DatasetGraph
from cachew_core.pipeline.lone import is_lone_variant, paired
from cachew_core.pipeline.marks import append_end_mark
from cachew_core.pipeline.repeats import take_final_repeat

__all__ = ["Limits", "Prepared", "prepare"]

DISTRIBUTED_EPOCH = "distributed_epoch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A pipeline that can be registered, and how the trainer reads it."""

    graph: bytes
    """GraphDef that the workers run."""
    element_spec: Any
    """Of what workers send (before compression)."""
    restore: Callable[[tf.data.Dataset], tf.data.Dataset]
    """The trainer's half: from what workers send to the pipeline's own elements, for one pass."""
    repeats: int
    """How often one pass is read (a final `repeat` of the pipeline): 1 without one, -1 for ever."""
    cardinality: int
    """Elements of one pass of the user's pipeline, run locally; -1 infinite, -2 unknown."""
    fingerprint: str
    """64 hex digits: the identity of one pass of the user's pipeline."""
    single_worker: tuple[str, ...]
    """Why it must run whole on one worker, naming the operators; empty: its input may be split."""
    warnings: tuple[str, ...]
    """For the user: what works, but not as well as it could, or not as it reads."""


def prepare(
    dataset: tf.data.Dataset,
    *,
    processing_mode: str,
    compression: str | None,
    num_consumers: int | None,
    limits: Limits,
    endless: bool = False,
) -> Prepared:
    """Check a pipeline and take it apart for workers and trainer.

    Args:
        dataset: the user's pipeline; it is only read.
        processing_mode: "distributed_epoch" (the input is split over workers) or "parallel_epochs"
            (every worker runs everything).
        compression: None, or "AUTO" or "SNAPPY" for elements that are compressed by the workers.
        num_consumers: of coordinated reads; None for ordinary ones.
        limits: on the size of the graph.
        endless: a final `repeat` stays with the workers, as one epoch without an end.

    Raises:
        PipelineError: the pipeline can't run on workers; names the operator and says what to do.
    """
    check_element_spec(dataset.element_spec)
    check_constants(dataset, limits)
    graph = _serialized(dataset)
    warnings = check_size(graph.graph_def.ByteSize(), limits)
    check_operators(graph)
    check_marks(graph)
    repeats = 1
    if num_consumers is None and not endless:
        graph, repeats = take_final_repeat(graph)
    worker, spec, reasons = graph, dataset.element_spec, list[str]()
    restore: Callable[[tf.data.Dataset], tf.data.Dataset] = _unchanged
    if processing_mode == DISTRIBUTED_EPOCH and num_consumers is None:
        reasons = one_worker_reasons(graph)
        exact = plan_batches(graph, dataset.element_spec) if not reasons else None
        if isinstance(exact, str):
            reasons = [exact]
        elif exact is not None:
            worker, spec, restore = exact.graph, exact.element_spec, exact.restore
    if compression is None and is_lone_variant(spec):
        worker, spec, restore = paired(worker, spec, restore)
    warnings += [f"{reason}: the whole pipeline runs on one worker" for reason in reasons]
    return Prepared(
        graph=_sent(worker, compression),
        element_spec=spec,
        restore=restore,
        repeats=repeats,
        cardinality=_cardinality(dataset, graph, repeats),
        fingerprint=fingerprint(graph, dataset.element_spec),
        single_worker=tuple(reasons),
        warnings=tuple(warnings),
    )


def _unchanged(dataset: tf.data.Dataset) -> tf.data.Dataset:
    return dataset


def _serialized(dataset: tf.data.Dataset) -> DatasetGraph:
    try:
        return DatasetGraph(stock.graph_of(dataset))
    except tf.errors.OpError as error:
        raise PipelineError(
            "the pipeline can't be turned into a graph, so it can't be sent to workers "
            f"({error.message}): replace the operator that it names, or move it behind `distribute`"
        ) from error


def _sent(graph: DatasetGraph, compression: str | None) -> bytes:
    graph = graph.copy()
    append_end_mark(graph)
    if compression is not None:
        append(graph, stock.compressed)
    return graph.serialize()


def _cardinality(dataset: tf.data.Dataset, graph: DatasetGraph, repeats: int) -> int:
    whole = int(dataset.cardinality())
    if repeats == 1 or whole == tf.data.UNKNOWN_CARDINALITY:
        return whole
    if repeats > 1 and whole >= 0:
        return whole // repeats
    return int(stock.dataset_of(graph.graph_def, dataset.element_spec).cardinality())
