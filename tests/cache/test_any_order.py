"""Whatever is done in whatever order, the store offers what was committed and nothing else."""

import shutil
import tempfile
from pathlib import Path

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule
from stock_snapshots import write_run

from cachew_core.cache import CacheStore, Entry, NotCompleteError, Writing

KEYS = st.sampled_from([letter * 64 for letter in "abc"])


class AnyOrder(RuleBasedStateMachine):
    """Compares a store with a dictionary of what it should hold."""

    writings = Bundle("writings")

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="cachew-test-"))
        self.store = CacheStore.open(self.root)
        self.open: dict[str, Writing] = {}
        self.held: dict[str, Entry] = {}
        self.given_up: dict[str, Entry] = {}
        self.readers: dict[str, int] = {}

    def teardown(self) -> None:
        self.store.close()
        shutil.rmtree(self.root)

    @rule(target=writings, key=KEYS)
    def begin(self, key: str) -> object:
        writing = self.store.begin(key)
        is_taken = key in self.open or key in self.held or key in self.given_up
        assert (writing is None) == is_taken
        if writing is None:
            return multiple()
        self.open[key] = writing
        return writing

    @rule(writing=writings, size=st.integers(0, 5), finalized=st.booleans())
    def run(self, writing: Writing, size: int, finalized: bool) -> None:
        if self.open.get(writing.key) == writing:
            count = len(list(writing.path.iterdir()))
            write_run(writing.path / str(count), [b"x"] * size, finalized=finalized)

    @rule(writing=consumes(writings))
    def commit(self, writing: Writing) -> None:
        if self.open.pop(writing.key, None) != writing:
            return
        records = list(writing.path.glob("*/*/snapshot.metadata"))
        # The record's last field says that it is final.
        is_whole = bool(records) and all(
            record.read_bytes().endswith(b"\xc0\x3e\x01") for record in records
        )
        try:
            entry = self.store.commit(writing, least_runs=1, facts={})
        except NotCompleteError:
            assert not is_whole
            self.store.abandon(writing)
        else:
            assert is_whole
            self.held[writing.key] = entry

    @rule(writing=consumes(writings))
    def abandon(self, writing: Writing) -> None:
        self.store.abandon(writing)
        if self.open.get(writing.key) == writing:
            del self.open[writing.key]

    @rule(key=KEYS)
    def drop(self, key: str) -> None:
        entry = self.held.pop(key, None)
        is_read = self.readers.get(key, 0) > 0
        assert self.store.drop(key) == (entry is not None and not is_read)
        if entry is not None and is_read:
            self.given_up[key] = entry

    @rule(key=KEYS)
    def pin(self, key: str) -> None:
        self.store.pin(key)
        self.readers[key] = self.readers.get(key, 0) + 1

    @rule(key=KEYS)
    def unpin(self, key: str) -> None:
        if self.readers.get(key, 0):
            self.store.unpin(key)
            self.readers[key] -= 1
            if not self.readers[key]:
                self.given_up.pop(key, None)

    @rule(key=KEYS)
    def damage(self, key: str) -> None:
        entry = self.held.get(key)
        if entry is not None and entry.files:
            (entry.path / entry.files[0].path).unlink()
            del self.held[key]
            assert self.store.find(key) is None
            if self.readers.get(key, 0):
                self.given_up[key] = entry

    @rule()
    def collect(self) -> None:
        self.store.collect()

    @rule()
    def open_again(self) -> None:
        self.store.close()
        self.store = CacheStore.open(self.root)
        # A service that ends forgets its writers and readers, and what it was asked to drop then.
        self.open.clear()
        self.readers.clear()
        for key in list(self.given_up):
            self.store.drop(key)
        self.given_up.clear()

    @invariant()
    def what_is_held_is_found(self) -> None:
        assert {entry.key: entry for entry in self.store.entries()} == self.held
        for letter in "abc":
            assert self.store.find(letter * 64) == self.held.get(letter * 64)

    @invariant()
    def what_is_read_stays(self) -> None:
        for entry in self.given_up.values():
            assert entry.path.is_dir()

    @invariant()
    def what_is_written_stays(self) -> None:
        for writing in self.open.values():
            assert writing.path.is_dir()


AnyOrder.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestAnyOrder = AnyOrder.TestCase
