"""A process with a store of its own: store_process.py own|write|commit ROOT KEY.

own: opens the store, says so, and waits for its end; write: writes runs forever; commit: commits
and drops an entry of many files forever. What it does is said line by line.
"""

import itertools
import sys
from pathlib import Path

from stock_snapshots import write_run

from cachew_core.cache import CacheStore
from cachew_core.cache.entry import Writing

RUNS = 4
SHARDS = 10


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def begun(store: CacheStore, key: str) -> Writing:
    writing = store.begin(key)
    assert writing is not None
    return writing


def write(store: CacheStore, key: str) -> None:
    writing = begun(store, key)
    for run in itertools.count():
        write_run(writing.path / str(run), [b"x" * 1000] * 100)
        say("wrote")


def commit(store: CacheStore, key: str) -> None:
    while True:
        store.drop(key)
        writing = begun(store, key)
        for run in range(RUNS):
            write_run(writing.path / str(run), [b"x" * 1000] * 100, shards=SHARDS)
        say("commits")
        store.commit(writing, least_runs=RUNS, facts={})


def main() -> None:
    what, root, key = sys.argv[1:]
    store = CacheStore.open(Path(root))
    say("open")
    if what == "own":
        sys.stdin.read()
        store.close()
    elif what == "write":
        write(store, key)
    else:
        commit(store, key)


if __name__ == "__main__":
    main()
