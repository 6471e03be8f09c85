"""What each tf.data operator does to a pipeline whose input is split over workers: one table.

The checks read it, and the page on data guarantees shows it. An operator outside of nested
functions is judged; inside a function of `flat_map` or `interleave` it works on what came from one
element, which one worker has whole. An operator that is not in the table is run on one worker: that
is right for every operator that can run remotely.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from cachew_core.pipeline.graph import base_op

__all__ = ["OPERATORS", "UNKNOWN", "OperatorRule", "Verdict", "operator_table", "rule_of"]


class Verdict(StrEnum):
    """What happens to a pipeline with such an operator under `distributed_epoch`."""

    SPLIT = "split over workers"
    ONE_WORKER = "one worker"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorRule:
    """One row: operators that are alike."""

    words: str
    """What users write, e.g. "map"; several forms separated by commas, the usual one first."""
    ops: tuple[str, ...]
    """Names of the graph's operators, without version."""
    verdict: Verdict
    why: str
    """Reads on after "because it ..."."""


def _rule(words: str, ops: str, verdict: Verdict, why: str) -> OperatorRule:
    return OperatorRule(words=words, ops=tuple(ops.split()), verdict=verdict, why=why)


_SPLIT, _ONE, _NO = Verdict.SPLIT, Verdict.ONE_WORKER, Verdict.REFUSED

