"""Runs as stock's `SaveDatasetV2` leaves them, made without TensorFlow."""

import struct
import uuid
from collections.abc import Sequence
from pathlib import Path

from cachew_core.proto import snapshot_pb2

INT64 = 9


def write_run(
    folder: Path, elements: Sequence[bytes], *, shards: int = 2, finalized: bool = True
) -> list[Path]:
    """Writes a run of one window; returns the chunk files."""
    return write_window(folder / "00000000-last", elements, shards=shards, finalized=finalized)


def write_window(
    folder: Path,
    elements: Sequence[bytes],
    *,
    shards: int = 2,
    finalized: bool = True,
    recorded: int | None = None,
) -> list[Path]:
    """Writes elements with one component each; returns the chunk files."""
    run_id = str(uuid.uuid4().int)
    (folder / run_id).mkdir(parents=True)
    chunks = []
    for shard in range(shards):
        chunk = folder / run_id / f"{shard:08d}.shard" / "00000000.snapshot"
        chunk.parent.mkdir()
        chunk.write_bytes(b"".join(map(_frame, elements[shard::shards])))
        chunks.append(chunk)
    record = snapshot_pb2.SnapshotMetadataRecord(
        run_id=run_id, version=2, dtype=[INT64], finalized=finalized
    )
    if finalized:
        record.num_elements = len(elements) if recorded is None else recorded
    (folder / "snapshot.metadata").write_bytes(record.SerializeToString())
    return chunks


def _frame(record: bytes) -> bytes:
    return struct.pack("<QI", len(record), 0) + record + struct.pack("<I", 0)
