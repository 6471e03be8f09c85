"""The graph of an epoch that writes a cache point (PUT): writing never harms who reads.

Elements are gathered in memory into windows. Each window is written by a stock save operator of its
own, into a folder named by its number, and then passes on from memory, whether or not the writing
succeeded. So a full disk or a lost mount costs the cache, not the epoch. The folders' numbers show
whether one is missing, the save operators' own records how many elements each must hold, and the
name of the last one that the point's input came to its end without an error on the way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import tensorflow as tf

from cachew_core import stock
from cachew_core.pipeline.graft import graft
from cachew_core.pipeline.graph import DatasetGraph, user_name

__all__ = ["swallows_own_errors", "writing_graph"]

_LAST = "-last"
"""How the name of a run's last window ends."""

_BEGUN = "begun"
"""A file in a run's folder, which is there before the task asks for its first element."""

_WRITER = "cachew_writing"
_OWN = "_cachew_writing"
"""An attribute of operators that must not be taken for the user's."""

WINDOW_BYTES = 64 * 2**20
"""Of one chunk file. A worker holds about five windows, and each costs about 50 ms of a core."""

FIRST_WINDOW_S = 0.25
LONGEST_WINDOW_S = 2.0
"""Elements wait for those that share their window: little at first, so that the trainer begins."""

_WINDOW_BUNDLES = 256
_BUNDLE_BYTES = 2**20
_BUNDLE = 16
"""Elements that are gathered at a time: one by one, it would cost more than small ones do."""
_BUNDLE_OF_ANY_SIZE = 4
"""The same, where one element may be a thousand times as big as another."""

_DIGITS = 8
_PATH = "cachew_run_path"

_Specs: TypeAlias = tuple[tf.TensorSpec, ...]


def writing_graph(graph: bytes, node: str, folder: str, witness: str) -> bytes:
    """The graph that gives its elements and writes those at a cache point.

    Args:
        graph: what workers run, a GraphDef.
        node: the cache point's name in it.
        folder: absolute; each task that runs the graph writes into a folder of its own below it,
            with a name that it draws, and there into one for each window.
        witness: a file that is there for as long as somebody wants what is written: without it, a
            folder that was removed would be made anew, and what is written would fill the disk
            below a lost mount; empty: there is none.
    """
    view = DatasetGraph.parse(graph).copy()
    before = set(view.functions)
    graft(view, view.nodes[node], lambda dataset: _written(dataset, folder, witness))
    for name in view.functions.keys() - before:
        for made in view.functions[name].node_def:
            if made.op == "IgnoreErrorsDataset":
                made.attr[_OWN].b = True
    _draw_path(view, folder)
    return view.serialize()


def swallows_own_errors(node: Any) -> bool:
    """Whether that is the operator that swallows errors of the writing, and nothing else."""
    return _OWN in node.attr


def _draw_path(view: DatasetGraph, folder: str) -> None:
    """Let the path be drawn by the task that makes the dataset: all tasks have the same graph."""
    with tf.Graph().as_default() as drawing:
        number = tf.random.uniform([], maxval=tf.int64.max, dtype=tf.int64)
        tf.strings.join([folder, "/run-", tf.strings.as_string(number)], name=_PATH)
    for made in drawing.as_graph_def().node:
        added = view.add_copy(made, f"{_PATH}/{made.name}")
        for index, name in enumerate(made.input):
            added.input[index] = f"{_PATH}/{name}"
    writer = next(
        node for node in view.operators() if node.op == "ScanDataset" and user_name(node) == _WRITER
    )
    # Its inputs are the windows, then its first state.
    writer.input[1] = f"{_PATH}/{_PATH}"


def _written(dataset: tf.data.Dataset, folder: str, witness: str) -> tf.data.Dataset:
    specs = dataset.element_spec
    windows = _begin().concatenate(_windows(dataset, specs)).prefetch(1)
    written = windows.scan(
        (tf.constant(folder), tf.constant(True)), _writer(specs, witness), name=_WRITER
    )
    # The next window is written while this one is read.
    return written.prefetch(1).flat_map(lambda held, count: _elements(held, count, specs))


# Windows: a list of bundles, each a vector of elements


