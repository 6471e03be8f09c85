"""What the store holds: entries with their chunk files, and the manifest that describes one."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import TypeAlias

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, JsonValue

from cachew_core.cache.durable import Stamp

JSON: TypeAlias = JsonValue
"""What JSON can hold."""

MANIFEST = "manifest.json"
RUNS = "runs"
OPEN = "open"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A file of an entry."""

    path: str
    """Relative to the entry's folder, with `/` between names."""
    bytes: int
    crc32: int
    stamp: Stamp | None = None
    """What it looked like when it was read for its checksum; None where that says nothing, as in a
    bucket."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """All data of one cache point, as it was committed."""

    key: str
    """Fingerprint of the data: 64 lower-case hexadecimal digits."""
    path: Path
    """Its folder, absolute."""
    files: tuple[Chunk, ...]
    elements: int
    bytes: int
    """Sizes of all files together."""
    created_at: datetime
    """With a time zone (UTC)."""
    facts: Mapping[str, JSON] = field(default_factory=dict)
    """What its maker noted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Writing:
    """An entry that is being written."""

    key: str
    path: Path
    """Absolute; every writer makes a folder of its own in it."""
    witness: Path | None = None
    """A file that is there for as long as what is written can become an entry: neither was it given
    up, nor is the volume lost. None: nobody can tell."""

    @property
    def folder(self) -> Path:
        """What becomes the entry's folder."""
        return self.path.parent


class DamagedError(Exception):
    """An entry on disk is not what was committed; the text says what is wrong."""


class _Chunk(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True)

    path: str = Field(pattern=rf"^{RUNS}/")
    bytes: int = Field(ge=0)
    crc32: int = Field(ge=0, lt=1 << 32)
    stamp: Stamp | None = None


class _Manifest(BaseModel):
    model_config = ConfigDict(frozen=True)

    key: str
    elements: int = Field(ge=0)
    created_at: AwareDatetime
    files: tuple[_Chunk, ...]
    facts: dict[str, JsonValue]


def encode_manifest(entry: Entry) -> bytes:
    """The content of an entry's manifest file.

    Raises:
        ValueError: the facts are not JSON.
    """
    manifest = _Manifest(
        key=entry.key,
        elements=entry.elements,
        created_at=entry.created_at,
        files=tuple(
            _Chunk(path=file.path, bytes=file.bytes, crc32=file.crc32, stamp=file.stamp)
            for file in entry.files
        ),
        facts=dict(entry.facts),
    ).model_dump(mode="json", exclude_none=True)
    document = {"crc32": _seal(manifest), "manifest": manifest}
    return json.dumps(document, indent=1, allow_nan=False).encode() + b"\n"


def _seal(manifest: JSON) -> int:
    # Of a canonical form, so that it holds for the content and not for the spelling.
    return zlib.crc32(json.dumps(manifest, sort_keys=True, separators=(",", ":")).encode())


def read_manifest(folder: Path) -> Entry:
    """The entry in that folder, as its manifest says; the files are not looked at.

    Raises:
        FileNotFoundError: there is no manifest.
        DamagedError: it can't be read, or is that of another entry.
        OSError: the file system failed.
    """
    return decode_manifest((folder / MANIFEST).read_bytes(), key=folder.name, folder=folder)


def decode_manifest(content: bytes, *, key: str, folder: Path) -> Entry:
    """The entry that a manifest describes.

    Args:
        content: of the manifest file.
        key: what the entry must have.
        folder: where its files are, or will be.

    Raises:
        DamagedError: it can't be read, or is that of another entry.
    """
    try:
        document = json.loads(content)
        if _seal(document["manifest"]) != document["crc32"]:
            raise DamagedError(f"{MANIFEST} has another checksum than it was written with")
        manifest = _Manifest.model_validate(document["manifest"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DamagedError(f"{MANIFEST} can't be read: {type(error).__name__}") from error
    if manifest.key != key:
        raise DamagedError(f"{MANIFEST} is that of entry {manifest.key}")
    if any(".." in PurePosixPath(file.path).parts for file in manifest.files):
        raise DamagedError(f"{MANIFEST} names a file outside of the entry")
    return Entry(
        key=manifest.key,
        path=folder,
        files=tuple(
            Chunk(path=file.path, bytes=file.bytes, crc32=file.crc32, stamp=file.stamp)
            for file in manifest.files
        ),
        elements=manifest.elements,
        bytes=sum(file.bytes for file in manifest.files),
        created_at=manifest.created_at,
        facts=manifest.facts,
    )
