"""Who writes which entry of a bucket: one service at a time, and a dead one blocks no other.

A claim is an object that its writer makes on condition that there is none, and writes again for as
long as it lives. Only whoever replaces just the generation that it has seen takes a dead one over,
so of several only one does. Ages are by the bucket's own clock.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass

from pydantic import ValidationError

from cachew_core.cache.lease import DEAD_AFTER_S, HEARTBEAT_S, Owner
from cachew_core.errors import CacheError
from cachew_core.gcs import NEW, Bucket, StoredObject

_logger = logging.getLogger(__name__)

CLAIMS = "writing/"
_CLOCKS = "clocks/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """That one writer writes the data of a key."""

    key: str
    owner: Owner
    replaced: str = ""
    """The token of the dead writer that had it before."""

    @property
    def token(self) -> str:
        """In the names of everything that this writer writes."""
        return self.owner.token


class Claims:
    """Claims of this process on the keys of a bucket, from construction to `close`.

    Args:
        bucket: where they lie.
        heartbeat_s: how often they are renewed.
        dead_after_s: one that was not renewed for so long is a dead writer's, unless its process
            can be seen.

    Attributes:
        own_token: in the names of this process's passing objects.
    """

    def __init__(
        self,
        bucket: Bucket,
        *,
        heartbeat_s: float = HEARTBEAT_S,
        dead_after_s: float = DEAD_AFTER_S,
    ) -> None:
        self._bucket = bucket
        self._dead_after_s = dead_after_s
        self._heartbeat_s = heartbeat_s
        self.own_token = Owner.this_process().token
        self._held: dict[str, tuple[Claim, StoredObject]] = {}
        self._lock = threading.RLock()
        self._has_clock = False
        self._closed = threading.Event()
        self._heart: threading.Thread | None = None

    def take(self, key: str) -> Claim | None:
        """Claims a key; None: a writer that lives has it.

        Raises:
            CacheError: the bucket failed.
        """
        name = f"{CLAIMS}{key}.json"
        found = self._bucket.read(name)
        owner = None if found is None else _owner_in(found[0])
        if found is not None and owner is not None and self._lives(owner, found[1]):
            return None
        if owner is not None:
            _logger.warning("Taking over the writing of cache entry %s from %s", key, owner)
        claim = Claim(
            key=key, owner=Owner.this_process(), replaced="" if owner is None else owner.token
        )
        written = self._bucket.write(
            name, _content(claim), generation=NEW if found is None else found[1].generation
        )
        if written is None:
            return None
        with self._lock:
            self._held[key] = claim, written
        self._start()
        return claim

    def check(self, claim: Claim) -> None:
        """Renews a claim, so that nobody takes it over from now on for a while.

        Raises:
            CacheError: it was taken over, or the bucket failed.
        """
        with self._lock:
            held = self._held.get(claim.key)
            if held is None or held[0] != claim or not self._renew(*held):
                raise CacheError(f"the writing of cache entry {claim.key} was taken over")

    def release(self, claim: Claim) -> None:
        """Gives a claim back; one that is not held any more is fine.

        Raises:
            CacheError: the bucket failed; the claim dies of age.
        """
        with self._lock:
            held = self._held.get(claim.key)
            if held is None or held[0] != claim:
                return
            del self._held[claim.key]
        self._bucket.delete(f"{CLAIMS}{claim.key}.json", generation=held[1].generation)

    def living(self) -> set[str]:
        """The tokens of all writers that live, of any service.

        Raises:
            CacheError: the bucket failed.
        """
        tokens = set()
        for stored in self._bucket.listed(CLAIMS):
            found = self._bucket.read(stored.name)
            owner = None if found is None else _owner_in(found[0])
            if found is not None and owner is not None and self._lives(owner, found[1]):
                tokens.add(owner.token)
        return tokens

    def close(self) -> None:
        """Gives all claims back."""
        self._closed.set()
        if self._heart is not None:
            self._heart.join()
        try:
            for claim, _ in list(self._held.values()):
                self.release(claim)
            if self._has_clock:
                self._bucket.delete(_CLOCKS + self.own_token)
        except CacheError as error:
            # The next writer finds this process dead.
            _logger.warning("Claims in the cache stay: %s", error)

    def _lives(self, owner: Owner, stored: StoredObject) -> bool:
        alive = owner.lives
        if alive is not None:
            return alive
        self._has_clock = True
        clock = self._bucket.write(_CLOCKS + self.own_token, b"")
        age_s = 0.0 if clock is None else (clock.updated - stored.updated).total_seconds()
        return age_s <= self._dead_after_s

    def _start(self) -> None:
        with self._lock:
            if self._heart is None:
                self._heart = threading.Thread(
                    target=self._beat, name="cachew-cache-claims", daemon=True
                )
                self._heart.start()

    def _beat(self) -> None:
        while not self._closed.wait(self._heartbeat_s):
            for claim, stored in list(self._held.values()):
                try:
                    with self._lock:
                        if self._held.get(claim.key) == (claim, stored):
                            self._renew(claim, stored)
                except CacheError as error:
                    _logger.warning("The claim on cache entry %s stays old: %s", claim.key, error)

    def _renew(self, claim: Claim, stored: StoredObject) -> bool:
        written = self._bucket.write(
            f"{CLAIMS}{claim.key}.json", _content(claim), generation=stored.generation
        )
        if written is None:
            _logger.warning("The writing of cache entry %s was taken over", claim.key)
            del self._held[claim.key]
            return False
        self._held[claim.key] = claim, written
        return True


def _content(claim: Claim) -> bytes:
    return claim.owner.model_dump_json(indent=1).encode() + b"\n"


def _owner_in(content: bytes) -> Owner | None:
    try:
        return Owner.model_validate_json(content)
    except ValidationError:
        # It is written in whole, so this is nobody's.
        return None