def _windows(dataset: tf.data.Dataset, specs: _Specs) -> tf.data.Dataset:
    """(list of bundles, elements in them, number of the window, whether it is the last)."""
    each_bytes = _static_bytes(specs)

    def wrap(*element: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        size = _bytes(element) if each_bytes is None else tf.constant(each_bytes, tf.int64)
        return tf.raw_ops.OptionalFromValue(components=list(element)), size

    bundle = _BUNDLE_OF_ANY_SIZE
    if each_bytes is not None:
        bundle = max(1, min(_BUNDLE, _BUNDLE_BYTES // max(1, each_bytes)))
    bundles = stock.sequential_map(dataset, wrap).batch(bundle).concatenate(_end())
    zero = tf.constant(0, tf.int64)
    gathered = tf.data.Dataset.zip((_attempts(), bundles)).scan(
        (_no_bundles(), zero, zero, tf.constant(0.0, tf.float64), zero, zero), _gather
    )
    closed = gathered.filter(lambda *window: window[-1])
    return closed.map(lambda held, count, number, last, _: (held, count, number, last))


def _begin() -> tf.data.Dataset:
    """A window with a negative number, which every worker sees before it asks for an element.

    A task whose input fails before its first window is written would else leave no trace, and what
    the other tasks wrote would look like all there is.
    """
    begins = tf.data.Dataset.range(2**62).take(1)
    return stock.sequential_map(
        begins,
        lambda _: (
            _no_bundles(),
            tf.constant(0, tf.int64),
            tf.constant(-1, tf.int64),
            tf.constant(False),
        ),
    )


def _end() -> tf.data.Dataset:
    """One bundle with a negative size.

    A source hands out its elements to any of the workers, and each of them needs its own end: there
    are more than any number of workers, of which each takes one.
    """
    ends = tf.data.Dataset.range(2**62).take(1)
    return stock.sequential_map(
        ends,
        lambda _: (
            tf.reshape(tf.raw_ops.OptionalNone(), [1]),
            tf.constant([-1], tf.int64),
        ),
    ).map(lambda bundle, sizes: (tf.ensure_shape(bundle, [None]), tf.ensure_shape(sizes, [None])))


def _attempts() -> tf.data.Dataset:
    """Numbers from 0 on, in every task.

    Who reads goes on after an error: prefetches do, and so does a stock worker. Many sources then
    go on with what comes behind the record that failed, up to an end that looks like any other. A
    zip asks all its inputs even if one fails, so that the numbers have a gap where an error was.
    """
    once = tf.data.Dataset.range(2**62).take(1)
    return once.flat_map(lambda _: tf.data.Dataset.range(2**62))


def _no_bundles() -> tf.Tensor:
    return tf.raw_ops.EmptyTensorList(
        element_shape=tf.constant(-1, tf.int32), max_num_elements=-1, element_dtype=tf.variant
    )


def _gather(
    state: tuple[tf.Tensor, ...], attempt: tuple[tf.Tensor, tuple[tf.Tensor, tf.Tensor]]
) -> tuple[tuple[tf.Tensor, ...], tuple[tf.Tensor, ...]]:
    held, count, size, opened_s, number, expected = state
    asked, (elements, sizes) = attempt
    without_error = asked == expected
    expected = tf.where(without_error, expected + 1, tf.constant(-1, tf.int64))
    last = sizes[0] < 0
    held = tf.raw_ops.TensorListPushBack(input_handle=held, tensor=elements)
    length = tf.raw_ops.TensorListLength(input_handle=held)
    count += tf.where(last, tf.constant(0, tf.int64), tf.size(sizes, tf.int64))
    size += tf.reduce_sum(sizes)
    now_s = tf.timestamp()
    opened_s = tf.where(length == 1, now_s, opened_s)
    full = (size >= WINDOW_BYTES) | (length >= _WINDOW_BUNDLES)
    patience_s = tf.minimum(
        FIRST_WINDOW_S * tf.cast(number + 1, tf.float64), tf.constant(LONGEST_WINDOW_S, tf.float64)
    )
    closes = last | full | (now_s - opened_s >= patience_s)
    stays = tf.cast(~closes, tf.int64)
    rest = tf.raw_ops.TensorListResize(input_handle=held, size=length * tf.cast(stays, tf.int32))
    state = rest, count * stays, size * stays, opened_s, number + 1 - stays, expected
    return state, (held, count, number, last & without_error, closes)


def _elements(held: tf.Tensor, count: tf.Tensor, specs: _Specs) -> tf.data.Dataset:
    """What a window holds."""

    def bundle(index: tf.Tensor) -> tf.data.Dataset:
        elements = tf.raw_ops.TensorListGetItem(
            input_handle=held,
            index=tf.cast(index, tf.int32),
            element_shape=tf.constant([-1], tf.int32),
            element_dtype=tf.variant,
        )
        return tf.data.Dataset.from_tensor_slices(elements)

    def unwrap(element: tf.Tensor) -> tuple[tf.Tensor, ...]:
        return tuple(
            tf.raw_ops.OptionalGetValue(
                optional=element,
                output_types=[spec.dtype for spec in specs],
                output_shapes=[spec.shape for spec in specs],
            )
        )

    length = tf.raw_ops.TensorListLength(input_handle=held)
    # The end that a source handed out is behind the elements.
    wrapped = tf.data.Dataset.range(tf.cast(length, tf.int64)).flat_map(bundle).take(count)
    return stock.sequential_map(wrapped, unwrap)


# Writing


def _writer(
    specs: _Specs, witness: str
) -> Callable[..., tuple[tuple[tf.Tensor, ...], tuple[tf.Tensor, ...]]]:
    """Writes window after window, until one fails: later ones could not become an entry anyway."""

    def write(
        state: tuple[tf.Tensor, tf.Tensor], window: tuple[tf.Tensor, ...]
    ) -> tuple[tuple[tf.Tensor, ...], tuple[tf.Tensor, ...]]:
        path, good = state
        held, count, number, last = window
        name = tf.strings.as_string(number, width=_DIGITS, fill="0")
        folder = tf.strings.join([path, "/", name, tf.where(last, _LAST, "")])
        good = tf.cond(
            good,
            lambda: _succeeds(
                lambda: tf.cond(
                    number < 0,
                    lambda: _note_beginning(path, witness),
                    lambda: _save(_elements(held, count, specs), count, folder, witness),
                )
            ),
            lambda: tf.constant(False),
        )
        return (path, good), (held, count)

    return write


def _note_beginning(path: tf.Tensor, witness: str) -> tf.Tensor:
    with tf.control_dependencies([tf.io.read_file(witness)] if witness else []):
        noted = tf.io.write_file(tf.strings.join([path, "/", _BEGUN]), "")
    with tf.control_dependencies([noted]):
        return tf.constant(True)


def _save(
    elements: tf.data.Dataset, count: tf.Tensor, folder: tf.Tensor, witness: str
) -> tf.Tensor:
    if witness:
        with tf.control_dependencies([tf.io.read_file(witness)]):
            folder = tf.identity(folder)
    # The save operator notes the count that it is told, not the one that it sees.
    told = elements.apply(tf.data.experimental.assert_cardinality(count))
    saved = stock.save_dataset(told, folder)
    # Skipped in C++, up to the end, at which the save operator finishes its files.
    return saved.skip(count).reduce(True, lambda *_: False)


def _succeeds(attempt: Callable[[], tf.Tensor]) -> tf.Tensor:
    # Only errors of the writing are swallowed: what it reads lies in memory.
    tried = tf.data.Dataset.from_tensors(0).map(lambda _: attempt()).ignore_errors()
    return tried.reduce(False, lambda _, result: result)


# Sizes


def _static_bytes(specs: _Specs) -> int | None:
    """How big every element is; None: they differ."""
    if any(s.dtype in (tf.string, tf.variant) or not s.shape.is_fully_defined() for s in specs):
        return None
    return sum(int(spec.shape.num_elements()) * int(spec.dtype.size) for spec in specs)


def _bytes(element: tuple[tf.Tensor, ...]) -> tf.Tensor:
    total = tf.constant(0, tf.int64)
    for tensor in element:
        if tensor.dtype == tf.variant:
            size = tf.strings.length(tf.io.serialize_tensor(tensor))
        elif tensor.dtype == tf.string:
            size = tf.reduce_sum(tf.strings.length(tensor)) + 8 * tf.size(tensor)
        else:
            size = tf.size(tensor, tf.int64) * tensor.dtype.size
        total += tf.cast(size, tf.int64)
    return total
