"""The commands `cachew caches ...`: what a store holds, seen and changed by a person."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from cachew_core import tables
from cachew_core.cache import Entry, list_entries, open_to_change, stored_keys
from cachew_core.cluster import stores
from cachew_core.errors import CacheError
from cachew_core.service_record import store_folder
from cachew_core.settings import DispatcherSettings

if TYPE_CHECKING:
    from cachew_core.metadata import MetadataStore

caches = typer.Typer(
    name="caches", help="Look at what a store holds, and change it.", no_args_is_help=True
)

_output = Console(soft_wrap=True, highlight=False, markup=False)

Store = Annotated[
    str,
    typer.Argument(
        metavar="STORE",
        help="A store's name, or the place of its cache (a folder with a /, gs://).",
    ),
]
AnyStore = Annotated[
    str, typer.Argument(metavar="[STORE]", show_default=False, help="As above; all, if left out.")
]
Key = Annotated[
    str, typer.Argument(metavar="KEY", help="An entry's key, or enough of its beginning.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@caches.command("list")
def list_caches(store: Store, as_json: Json = False) -> None:
    """List the entries of a store, also while a service uses it."""
    entries = list_entries(_place(store))
    if as_json:
        _output.print(json.dumps([_document(entry) for entry in entries], indent=2))
    else:
        _output.print(tables.caches_view([_document(entry) for entry in entries]))


@caches.command()
def show(store: Store, key: Key) -> None:
    """Show all that is known of an entry, as JSON."""
    entry = _entry(store, key)
    files = [{"path": file.path, "bytes": file.bytes, "crc32": file.crc32} for file in entry.files]
    _output.print(json.dumps(_document(entry) | {"files": files}, indent=2))


@caches.command()
def drop(store: Store, key: Key) -> None:
    """Remove an entry; no service may be using the store."""
    whole_key = _whole_key(store, key, stored_keys(_place(store)))
    with open_to_change(_place(store)) as opened:
        freed_bytes = sum(entry.bytes for entry in opened.entries() if entry.key == whole_key)
        opened.drop(whole_key)
    _output.print(f"{whole_key} is gone, {freed_bytes} bytes are free")


@caches.command()
def gc(store: AnyStore = "") -> None:
    """Remove what dead writers left; no service may be using the store.

    Without a store: remove all stores on this machine that hold no entry.
    """
    if not store:
        _remove_empty_stores()
        return
    with open_to_change(_place(store)) as opened:
        reclaimed = opened.collect()
    _output.print(
        f"{reclaimed.bytes} bytes are free: {reclaimed.writings} unfinished entries and "
        f"{reclaimed.leftovers} leftovers are gone"
    )


@caches.command()
def verify(store: Store) -> None:
    """Read all entries and compare their checksums; no service may be using the store."""
    damaged = 0
    with open_to_change(_place(store)) as opened:
        for key in stored_keys(_place(store)):
            problems = opened.verify(key)
            damaged += bool(problems)
            _output.print(f"{key} is {'damaged: ' + '; '.join(problems) if problems else 'whole'}")
    if damaged:
        raise CacheError(f"{damaged} entries are damaged: remove them with cachew caches drop")


@caches.command()
def events(
    store: Annotated[str, typer.Argument(metavar="STORE", help="A store's name.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", metavar="FILE", help="Where to. (default the standard output)"),
    ] = None,
) -> None:
    """Write what happened in a store as CSV, in the columns of the original Cachew's events.csv."""
    # What it needs takes half a second and 20 MB of every other command and of every agent.
    from cachew_core.metadata import write_events

    with _metadata(store) as metadata:
        if output is None:
            write_events(metadata, sys.stdout)
            return
        try:
            with output.open("w", newline="") as file:
                count = write_events(metadata, file)
        except OSError as error:
            raise CacheError(f"{output} can't be written: {error}") from error
    _output.print(f"{count} events are in {output}")


def _metadata(store: str) -> MetadataStore:
    from cachew_core.metadata import MetadataStore

    url = DispatcherSettings.load().store_url
    if url is None:
        path = store_folder(store) / "metadata.db"
        if not path.exists():
            raise CacheError(f"store {store!r} has no events: no service has used it ({path})")
        url = f"sqlite:///{path}"
    return MetadataStore.open(url, store=store, exclusive=False)


def _remove_empty_stores() -> None:
    gone = stores.remove_empty()
    for name in gone:
        _output.print(f"store {name} held nothing and is gone")
    if not gone:
        _output.print("no store is empty")


def _place(store: str) -> str:
    return store if "/" in store else str(store_folder(store) / "cache")


def _entry(store: str, key: str) -> Entry:
    entries = {entry.key: entry for entry in list_entries(_place(store))}
    return entries[_whole_key(store, key, entries)]


def _whole_key(store: str, key: str, keys: Iterable[str]) -> str:
    found = [whole for whole in keys if whole.startswith(key)]
    if len(found) != 1:
        raise CacheError(
            f"{len(found)} entries of store {store!r} have a key that begins with {key!r}: give "
            "enough of it for just one (cachew caches list)"
        )
    return found[0]


def _document(entry: Entry) -> dict[str, Any]:
    return {
        "key": entry.key,
        "elements": entry.elements,
        "bytes": entry.bytes,
        "files": len(entry.files),
        "created_at": entry.created_at.isoformat(timespec="seconds"),
        "facts": dict(entry.facts),
    }
