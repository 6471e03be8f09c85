"""The identity of the source files behind stored data: it changes when any of them does.

Data that was stored from files is served only as long as they are what they were then. Reading them
all to find out would cost as much as computing, so a file counts as unchanged while its path, size,
time of change and inode are; an object in a bucket, while its name, size and generation are.
"""

from __future__ import annotations

import glob
import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TypeAlias

from cachew_core.errors import CacheError
from cachew_core.gcs import SCHEME, Bucket, is_bucket, split

_Facts: TypeAlias = tuple[int, ...]
"""The size in bytes first, then what else changes with the content."""

__all__ = ["SourceIdentity", "files_of", "identify"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceIdentity:
    """What some files were at one moment."""

    digest: str
    """64 hex digits, the same in whatever order the files were named or listed; empty with a
    problem."""
    files: int
    """How many."""
    bytes: int
    """Of all of them."""
    problem: str
    """Why there is no identity, naming the path and what to do; empty: there is one."""


def files_of(patterns: Iterable[str]) -> list[str]:
    """The mounted files that patterns stand for, in order; what is not there is left out."""
    found: set[str] = set()
    for pattern in patterns:
        try:
            found.update(() if is_bucket(pattern) else _files(pattern))
        except (_UnseenError, OSError, ValueError):
            continue
    return sorted(found)


def identify(patterns: Iterable[str]) -> SourceIdentity:
    """Look at source files where they are mounted.

    Args:
        patterns: paths of files, of folders (which stand for all files below them), and globs; each
            may be in a bucket (`gs://...`). No pattern at all, as for data that is made without
            files, has an identity, too.
    """
    found: dict[str, _Facts] = {}
    for pattern in sorted(set(patterns)):
        try:
            found.update(_objects(pattern) if is_bucket(pattern) else _mounted(pattern))
        except _UnseenError as unseen:
            return _problem(str(unseen))
        except CacheError as error:
            return _problem(
                f"source {pattern!r} can't be looked at ({error}): mend that, or if it never "
                "changes, say so by trust_sources=True"
            )
        except (OSError, ValueError) as error:
            return _problem(f"source {pattern!r} can't be looked at ({error}): make it readable")
    hashed = hashlib.sha256()
    for path, facts in sorted(found.items()):
        hashed.update(repr((path, *facts)).encode("utf-8", "surrogateescape"))
    return SourceIdentity(
        digest=hashed.hexdigest(),
        files=len(found),
        bytes=sum(facts[0] for facts in found.values()),
        problem="",
    )


class _UnseenError(Exception):
    """A source that is not there, or is out of reach."""


def _mounted(pattern: str) -> Iterator[tuple[str, _Facts]]:
    for path in _files(pattern):
        status = os.stat(path)
        yield path, (status.st_size, status.st_mtime_ns, status.st_ino)


def _objects(pattern: str) -> dict[str, _Facts]:
    """What lies in a bucket under a name, below a name, or under names that match a glob."""
    bucket, name = split(pattern)
    # A name may hold the characters of a glob.
    fixed = re.split(r"[*?\[]", name, maxsplit=1)[0]
    listed = {stored.name: stored for stored in _connected(bucket).listed(fixed)}
    if name in listed:
        matches = [name]
    elif fixed != name:
        matches = [found for found in listed if _matches(found, name)]
    else:
        matches = [found for found in listed if found.startswith(f"{name.rstrip('/')}/")]
    if not matches:
        raise _UnseenError(f"source {pattern!r} is not there: look for it in the bucket")
    root = pattern.removesuffix(name)
    return {root + found: (listed[found].size_bytes, listed[found].generation) for found in matches}


@lru_cache(maxsize=16)
def _connected(bucket: str) -> Bucket:
    # What is read may be public.
    return Bucket(f"{SCHEME}{bucket}", anonymous_if_unknown=True)


def _matches(name: str, pattern: str) -> bool:
    """Whether a glob means that name: a `*` stops at a `/`, as in TensorFlow."""
    parts, globs = name.split("/"), pattern.split("/")
    return len(parts) == len(globs) and all(map(fnmatchcase, parts, globs))


def _files(pattern: str) -> list[str]:
    path = pattern.removeprefix("file://")
    if "://" in path:
        raise _UnseenError(
            f"source {pattern!r} is not a mounted file, so it can't be seen whether it changes: if "
            "it never does, say so by trust_sources=True"
        )
    if not os.path.isabs(path):
        raise _UnseenError(
            f"source {pattern!r} is a relative path, which means another file in each process: use "
            "an absolute one"
        )
    # A name may hold the characters of a glob.
    matches = [path] if os.path.exists(path) else glob.glob(path, include_hidden=True)
    if not matches:
        raise _UnseenError(
            f"source {pattern!r} is not there: mount it where the service runs, at the same path"
        )
    return [file for match in matches for file in _below(match)]


def _below(path: str) -> Iterator[str]:
    """A file itself, or all files in a folder, also behind links."""
    if not os.path.isdir(path):
        yield path
        return
    entered: set[tuple[int, int]] = set()
    for folder, inner, names in os.walk(path, onerror=_raise, followlinks=True):
        status = os.stat(folder)
        if (status.st_dev, status.st_ino) in entered:
            # A link back to a folder above.
            inner.clear()
            continue
        entered.add((status.st_dev, status.st_ino))
        yield from (os.path.join(folder, name) for name in names)


def _raise(error: OSError) -> None:
    raise error


def _problem(text: str) -> SourceIdentity:
    return SourceIdentity(digest="", files=0, bytes=0, problem=text)
