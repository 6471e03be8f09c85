"""The folders that the store lays out below its root, and whether a root can be used at all."""

from __future__ import annotations

import os
import re
import uuid
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from cachew_core.cache.durable import is_draft, write_whole
from cachew_core.errors import CacheError

ENTRIES = "entries"
WRITING = "writing"
TRASH = "trash"

MARK = "cachew-store.json"
LAYOUT = 1
"""Version of what lies below the root; a newer one may mean anything."""

LEAST_CAPACITY_BYTES = 1 << 20
"""One chunk."""

_KEY = re.compile(r"[0-9a-f]{64}")


class _Mark(BaseModel):
    model_config = ConfigDict(frozen=True)

    id: str
    layout: int


def is_key(text: str) -> bool:
    """Whether that can be the key of an entry."""
    return _KEY.fullmatch(text) is not None


def prepare(root: Path, *, capacity_bytes: int | None, require_mount: bool) -> None:
    """Makes sure that the root can be a store, and makes the folders that it has.

    Raises:
        CacheError: it can't be one; names the setting to change.
    """
    if capacity_bytes is not None and capacity_bytes < LEAST_CAPACITY_BYTES:
        raise CacheError(
            f"cache_capacity_bytes is {capacity_bytes}, which is less than one chunk: set it to "
            f"{LEAST_CAPACITY_BYTES} or more"
        )
    if not os.path.isdir(root):
        raise CacheError(f"cache_dir {root} is no folder: make or mount it, or set another one")
    if require_mount and not os.path.ismount(root):
        raise CacheError(
            f"cache_dir {root} is not a mount point, and it was said to be one: mount the volume"
        )
    try:
        _check_layout(root, _read(root))
    except OSError as error:
        raise CacheError(f"cache_dir {root} can't be read: {error}") from error
    try:
        for name in (ENTRIES, WRITING, TRASH):
            (root / name).mkdir(exist_ok=True)
    except OSError as error:
        raise CacheError(f"cache_dir {root} can't be written: {error}") from error


def store_id(root: Path) -> str:
    """The id of the store below that root, drawn when it is new; for the root's owner.

    Raises:
        CacheError: it can't be read.
        OSError: the file system failed.
    """
    return (_read(root) or _create(root)).id


def check_same(root: Path, expected_id: str) -> None:
    """Makes sure that the root still holds that store: a lost mount leaves an empty folder.

    Raises:
        CacheError: it does not.
    """
    try:
        mark = _read(root)
    except OSError as error:
        raise CacheError(f"cache_dir {root} can't be read: {error}") from error
    if mark is None or mark.id != expected_id:
        raise CacheError(f"cache_dir {root} holds another store than before: was its mount lost?")


def check_store(root: Path) -> None:
    """Makes sure that there is a store below that root.

    Raises:
        CacheError: there is none, or a newer one.
        OSError: the file system failed.
    """
    mark = _read(root)
    if mark is None:
        raise CacheError(f"cache_dir {root} holds no cache: no service has used it yet")
    _check_layout(root, mark)


def _check_layout(root: Path, mark: _Mark | None) -> None:
    if mark is not None and mark.layout > LAYOUT:
        raise CacheError(
            f"cache_dir {root} has layout {mark.layout}, and this Cachew knows {LAYOUT}: install a "
            "newer Cachew, or set another cache_dir"
        )


def drafts(root: Path) -> list[Path]:
    """What writers of the root's own files left when they died."""
    return [path for path in root.iterdir() if is_draft(path)]


def _read(root: Path) -> _Mark | None:
    try:
        return _Mark.model_validate_json((root / MARK).read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError as error:
        raise CacheError(
            f"{root / MARK} can't be read: restore it, or set another cache_dir"
        ) from error


def _create(root: Path) -> _Mark:
    mark = _Mark(id=uuid.uuid4().hex, layout=LAYOUT)
    write_whole(root / MARK, mark.model_dump_json(indent=1).encode() + b"\n")
    return mark
