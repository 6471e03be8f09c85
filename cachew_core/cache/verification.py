"""Whether an entry's files are those that were committed, without reading them each time."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from cachew_core.cache.durable import Stamp, read_through
from cachew_core.cache.entry import Chunk, DamagedError, Entry


class Verifier:
    """Remembers what the files looked like that were read and found right.

    An entry's manifest says it of the time when they were committed, so that the next service need
    not read them all before it can offer the first; whoever copies a store has them read again.
    """

    def __init__(self) -> None:
        self._accepted: dict[str, dict[str, Stamp | None]] = {}

    def check(self, entry: Entry) -> None:
        """Looks at the sizes of all files, and reads those that it has not seen as they are.

        Raises:
            DamagedError: a file is missing or not what was committed.
            OSError: the file system failed.
        """
        stamps = {chunk.path: _check_size(entry.path, chunk) for chunk in entry.files}
        accepted = self._accepted_of(entry)
        for chunk in entry.files:
            if accepted[chunk.path] != stamps[chunk.path]:
                _check_content(entry.path, chunk)
        self._accepted[entry.key] = dict(stamps)

    def check_one(self, entry: Entry, chunk: Chunk) -> None:
        """Looks at the size of one file, and reads it if it is not as it was seen last.

        Raises:
            DamagedError: the file is missing or not what was committed.
            OSError: the file system failed.
        """
        stamp = _check_size(entry.path, chunk)
        if self._accepted_of(entry)[chunk.path] != stamp:
            _check_content(entry.path, chunk)

    def doubt(self, entry: Entry, chunks: Iterable[Chunk]) -> None:
        """Reads those files again the next time that the entry is looked at."""
        self._accepted[entry.key] = self._accepted_of(entry) | {
            chunk.path: None for chunk in chunks
        }

    def forget(self, key: str) -> None:
        """That entry is gone; one of the same key has other files."""
        self._accepted.pop(key, None)

    def _accepted_of(self, entry: Entry) -> dict[str, Stamp | None]:
        known = self._accepted.get(entry.key, {})
        return {chunk.path: known.get(chunk.path, chunk.stamp) for chunk in entry.files}


def problems(entry: Entry) -> list[str]:
    """Reads all files of an entry and says what is wrong with them.

    Raises:
        OSError: the file system failed.
    """
    found = []
    for chunk in entry.files:
        try:
            _check_size(entry.path, chunk)
            _check_content(entry.path, chunk)
        except DamagedError as damage:
            found.append(str(damage))
    return found


def _check_size(folder: Path, chunk: Chunk) -> Stamp:
    try:
        status = (folder / chunk.path).stat()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise DamagedError(f"chunk {chunk.path} is missing") from error
    if status.st_size != chunk.bytes:
        raise DamagedError(f"chunk {chunk.path} has {status.st_size} bytes and not {chunk.bytes}")
    return Stamp.of(status)


def _check_content(folder: Path, chunk: Chunk) -> None:
    if read_through(folder / chunk.path).crc32 != chunk.crc32:
        raise DamagedError(f"chunk {chunk.path} has another content than was written")
