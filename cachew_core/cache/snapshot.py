"""What a worker's task left in its run's folder, read without TensorFlow.

A run's folder holds windows, each written by a stock `SaveDatasetV2` of its own: in folders named
by their numbers from 0 on without a gap, the last one with a name that says so. That one is there
only if the task saw the end of the cache point's input.

A window's folder holds `snapshot.metadata`, which is there as soon as the iterator was made and is
written anew, as finalized, once the whole window was written; and beside it, a folder named by the
iterator's own id, with `<shard>.shard/<chunk>.snapshot` below. A writer that was left early,
killed, or ran into an error leaves the record unfinalized. The finalized one says how many elements
the window had in memory: that is what shows a file that has vanished since.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from google.protobuf.message import DecodeError

from cachew_core.cache.durable import read_through
from cachew_core.cache.entry import Chunk
from cachew_core.errors import CacheError
from cachew_core.proto import snapshot_pb2

_LAST = "-last"
_BEGUN = "begun"
"""A file that is there from the task's beginning."""

_METADATA = "snapshot.metadata"
_CHUNKS = "*.shard/*.snapshot"
_FORMAT_VERSION = 2

_LENGTH = struct.Struct("<Q")
# The length and its checksum in front of a record, and the content's checksum behind it.
_FRAME_BYTES = 8 + 4 + 4


class NotCompleteError(CacheError):
    """What was written is not all of the cache point's data, so it can't become an entry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run, or a window of one, that is complete."""

    chunks: tuple[Chunk, ...]
    elements: int


class RecordCounter:
    """Counts the records of an uncompressed TFRecord file that comes in blocks."""

    def __init__(self) -> None:
        self.records = 0
        self._skip_bytes = 0
        self._rest = b""

    def feed(self, block: bytes) -> None:
        """Takes the file's next bytes."""
        data = self._rest + block if self._rest else block
        at = self._skip_bytes
        while at + _LENGTH.size <= len(data):
            at += _LENGTH.unpack_from(data, at)[0] + _FRAME_BYTES
            self.records += 1
        self._rest = data[at:]
        self._skip_bytes = max(0, at - len(data))

    @property
    def is_whole(self) -> bool:
        """Whether what came so far ends with a record."""
        return not self._rest and not self._skip_bytes


def read_run(folder: Path, base: Path) -> Run:
    """Reads all that a finished run wrote, and makes its files durable.

    Args:
        folder: the run's.
        base: what the chunks' paths shall be relative to.

    Raises:
        NotCompleteError: the run did not see the end of its input, or not all that it wrote is
            there.
        OSError: something could not be read.
    """
    windows = [read_window(path, base) for path in _window_folders(folder)]
    return Run(
        chunks=tuple(chunk for window in windows for chunk in window.chunks),
        elements=sum(window.elements for window in windows),
    )


def _window_folders(folder: Path) -> list[Path]:
    found = sorted(path for path in folder.iterdir() if path.name != _BEGUN)
    for number, path in enumerate(found):
        is_last = number == len(found) - 1
        digits = path.name.removesuffix(_LAST) if is_last else path.name
        if not digits.isdecimal() or int(digits) != number:
            raise NotCompleteError(
                f"run {folder} has {path.name} where its window {number} should be"
            )
    if not found or not found[-1].name.endswith(_LAST):
        raise NotCompleteError(
            f"run {folder} did not see the end of its input, or could not write its window "
            f"{len(found)}"
        )
    return found


def read_window(folder: Path, base: Path) -> Run:
    """Reads what one `SaveDatasetV2` wrote, as `read_run` does.

    Args:
        folder: the path that it was given.
        base: what the chunks' paths shall be relative to.

    Raises:
        NotCompleteError: it was not all written, or is not all there.
        OSError: something could not be read.
    """
    record = _finalized_record(folder)
    _check_one_iterator(folder, record.run_id)
    chunks = []
    records = 0
    for path in sorted((folder / record.run_id).glob(_CHUNKS)):
        counter = RecordCounter()
        content = read_through(path, sync=True, feed=counter.feed)
        if not counter.is_whole:
            raise NotCompleteError(f"chunk {path} ends in the middle of a record")
        records += counter.records
        name = path.relative_to(base).as_posix()
        size_bytes, crc32, stamp = content
        chunks.append(Chunk(path=name, bytes=size_bytes, crc32=crc32, stamp=stamp))
    expected = record.num_elements * max(1, len(record.dtype))
    if records != expected:
        raise NotCompleteError(
            f"the chunks of {folder} hold {records} records, and {expected} were written"
        )
    return Run(chunks=tuple(chunks), elements=record.num_elements)


def _finalized_record(folder: Path) -> snapshot_pb2.SnapshotMetadataRecord:
    try:
        content = (folder / _METADATA).read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotCompleteError(f"{folder} has not begun: it has no {_METADATA}") from error
    try:
        record = snapshot_pb2.SnapshotMetadataRecord.FromString(content)
    except DecodeError as error:
        raise NotCompleteError(f"{_METADATA} of {folder} can't be read: {error}") from error
    if record.version != _FORMAT_VERSION:
        raise NotCompleteError(
            f"{folder} has format version {record.version} of TensorFlow's snapshots, and this "
            f"Cachew reads version {_FORMAT_VERSION}: use a TensorFlow that it supports"
        )
    if not record.finalized:
        raise NotCompleteError(f"{folder} was not written to its end")
    return record


def _check_one_iterator(folder: Path, run_id: str) -> None:
    # An iterator that is made again (by a `repeat` behind the cache point) writes into a folder of
    # its own and overwrites the record; what the passes hold together is not one pass's data.
    folders = {path.name for path in folder.iterdir() if path.is_dir()}
    if folders != {run_id}:
        raise NotCompleteError(
            f"{folder} was written by {len(folders)} iterators and not by one, so that it "
            "holds something else than one pass over the data"
        )
