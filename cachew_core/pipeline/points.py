"""The points of a worker graph at which elements may be stored, and why they may not.

A stored point is read instead of computed, in later epochs and by later runs. So its identity must
be that of the data, whatever the process and whatever follows it; and what is to differ from epoch
to epoch must not stand before it. The order of elements may: whoever reads a stored point shuffles
again, as its shuffles say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import tensorflow as tf

from cachew_core.pipeline.checks import rule_for
from cachew_core.pipeline.fingerprint import fingerprints_at
from cachew_core.pipeline.graph import (
    RANDOM_MARK_PREFIX,
    DatasetGraph,
    base_op,
    component_specs,
    is_dataset,
    mark_name,
    user_name,
    value_of,
)
from cachew_core.pipeline.listings import with_sorted_lists
from cachew_core.pipeline.marks import without_marks
from cachew_core.pipeline.operators import Verdict, rule_of
from cachew_core.pipeline.randomness import random_operator, varying_operator
from cachew_core.pipeline.scopes import Scope, outer_scope, walk

__all__ = ["CachePoint", "Shuffle", "cache_points"]

_SHUFFLES = frozenset({"GlobalShuffleDataset", "ShuffleAndRepeatDataset", "ShuffleDataset"})
_REPEATS = {"RepeatDataset": 1, "ShuffleAndRepeatDataset": 4}
"""Where the count stands."""
_BATCHES = {"BatchDataset": 2, "ParallelBatchDataset": 3}
"""Where `drop_remainder` stands."""
_ORDER_FREE = frozenset({"AssertCardinalityDataset", *_SHUFFLES})
"""Run on one worker, but what they give does not depend on the order of their input."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shuffle:
    """One shuffle between the sources and a point, which a reader of the point has to repeat."""

    buffer: int
    """Elements that it holds; -1: all, or known only when the pipeline runs."""
    before_batch: bool
    """Whether rows are batched between it and the point."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CachePoint:
    """One mark of a worker graph, the reserved one at its end among them."""

    name: str
    """Of the mark; "end" for the reserved one."""
    node: str
    """Of the mark's node in the graph."""
    fingerprint: str
    """64 hex digits: the identity of the pipeline up to the point, marks left out, and its flat
    element spec."""
    specs: tuple[tf.TensorSpec, ...]
    """The flat tensors of an element; ragged and sparse ones are variants, which can be stored."""
    refusal: str
    """Why nothing may be stored here, naming the operator; empty: it may."""
    shuffles: tuple[Shuffle, ...]
    """In the order from the point to the sources; those that keep one order are left out."""
    rebatch: int
    """Not 0: elements are batches of up to so many shuffled rows: take them apart, shuffle, and
    batch again."""


def cache_points(graph: bytes) -> tuple[CachePoint, ...]:
    """The points of a worker graph (`Prepared.graph`), from its end to its sources."""
    view = DatasetGraph.parse(graph)
    marks = [node for node in view.operators() if mark_name(node) is not None]
    plain = without_marks(view)
    shuffles = {node.name: _shuffles_at(outer_scope(view), node) for node in view.operators()}
    points = []
    for mark in marks:
        frozen = _frozen_groups(view, mark, shuffles)
        rebatch = _rebatch(view, mark, frozen)
        refusals = _refusals(view, mark, [] if rebatch else frozen)
        points.append(
            CachePoint(
                name=str(mark_name(mark)),
                node=str(mark.name),
                fingerprint=_fingerprint(plain, mark.name, rebatched=bool(rebatch)),
                specs=component_specs(mark),
                refusal=next(refusals, ""),
                shuffles=_shuffles(view, mark, shuffles),
                rebatch=rebatch,
            )
        )
    return tuple(points)


def _fingerprint(plain: DatasetGraph, mark: str, *, rebatched: bool) -> str:
    # A mark's own input differs from what it reads when there are no marks.
    point = plain.input(plain.nodes[mark], 0)
    grouping = [node for node in (point, *plain.operators_below(point)) if _groups(plain, node)]
    if rebatched:
        # Its rows are taken apart, and it is the last one.
        del grouping[0]
    [digest] = fingerprints_at(with_sorted_lists(plain, point, grouping), [point]).values()
    return digest


def _refusals(graph: DatasetGraph, mark: Any, frozen: Sequence[Any]) -> Iterator[str]:
    allows_random = (user_name(mark) or "").startswith(RANDOM_MARK_PREFIX)
    below = graph.operators_below(mark)
    for node in below:
        words = _words(graph, node)
        if not allows_random and (drawn := random_operator(graph, node)):
            yield (
                f"{words} draws random numbers ({drawn}), and every epoch would get those of the "
                "first: put the mark before it, or allow them by mark(allow_random=True)"
            )
        if varying := varying_operator(graph, node):
            yield f"{words} {varying[0]} ({varying[1]})"
        if _is_endless(graph, node):
            yield f"{words} repeats without an end"
    for node in graph.operators():
        if base_op(node.op) == "IgnoreErrorsDataset" and mark in graph.operators_below(node):
            yield (
                f"{_words(graph, node)} stands behind it, and an error would take elements along "
                "that are written with it: put the mark behind it"
            )
    for node in frozen:
        yield (
            f"{_words(graph, node)} depends on the order of a shuffle before it, and every epoch "
            "would get that of the first: put the mark before it"
        )
    if any(spec.dtype == tf.resource for spec in component_specs(mark)):
        yield "its elements hold resources, which exist in one process only"


