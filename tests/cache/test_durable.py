"""Folders are made durable where their file system can, and failures of files are not hidden."""

import errno
import os
from pathlib import Path

import pytest

from cachew_core.cache.durable import read_through, remove, sync_folder, write_whole


def test_a_folder_that_can_not_be_synced_is_fine() -> None:
    folder = os.open("/proc", os.O_RDONLY)
    try:
        with pytest.raises(OSError, match="Invalid argument"):
            os.fsync(folder)
    finally:
        os.close(folder)
    sync_folder(Path("/proc"))


def test_a_file_that_can_not_be_synced_is_an_error() -> None:
    with pytest.raises(OSError, match="Invalid argument") as failure:
        read_through(Path("/proc/version"), sync=True)
    assert failure.value.errno == errno.EINVAL


def test_a_file_is_replaced_in_whole_and_leaves_no_draft(tmp_path: Path) -> None:
    write_whole(tmp_path / "file", b"old")
    write_whole(tmp_path / "file", b"new")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"new"]


def test_what_can_not_be_written_leaves_no_draft(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError):
        write_whole(tmp_path / "folder", b"content")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_a_link_is_removed_and_not_what_it_leads_to(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").touch()
    link = tmp_path / "link"
    link.symlink_to(kept)
    remove(link)
    remove(link)
    assert (kept / "file").exists()
    assert not link.is_symlink()
