"""Whether an entry's files are those that were committed, without reading them each time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from cachew_core.cache.durable import Stamp, read_through
from cachew_core.cache.entry import Chunk, DamagedError, Entry


class Verifier:
    """Remembers which files it has read and found right, for as long as it lives."""

    def __init__(self) -> None:
        self._accepted: dict[str, Mapping[str, Stamp]] = {}

    def check(self, entry: Entry) -> None:
        """Looks at the sizes of all files, and reads those that it has not seen as they are.

        Raises:
            DamagedError: a file is missing or not what was committed.
            OSError: the file system failed.
        """
        accepted = self._accepted.get(entry.key, {})
        stamps = {chunk.path: _check_size(entry.path, chunk) for chunk in entry.files}
        for chunk in entry.files:
            if accepted.get(chunk.path) != stamps[chunk.path]:
                _check_content(entry.path, chunk)
        self.accept(entry.key, stamps)

    def check_one(self, entry: Entry, chunk: Chunk) -> None:
        """Looks at the size of one file, and reads it if it is not as it was seen last.

        Raises:
            DamagedError: the file is missing or not what was committed.
            OSError: the file system failed.
        """
        stamp = _check_size(entry.path, chunk)
        if self._accepted.get(entry.key, {}).get(chunk.path) != stamp:
            _check_content(entry.path, chunk)

    def doubt(self, key: str, paths: Iterable[str]) -> None:
        """Reads those files again the next time that the entry is looked at."""
        accepted = dict(self._accepted.get(key, {}))
        for path in paths:
            accepted.pop(path, None)
        self._accepted[key] = accepted

    def accept(self, key: str, stamps: Mapping[str, Stamp]) -> None:
        """Takes the files of that entry to be right for as long as they look like that."""
        self._accepted[key] = stamps

    def forget(self, key: str) -> None:
        """Reads that entry again if it is ever looked at."""
        self._accepted.pop(key, None)


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