def _words(graph: DatasetGraph, node: Any) -> str:
    rule = rule_for(graph, node)
    return graph.describe(node, rule.words.partition(",")[0] if rule.ops else node.op)


def _is_endless(graph: DatasetGraph, node: Any) -> bool:
    outer = outer_scope(graph)
    return any(
        _repeats_for_ever(scope, inner) for scope, inner in ((outer, node), *walk(outer, node))
    )


def _repeats_for_ever(scope: Scope, node: Any) -> bool:
    if (index := _REPEATS.get(base_op(node.op))) is None:
        return False
    count = _whole(scope, node, index)
    return count is None or count < 0


def _whole(scope: Scope, node: Any, index: int) -> int | None:
    constant = scope.constant(scope.inputs(node)[index])
    value = None if constant is None else value_of(constant)
    return None if value is None else int(value.item())


def _reshuffles(node: Any) -> bool:
    if base_op(node.op) not in _SHUFFLES:
        return False
    keeps_order = "reshuffle_each_iteration" in node.attr
    return not (keeps_order and not node.attr["reshuffle_each_iteration"].b)


def _groups(graph: DatasetGraph, node: Any) -> bool:
    """Whether a dataset node's elements depend on the order of its input."""
    op = base_op(node.op)
    if op in _BATCHES:
        return bool(graph.scalar(node, 1) != 1)
    return rule_for(graph, node).verdict is Verdict.ONE_WORKER and op not in _ORDER_FREE


def _groups_inside(scope: Scope, node: Any) -> bool:
    """The same for a dataset node of a function."""
    op = base_op(node.op)
    if not is_dataset(node) or op in _ORDER_FREE:
        return False
    if op in _BATCHES:
        return _whole(scope, node, 1) != 1
    if op == "TakeDataset" and (_whole(scope, node, 1) or 0) < 0:
        return False
    return rule_of(op).verdict is Verdict.ONE_WORKER


def _shuffles_at(scope: Scope, node: Any) -> list[Shuffle]:
    """The shuffles that a node is or has in its functions."""
    found = []
    if _reshuffles(node):
        buffer = None if base_op(node.op) == "GlobalShuffleDataset" else _whole(scope, node, 1)
        found.append(Shuffle(buffer=-1 if buffer is None else buffer, before_batch=False))
    for inner in scope.called(node):
        for called in inner.nodes.values():
            if shuffles := _shuffles_at(inner, called):
                grouped = _is_grouped(inner, called)
                found += [replace(s, before_batch=s.before_batch or grouped) for s in shuffles]
    return found


def _is_grouped(scope: Scope, node: Any) -> bool:
    return any(
        _groups_inside(scope, group) and node in scope.datasets_below(group)
        for group in scope.nodes.values()
    )


def _shuffles(
    graph: DatasetGraph, mark: Any, shuffles: Mapping[str, Sequence[Shuffle]]
) -> tuple[Shuffle, ...]:
    below = graph.operators_below(mark)
    grouped = {
        source.name
        for node in below
        if _groups(graph, node)
        for source in graph.operators_below(node)
    }
    return tuple(
        Shuffle(buffer=shuffle.buffer, before_batch=shuffle.before_batch or node.name in grouped)
        for node in below
        for shuffle in shuffles[node.name]
    )


def _frozen_groups(
    graph: DatasetGraph, mark: Any, shuffles: Mapping[str, Sequence[Shuffle]]
) -> list[Any]:
    """The dataset nodes before a mark whose elements depend on how a shuffle went."""
    found = []
    for node in graph.operators_below(mark):
        inside = any(shuffle.before_batch for shuffle in shuffles[node.name])
        if inside or (
            _groups(graph, node)
            and any(shuffles[source.name] for source in graph.operators_below(node))
        ):
            found.append(node)
    return found


def _rebatch(graph: DatasetGraph, mark: Any, frozen: Sequence[Any]) -> int:
    """The size of the one batch that a reader can take apart again; 0: there is none."""
    node = graph.input(mark, 0)
    while base_op(node.op) in ("OptionsDataset", "PrefetchDataset") or mark_name(node) is not None:
        node = graph.input(node, 0)
    if [group.name for group in frozen] != [node.name] or base_op(node.op) not in _BATCHES:
        return 0
    # Rows that are dropped at the end would be the same in each epoch; rows in variants can't be
    # taken apart without knowing what they hold.
    dropped = graph.scalar(node, _BATCHES[base_op(node.op)])
    variants = any(spec.dtype == tf.variant for spec in component_specs(node))
    size = graph.scalar(node, 1)
    return 0 if size is None or dropped is not False or variants else int(size)
