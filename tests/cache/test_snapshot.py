"""A run is taken for finished only if its files hold what its record says."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stock_snapshots import write_window

from cachew_core.cache.snapshot import NotCompleteError, RecordCounter, read_run, read_window
from cachew_core.proto import snapshot_pb2

ELEMENTS = [b"a" * n for n in range(50)]


def test_a_run_that_has_not_begun_is_not_complete(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with pytest.raises(NotCompleteError, match="has not begun"):
        read_window(tmp_path / "run", tmp_path)


@pytest.mark.parametrize("recorded", [-2, 49, 51, 400])
def test_a_window_that_does_not_hold_what_its_record_says_is_not_complete(
    tmp_path: Path, recorded: int
) -> None:
    write_window(tmp_path / "run", ELEMENTS, recorded=recorded)
    with pytest.raises(NotCompleteError, match="hold 50 records"):
        read_window(tmp_path / "run", tmp_path)


def test_a_file_that_has_vanished_is_missed(tmp_path: Path) -> None:
    write_window(tmp_path / "run", ELEMENTS)[1].unlink()
    with pytest.raises(NotCompleteError, match="hold 25 records, and 50 were written"):
        read_window(tmp_path / "run", tmp_path)


WINDOWS = ["00000000", "00000001", "00000002-last"]


def test_a_run_has_the_elements_of_all_its_windows(tmp_path: Path) -> None:
    for name in WINDOWS[:-1]:
        write_window(tmp_path / "run" / name, ELEMENTS)
    write_window(tmp_path / "run" / WINDOWS[-1], [], shards=0)
    run = read_run(tmp_path / "run", tmp_path)
    assert run.elements == 2 * len(ELEMENTS)
    assert len({chunk.path for chunk in run.chunks}) == 4
    assert len(run.chunks) == 4


@pytest.mark.parametrize("missing", WINDOWS)
def test_a_window_that_is_not_there_is_missed(tmp_path: Path, missing: str) -> None:
    for name in set(WINDOWS) - {missing}:
        write_window(tmp_path / "run" / name, ELEMENTS)
    with pytest.raises(NotCompleteError, match=r"its window \d"):
        read_run(tmp_path / "run", tmp_path)


def test_windows_behind_the_last_one_are_not_one_run(tmp_path: Path) -> None:
    for name in ("00000000-last", "00000001-last"):
        write_window(tmp_path / "run" / name, ELEMENTS)
    with pytest.raises(NotCompleteError, match="has 00000000-last where its window 0 should be"):
        read_run(tmp_path / "run", tmp_path)


def test_half_an_element_is_found(tmp_path: Path) -> None:
    write_window(tmp_path / "run", [*ELEMENTS, b"half"])
    record = tmp_path / "run" / "snapshot.metadata"
    changed = snapshot_pb2.SnapshotMetadataRecord.FromString(record.read_bytes())
    changed.dtype.append(changed.dtype[0])
    record.write_bytes(changed.SerializeToString())
    with pytest.raises(NotCompleteError, match="51 records, and 102 were written"):
        read_window(tmp_path / "run", tmp_path)


def test_a_chunk_that_was_cut_off_is_found(tmp_path: Path) -> None:
    chunk = write_window(tmp_path / "run", ELEMENTS)[0]
    chunk.write_bytes(chunk.read_bytes()[:-1])
    with pytest.raises(NotCompleteError, match="in the middle of a record"):
        read_window(tmp_path / "run", tmp_path)


def test_two_iterators_in_one_run_are_found(tmp_path: Path) -> None:
    write_window(tmp_path / "run", ELEMENTS)
    write_window(tmp_path / "run", ELEMENTS)
    with pytest.raises(NotCompleteError, match="by 2 iterators"):
        read_window(tmp_path / "run", tmp_path)


def test_another_format_version_is_named(tmp_path: Path) -> None:
    write_window(tmp_path / "run", ELEMENTS)
    record = tmp_path / "run" / "snapshot.metadata"
    changed = snapshot_pb2.SnapshotMetadataRecord.FromString(record.read_bytes())
    changed.version = 3
    record.write_bytes(changed.SerializeToString())
    with pytest.raises(NotCompleteError, match="format version 3"):
        read_window(tmp_path / "run", tmp_path)


def test_a_record_that_is_no_message_is_named(tmp_path: Path) -> None:
    write_window(tmp_path / "run", ELEMENTS)
    (tmp_path / "run" / "snapshot.metadata").write_bytes(b"\xff" * 20)
    with pytest.raises(NotCompleteError, match=r"snapshot\.metadata .* can't be read"):
        read_window(tmp_path / "run", tmp_path)


@given(sizes=st.lists(st.integers(0, 40)), block=st.integers(1, 64), missing=st.integers(0, 30))
def test_records_are_counted_in_blocks_of_any_size(
    sizes: list[int], block: int, missing: int
) -> None:
    frames = [size.to_bytes(8, "little") + bytes(4 + size + 4) for size in sizes]
    content = b"".join(frames)
    content = content[: max(0, len(content) - missing)]
    counter = RecordCounter()
    for start in range(0, len(content), block):
        counter.feed(content[start : start + block])
    ends = {sum(map(len, frames[:count])): count for count in range(len(frames) + 1)}
    assert counter.is_whole == (len(content) in ends)
    if counter.is_whole:
        assert counter.records == ends[len(content)]
