"""The store of cached data, in a folder or in a bucket: entries of stock chunk files, whole or not
there.
"""

from cachew_core.cache.backend import Store
from cachew_core.cache.bucket_store import BucketStore, Carrier, check_capacity
from cachew_core.cache.entry import JSON, Chunk, DamagedError, Entry, Writing
from cachew_core.cache.listing import stored_entries
from cachew_core.cache.opening import OpenedStore, list_entries, open_to_change, stored_keys
from cachew_core.cache.proof import Proof, lay_proof, read_proof
from cachew_core.cache.shelf import Shelf, staged_name
from cachew_core.cache.snapshot import NotCompleteError, Run
from cachew_core.cache.staging import Stage
from cachew_core.cache.store import CacheStore, Reclaimed

__all__ = [
    "JSON",
    "BucketStore",
    "CacheStore",
    "Carrier",
    "Chunk",
    "DamagedError",
    "Entry",
    "NotCompleteError",
    "OpenedStore",
    "Proof",
    "Reclaimed",
    "Run",
    "Shelf",
    "Stage",
    "Store",
    "Writing",
    "check_capacity",
    "lay_proof",
    "list_entries",
    "open_to_change",
    "read_proof",
    "staged_name",
    "stored_entries",
    "stored_keys",
]
