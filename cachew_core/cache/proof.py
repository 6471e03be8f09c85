"""How somebody proves to see the same volume: by reading back what lies on it.

An equal path is no proof. So the owner of a store writes a file with a secret, and says where it
lies and what the secret's checksum is, but not the secret.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from pathlib import Path

from cachew_core.cache.durable import write_whole
from cachew_core.errors import CacheError

NAME = "cachew-volume-proof"

_SECRET_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What lies on a store's volume for those who are to prove that they see it."""

    path: str
    """Of the file, absolute."""
    secret: str
    """What is in it."""

    @property
    def sha256(self) -> str:
        """Of the secret, in hexadecimal digits."""
        return digest_of(self.secret)


def lay_proof(root: Path) -> Proof:
    """Writes a new secret below a store's root, in place of the last owner's.

    Raises:
        CacheError: it can't be written.
    """
    proof = Proof(path=str(root / NAME), secret=secrets.token_hex(_SECRET_BYTES))
    try:
        write_whole(root / NAME, proof.secret.encode())
    except OSError as error:
        raise CacheError(f"cache_dir {root} can't be written: {error}") from error
    return proof


def read_proof(path: str, sha256: str) -> str:
    """The secret in the file at that path, if it is the one with that checksum; else nothing.

    Whoever asks may be anybody: no file of another name is opened, and nothing else is told.
    """
    if Path(path).name != NAME:
        return ""
    try:
        with open(path, "rb") as file:
            content = file.read(2 * _SECRET_BYTES).decode("ascii", errors="replace")
    except OSError:
        return ""
    return content if digest_of(content) == sha256 else ""


def digest_of(secret: str) -> str:
    """The checksum that is told of a secret."""
    return hashlib.sha256(secret.encode()).hexdigest()