OPERATORS: tuple[OperatorRule, ...] = (
    _rule("range", "RangeDataset", _SPLIT, "is a source whose elements are handed out"),
    _rule(
        "from_tensor_slices, list_files",
        "TensorSliceDataset",
        _SPLIT,
        "is a source whose elements are handed out",
    ),
    _rule(
        "from_tensors", "TensorDataset", _SPLIT, "is a source of one element, which is handed out"
    ),
    _rule("map", "MapDataset ParallelMapDataset", _SPLIT, "works on one element at a time"),
    _rule(
        "filter", "FilterDataset ParallelFilterDataset", _SPLIT, "works on one element at a time"
    ),
    _rule(
        "interleave",
        "InterleaveDataset ParallelInterleaveDataset LegacyParallelInterleaveDataset",
        _SPLIT,
        "works on one input element at a time",
    ),
    _rule("flat_map", "FlatMapDataset", _SPLIT, "works on one input element at a time"),
    _rule("unbatch", "UnbatchDataset", _SPLIT, "works on one element at a time"),
    _rule("ignore_errors", "IgnoreErrorsDataset", _SPLIT, "works on one element at a time"),
    _rule("prefetch", "PrefetchDataset", _SPLIT, "does not change elements"),
    _rule("with_options", "OptionsDataset", _SPLIT, "does not change elements"),
    _rule("mark, take(-1)", "TakeDataset(-1)", _SPLIT, "does not change elements"),
    _rule("skip(0)", "SkipDataset(0)", _SPLIT, "does not change elements"),
    _rule("sleep", "SleepDataset", _SPLIT, "does not change elements"),
    _rule(
        "shuffle",
        "ShuffleDataset",
        _SPLIT,
        "shuffles what each worker has; every element comes once",
    ),
    _rule(
        "cache",
        "CacheDataset",
        _SPLIT,
        "keeps what each worker has, in memory, for one epoch only (a `mark` outlives it)",
    ),
    _rule(
        "batch",
        "BatchDataset ParallelBatchDataset",
        _SPLIT,
        "is made whole again behind the service, see exact batches",
    ),
    _rule("concatenate", "ConcatenateDataset", _SPLIT, "hands out the elements of both inputs"),
    _rule(
        "repeat",
        "RepeatDataset",
        _SPLIT,
        "hands out its input again; at the end of the pipeline it moves behind the service",
    ),
    _rule(
        "zip, enumerate", "ZipDataset", _ONE, "pairs elements of several sources by their position"
    ),
    _rule(
        "sample_from_datasets, choose_from_datasets",
        "DirectedInterleaveDataset",
        _ONE,
        "draws from several sources in step",
    ),
    _rule(
        "weighted_flat_map",
        "WeightedFlatMapDataset IndexFlatMapDataset GlobalShuffleDataset",
        _ONE,
        "addresses elements by position",
    ),
    _rule("take", "TakeDataset", _ONE, "counts elements of the whole stream"),
    _rule("skip", "SkipDataset", _ONE, "counts elements of the whole stream"),
    _rule("shard", "ShardDataset", _ONE, "counts elements of the whole stream"),
    _rule(
        "assert_cardinality",
        "AssertCardinalityDataset",
        _ONE,
        "counts elements of the whole stream",
    ),
    _rule("take_while", "TakeWhileDataset", _ONE, "ends the whole stream at one element"),
    _rule("scan", "ScanDataset", _ONE, "carries a state from element to element"),
    _rule("unique", "UniqueDataset", _ONE, "compares elements of the whole stream"),
    _rule("window", "WindowDataset SlidingWindowDataset", _ONE, "groups neighbouring elements"),
    _rule(
        "group_by_window, bucket_by_sequence_length",
        "GroupByWindowDataset GroupByReducerDataset",
        _ONE,
        "groups elements of the whole stream",
    ),
    _rule(
        "padded_batch",
        "PaddedBatchDataset",
        _ONE,
        "groups neighbouring elements, and pads by the longest of them",
    ),
    _rule(
        "dense_to_sparse_batch", "DenseToSparseBatchDataset", _ONE, "groups neighbouring elements"
    ),
    _rule("rebatch", "RebatchDataset", _ONE, "groups neighbouring elements"),
    _rule("random", "RandomDataset", _ONE, "is a random source without splits"),
    _rule("load", "LoadDataset", _ONE, "is a source without splits"),
    _rule("shuffle_and_repeat", "ShuffleAndRepeatDataset", _ONE, "repeats inside the pipeline"),
    _rule("map_and_batch", "MapAndBatchDataset", _ONE, "groups neighbouring elements"),
    _rule(
        "make_csv_dataset, SqlDataset and other readers outside of `interleave`",
        "CSVDataset SqlDataset LMDBDataset TFRecordDataset TextLineDataset "
        "FixedLengthRecordDataset MatchingFilesDataset SparseTensorSliceDataset "
        "SnapshotChunkDataset",
        _ONE,
        "is a source without splits",
    ),
    _rule(
        "from_generator",
        "GeneratorDataset",
        _NO,
        "calls a Python function, which exists in the trainer's process only",
    ),
    _rule(
        "cache(filename)",
        "CacheDataset(file)",
        _NO,
        "writes one file from several workers and epochs",
    ),
    _rule(
        "snapshot, save",
        "SnapshotDataset SaveDataset",
        _NO,
        "writes one folder from several workers and epochs",
    ),
    _rule("distribute", "DataServiceDataset", _NO, "reads from another service inside this one"),
)

UNKNOWN = OperatorRule(
    words="any other",
    ops=(),
    verdict=Verdict.ONE_WORKER,
    why="is not known to give the same elements when its input is split",
)

_BY_OP = {op: rule for rule in OPERATORS for op in rule.ops}


def rule_of(op: str) -> OperatorRule:
    """The rule for an operator of the graph, e.g. "ParallelMapDatasetV2".

    Forms that depend on an argument have a name with it, e.g. "TakeDataset(-1)".
    """
    return (
        _BY_OP.get(base_op(op)) or _BY_OP.get(base_op(op).removeprefix("Experimental")) or UNKNOWN
    )


def operator_table() -> list[tuple[str, str, str]]:
    """The table for readers: operator, what happens under `distributed_epoch`, why."""
    return [
        (
            ", ".join(f"`{word.strip()}`" for word in rule.words.split(", ")),
            rule.verdict.value,
            f"it {rule.why}",
        )
        for rule in (*OPERATORS, UNKNOWN)
    ]
