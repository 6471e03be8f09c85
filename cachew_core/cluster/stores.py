"""Which store a service gets whose starter names none, and the end of stores that hold nothing.

A pipeline run's service is named after the run, so a store of the service's name would never be
found again. Runs get a usual store instead. But a store is one service's at a time: a run that
comes while another one has the usual store gets one of its own, and works without what is there.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from cachew_core.cache import CacheStore
from cachew_core.cluster import locks, runs
from cachew_core.errors import CacheError, ServiceError
from cachew_core.service_record import store_folder
from cachew_core.settings import LocalSettings

_log = logging.getLogger(__name__)


@contextmanager
def reserved(usual: str | None, *, service: str) -> Iterator[str | None]:
    """Keeps a usual store for a service that is being started, until the block ends.

    Args:
        usual: the store's name; None: there is none.
        service: who wants it.

    Yields:
        The name, or None if there is none or another service on this machine has it.

    Raises:
        SettingsError: no store can have that name.
    """
    if usual is None:
        yield None
        return
    holding = locks.held(store_folder(usual), timeout_s=0)
    try:
        holding.__enter__()
    except ServiceError:
        _log.warning("%s", _taken(usual, "another service that is starting", service))
        yield None
        return
    try:
        user = _user_of(usual, besides=service)
        if user is not None:
            _log.warning("%s", _taken(usual, f"service {user!r}", service))
        yield None if user is not None else usual
    finally:
        holding.__exit__(None, None, None)


def _user_of(store: str, *, besides: str) -> str | None:
    records = (runs.record_of(name) for name in runs.names() if name != besides)
    using = (r for r in records if r is not None and r.store == store and runs.is_served(r))
    return next((record.name for record in using), None)


def _taken(usual: str, user: str, service: str) -> str:
    return (
        f"the usual store {usual!r} is in use by {user}, so service {service!r} begins with an "
        "empty one of its own; name other stores for pipelines that run at the same time"
    )


def remove_empty() -> list[str]:
    """Removes all stores on this machine whose cache holds no entry, with what is known there.

    Stores that are in use, and those whose cache is elsewhere, stay.

    Returns:
        Their names.
    """
    return [name for name in names() if _remove_if_empty(name)]


def names() -> list[str]:
    """The stores on this machine that have a cache of their own."""
    caches = (LocalSettings.load().home / "stores").glob("*/cache")
    return sorted(cache.parent.name for cache in caches)


def _remove_if_empty(name: str) -> bool:
    folder = store_folder(name)
    try:
        with locks.held(folder, timeout_s=0), CacheStore.open(folder / "cache"):
            if any((folder / "cache" / "entries").iterdir()):
                return False
            shutil.rmtree(folder, ignore_errors=True)
            return True
    except (CacheError, ServiceError, OSError) as error:
        _log.info("store %s stays: %s", name, error)
        return False
