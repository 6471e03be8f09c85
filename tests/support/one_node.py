"""A store in a bucket whose only worker node is the test's own process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cachew_core.cache import BucketStore, Chunk, Shelf, Stage


class OneNode:
    """A carrier with one worker node, in this process."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self._held: dict[str, Sequence[Chunk]] = {}

    def begin(self, name: str) -> None:
        """Nobody else could write."""

    def send(self, name: str) -> list[tuple[Sequence[Chunk], int]]:
        return [(run.chunks, run.elements) for run in self.stage.send(name)]

    def hold(self, name: str, files: Sequence[Chunk]) -> None:
        self._held[name] = files

    def fetch(self, name: str, *, wait_s: float) -> bool:
        self.stage.fetch(name, self._held[name], keep=self._held)
        return True

    def let_go(self, name: str, *, remove: bool) -> None:
        self._held.pop(name, None)
        if remove:
            self.stage.remove(name)


def open_bucket(url: str, stage: Path, *, capacity_bytes: int | None = None) -> BucketStore:
    """The store at `gs://bucket/prefix`, with the node's copies in that folder."""
    stage.mkdir(exist_ok=True)
    shelf = Shelf.open(url, stage)
    carrier = OneNode(Stage(stage, shelf.bucket))
    return BucketStore(shelf, stage, carrier, capacity_bytes=capacity_bytes)
