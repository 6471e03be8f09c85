"""Objects below a prefix of a Google Cloud Storage bucket: the few calls that caches and the look
at source files need, with errors in one form.

google-cloud-storage is an extra and slow to import, so it is imported with the first bucket.
`STORAGE_EMULATOR_HOST` names an emulator instead of Google's service, as that library documents.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cachew_core.errors import CacheError

if TYPE_CHECKING:
    from google.cloud import storage

SCHEME = "gs://"

NEW = 0
"""The generation of an object that is not there."""

RETRY_S = 10.0
"""For so long a call is tried again when the service is busy or can't be reached."""

TRANSFER_RETRY_S = 30.0
"""The same for whole files."""

REST_S = 30.0
"""A bucket that could not be reached is not asked again for so long: each epoch would wait."""

_CONNECT_S, _ANSWER_S = 5.0, 60.0

_TOLD = 300
"""Characters of the library's own words: it tells whole answers of the server."""

_FIELDS = "items(name,size,generation,updated,crc32c),nextPageToken"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredObject:
    """What the bucket says of an object."""

    name: str
    """Below the prefix."""
    size_bytes: int
    generation: int
    """Another one after each write."""
    updated: datetime
    """By the bucket's clock, with a time zone."""
    crc32c: str
    """Base64, as Google writes it."""


def is_bucket(location: str) -> bool:
    """Whether that is a place in a bucket and no path."""
    return location.startswith(SCHEME)


def split(url: str) -> tuple[str, str]:
    """The bucket and the name or prefix of `gs://bucket/name`.

    Raises:
        CacheError: it names no bucket.
    """
    bucket, _, name = url.removeprefix(SCHEME).partition("/")
    if not is_bucket(url) or not bucket:
        raise CacheError(f"{url!r} names no bucket: write it as gs://bucket/prefix")
    return bucket, name


