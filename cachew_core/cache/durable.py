"""Writes and removals on a mounted path that a crash of a process or a machine leaves whole."""

from __future__ import annotations

import errno
import os
import shutil
import uuid
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

_BLOCK_BYTES = 4 << 20
_DRAFT_SUFFIX = ".draft"

# Some network file systems (GlusterFS) can't fsync a folder, and make its changes durable in
# another way.
_NO_FOLDER_FSYNC = {errno.EINVAL, errno.ENOTSUP, errno.EBADF}


class Stamp(NamedTuple):
    """What changes when a file is written to, or another one is put in its place.

    Programs can set a file's time of modification back; its time of change they can't.
    """

    size_bytes: int
    mtime_ns: int
    ctime_ns: int
    inode: int

    @classmethod
    def of(cls, status: os.stat_result) -> Stamp:
        """The stamp of the file with that status."""
        return cls(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)


class Content(NamedTuple):
    """What was read of a file."""

    size_bytes: int
    crc32: int
    stamp: Stamp
    """From before the reading: a file that was changed meanwhile has another one now."""


def sync_folder(folder: Path) -> None:
    """Makes the names in that folder durable, as far as its file system can."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_FOLDER_FSYNC:
            raise
    finally:
        os.close(descriptor)


def sync_tree(folder: Path) -> None:
    """Makes the names in that folder, and in all folders below it, durable."""
    for path, _, _ in os.walk(folder, topdown=False, onerror=_raise):
        sync_folder(Path(path))


def write_whole(path: Path, content: bytes) -> None:
    """Writes a file that others see in whole or not at all, in place of what was there."""
    draft = path.with_name(f"{path.name}.{uuid.uuid4().hex}{_DRAFT_SUFFIX}")
    try:
        with draft.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def is_draft(path: Path) -> bool:
    """Whether that is what a `write_whole` left that did not get to its end."""
    return path.name.endswith(_DRAFT_SUFFIX)


def read_through(
    path: Path, *, sync: bool = False, feed: Callable[[bytes], None] | None = None
) -> Content:
    """Reads a file from its beginning to its end.

    Args:
        path: the file.
        sync: whether to make its content durable as well.
        feed: gets the content, block by block.

    Raises:
        OSError: the file system failed.
    """
    size_bytes = crc32 = 0
    with path.open("rb", buffering=0) as file:
        stamp = Stamp.of(os.fstat(file.fileno()))
        while block := file.read(_BLOCK_BYTES):
            size_bytes += len(block)
            crc32 = zlib.crc32(block, crc32)
            if feed is not None:
                feed(block)
        if sync:
            os.fsync(file.fileno())
    return Content(size_bytes, crc32, stamp)


def bytes_below(folder: Path) -> int:
    """The sizes of all files in and below that folder, in bytes; what vanishes counts nothing."""
    total_bytes = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total_bytes += os.lstat(os.path.join(parent, name)).st_size
            except FileNotFoundError:
                continue
    return total_bytes


def remove(path: Path) -> None:
    """Removes a file, or a folder with all that is in it; nothing there is fine.

    Raises:
        OSError: it could not be removed.
    """
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, onerror=_raise_unless_gone)
    else:
        path.unlink(missing_ok=True)


def _raise(error: OSError) -> None:
    raise error


def _raise_unless_gone(
    _function: object, _path: str, info: tuple[object, BaseException, object]
) -> None:
    if not isinstance(info[1], FileNotFoundError):
        raise info[1]
