"""Where a metadata store lies: the setting `store_url`, read and checked before it is used."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import psutil
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from cachew_core.errors import MetadataError

_SQLITE = "sqlite"
_POSTGRESQL = "postgresql+psycopg"
_DRIVERS = {
    "sqlite": _SQLITE,
    "sqlite+pysqlite": _SQLITE,
    "postgres": _POSTGRESQL,
    "postgresql": _POSTGRESQL,
    "postgresql+psycopg": _POSTGRESQL,
}
_FORMS = "sqlite:////path/to/file.db or postgresql+psycopg://user@host/database"

# SQLite's locks and its shared memory don't work, or not always, between machines.
_NETWORK_FILE_SYSTEMS = frozenset(
    {"afs", "beegfs", "ceph", "cifs", "fuse", "glusterfs", "gpfs", "lustre", "nfs", "nfs4", "smb3"}
)
# What the kernel shows as `fuse.NAME` counts as a network's, but for these.
_LOCAL_FUSE = frozenset({"fuse.fuse-overlayfs", "fuse.lxcfs"})


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreAddress:
    """A checked `store_url`.

    Attributes:
        url: for SQLAlchemy, with the driver that is used.
        path: the SQLite file; None for PostgreSQL.
    """

    url: URL
    path: Path | None

    def __str__(self) -> str:
        """The URL without its password."""
        # Not the method's default in SQLAlchemy 1.4.
        return self.url.render_as_string(hide_password=True)


def parse_address(text: str) -> StoreAddress:
    """Reads a `store_url`.

    Raises:
        MetadataError: it is no URL, of another database, SQLite's without a file, or with a file on
            a network file system.
    """
    try:
        url = make_url(text)
    except (ArgumentError, ValueError) as error:
        # The text may hold a password.
        raise MetadataError(f"store_url is not a URL: use {_FORMS}") from error
    driver = _DRIVERS.get(url.drivername)
    if driver is None:
        raise MetadataError(f"store_url is of type {url.drivername!r}: use {_FORMS}")
    url = url.set(drivername=driver)
    if driver == _POSTGRESQL:
        return StoreAddress(url=url, path=None)
    return _sqlite_address(url)


def _sqlite_address(url: URL) -> StoreAddress:
    if not url.database or url.database == ":memory:" or url.database.startswith("file:"):
        raise MetadataError(
            f"store_url={str(url)!r} names no file, so nothing would outlive the service: "
            "use sqlite:////path/to/file.db"
        )
    path = Path(url.database).expanduser().absolute()
    kind = file_system_type(path)
    if is_network_file_system(kind):
        raise MetadataError(
            f"store_url: {path} lies on a network file system ({kind}), on which SQLite's locks "
            "can't be trusted: use a local disk or a block volume, or PostgreSQL "
            "(postgresql+psycopg://user@host/database)"
        )
    return StoreAddress(url=url.set(database=str(path)), path=path)


def is_network_file_system(kind: str) -> bool:
    """Whether a file system of that type, as the kernel names it, may be shared by machines."""
    return kind in _NETWORK_FILE_SYSTEMS or (kind.startswith("fuse.") and kind not in _LOCAL_FUSE)


def file_system_type(path: Path) -> str:
    """Type, such as `ext4`, of the file system of a path that need not exist; empty if unknown."""
    resolved = path.resolve()
    above = {str(resolved), *(str(parent) for parent in resolved.parents)}
    # A later mount covers an earlier one at the same place.
    mounts = {part.mountpoint: part.fstype for part in psutil.disk_partitions(all=True)}
    found = [mountpoint for mountpoint in mounts if mountpoint in above]
    return mounts[max(found, key=len)] if found else ""