class Bucket:
    """What lies below a prefix. All methods may be called from any thread.

    Each raises `CacheError` where the service refuses, or can't be reached for `RETRY_S`.
    """

    def __init__(self, url: str, *, anonymous_if_unknown: bool = False) -> None:
        """Connects to `gs://bucket/prefix`, without asking for anything yet.

        Args:
            url: of the bucket, with what all names begin with.
            anonymous_if_unknown: without credentials, ask as anybody may.

        Raises:
            CacheError: the URL can't be used, there are no credentials, or the library is missing.
        """
        bucket, prefix = split(url)
        self.url = f"{SCHEME}{bucket}/{prefix}".rstrip("/")
        self._prefix = f"{prefix.rstrip('/')}/" if prefix.strip("/") else ""
        self._client = _client(self.url, anonymous_if_unknown=anonymous_if_unknown)
        self._bucket = self._client.bucket(bucket)
        self._options = _options(RETRY_S)
        self._rests_until = 0.0
        self._trouble = ""

    def read(self, name: str) -> tuple[bytes, StoredObject] | None:
        """A whole object and what it is; None: it is not there."""
        from google.api_core.exceptions import NotFound

        with self._explained(f"read {name}"):
            try:
                blob = self._blob(name)
                blob.reload(**self._options)
                # Of just that generation, in case it is replaced between the two calls.
                found = self._blob(name, generation=blob.generation)
                return found.download_as_bytes(**self._options), self._stored(blob)
            except NotFound:
                return None

    def write(
        self, name: str, content: bytes, *, generation: int | None = None
    ) -> StoredObject | None:
        """Writes a small object.

        Args:
            name: below the prefix.
            content: all of it.
            generation: only if the object that is there has that one (`NEW`: if none is there).

        Returns:
            What was written; None: the object has another generation.
        """
        from google.api_core.exceptions import PreconditionFailed

        with self._explained(f"write {name}"):
            try:
                blob = self._blob(name)
                condition = {} if generation is None else {"if_generation_match": generation}
                blob.upload_from_string(
                    content, content_type="application/octet-stream", **condition, **self._options
                )
                return self._stored(blob)
            except PreconditionFailed:
                # A first try that was answered too late for us may have been it.
                found = self.read(name)
                return found[1] if found is not None and found[0] == content else None

    def listed(self, prefix: str = "") -> list[StoredObject]:
        """All objects whose names begin like that, by name."""
        with self._explained(f"list {prefix}"):
            blobs = self._client.list_blobs(
                self._bucket, prefix=self._prefix + prefix, fields=_FIELDS, **self._options
            )
            return [self._stored(blob) for blob in blobs]

    def delete(self, name: str, *, generation: int | None = None) -> bool:
        """Removes an object, if it still has that generation; whether it was there."""
        from google.api_core.exceptions import NotFound, PreconditionFailed

        with self._explained(f"delete {name}"):
            try:
                condition = {} if generation is None else {"if_generation_match": generation}
                self._blob(name).delete(**condition, **self._options)
            except (NotFound, PreconditionFailed):
                return False
            return True

    def upload(self, path: Path, name: str) -> None:
        """Sends a file, in parts that are tried again each; both sides compare its checksum.

        Raises:
            OSError: the file can't be read.
        """
        with self._explained(f"write {name}"):
            self._blob(name).upload_from_filename(
                str(path), checksum="crc32c", **_options(TRANSFER_RETRY_S)
            )

    def download(self, name: str, path: Path) -> None:
        """Fetches an object into a file; its checksum is compared.

        Raises:
            OSError: the file can't be written.
        """
        with self._explained(f"read {name}"):
            self._blob(name).download_to_filename(
                str(path), checksum="crc32c", **_options(TRANSFER_RETRY_S)
            )

    def close(self) -> None:
        """Ends the connections."""
        self._client.close()

    def _blob(self, name: str, *, generation: int | None = None) -> storage.Blob:
        return self._bucket.blob(self._prefix + name, generation=generation)

    def _stored(self, blob: storage.Blob) -> StoredObject:
        return StoredObject(
            name=blob.name.removeprefix(self._prefix),
            size_bytes=int(blob.size),
            generation=int(blob.generation),
            updated=blob.updated,
            crc32c=blob.crc32c or "",
        )

    @contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        if time.monotonic() < self._rests_until:
            raise CacheError(self._trouble)
        try:
            yield
        except _failures() as error:
            told = " ".join(str(error).split())[:_TOLD]
            trouble = f"{self.url} failed ({what}): {type(error).__name__}: {told}"
            if isinstance(error, _unreachable()):
                self._trouble, self._rests_until = trouble, time.monotonic() + REST_S
            raise CacheError(trouble) from error


def _client(url: str, *, anonymous_if_unknown: bool) -> storage.Client:
    try:
        from google.auth.exceptions import GoogleAuthError
        from google.cloud import storage
    except ImportError as error:
        raise CacheError(
            f"{url} needs google-cloud-storage ({error}): install cachew-service[gcs]"
        ) from error
    try:
        # No call here depends on the project, and credentials need not name one.
        return storage.Client(project=os.environ.get("GOOGLE_CLOUD_PROJECT", "cachew"))
    except (GoogleAuthError, OSError, ValueError) as error:
        if anonymous_if_unknown:
            return storage.Client.create_anonymous_client()
        raise CacheError(
            f"{url} can't be used without Google credentials ({error}): set "
            "GOOGLE_APPLICATION_CREDENTIALS, or run where there are some"
        ) from error


def _options(retry_s: float) -> dict[str, Any]:
    from google.cloud.storage.retry import DEFAULT_RETRY

    return {"retry": DEFAULT_RETRY.with_timeout(retry_s), "timeout": (_CONNECT_S, _ANSWER_S)}


def _failures() -> tuple[type[Exception], ...]:
    from google.api_core.exceptions import GoogleAPIError
    from google.auth.exceptions import GoogleAuthError
    from google.cloud.storage.exceptions import DataCorruption, InvalidResponse
    from requests import RequestException

    return GoogleAPIError, GoogleAuthError, DataCorruption, InvalidResponse, RequestException


def _unreachable() -> tuple[type[Exception], ...]:
    from google.api_core.exceptions import RetryError, ServerError
    from requests import ConnectionError, Timeout

    return RetryError, ServerError, ConnectionError, Timeout
