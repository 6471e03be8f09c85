"""Which entries lie in a folder, by their manifests alone."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

from cachew_core.cache import folders
from cachew_core.cache.entry import DamagedError, Entry, read_manifest
from cachew_core.errors import CacheError

_logger = logging.getLogger(__name__)


def stored_entries(root: Path | str) -> list[Entry]:
    """All entries of the store in that folder by key, whether or not a service uses it now.

    Their files are not looked at, and may be gone the next moment.

    Raises:
        CacheError: there is no store.
    """
    try:
        folders.check_store(Path(root))
        return entries_in(sorted((Path(root) / folders.ENTRIES).iterdir()))
    except OSError as error:
        raise CacheError(f"cache_dir {root} can't be read: {error}") from error


def entries_in(paths: Iterable[Path]) -> list[Entry]:
    """The entries among these folders; others are left out."""
    found = []
    for path in paths:
        try:
            found.append(read_manifest(path))
        except (DamagedError, OSError) as error:
            _logger.debug("No entry in %s: %s", path, error)
    return found


def is_no_entry(path: Path) -> bool:
    """Whether that can't be an entry; a failure of the file system does not tell."""
    try:
        read_manifest(path)
    except (DamagedError, FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False
