"""Each file of an entry goes to one reader, and a file that is not as it was stored is told."""

from __future__ import annotations

import asyncio
import zlib
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cachew_core.cache import CacheStore, Chunk, Entry
from cachew_core.dispatcher.handout import Handout
from cachew_core.dispatcher.jobs import JobBook, Reader
from cachew_core.errors import CacheError
from cachew_core.proto import cachew_pb2

KEY = "ab" * 32
FILES = 20


def entry_in(folder: Path) -> Entry:
    chunks = []
    for number in range(FILES):
        content = b"%d" % number * 100
        (folder / str(number)).write_bytes(content)
        chunks.append(Chunk(path=str(number), bytes=len(content), crc32=zlib.crc32(content)))
    size = sum(chunk.bytes for chunk in chunks)
    now = datetime.now(UTC)
    return Entry(
        key=KEY, path=folder, files=tuple(chunks), elements=FILES, bytes=size, created_at=now
    )


def readers() -> list[Reader]:
    """Two readers of one epoch."""
    job = JobBook().register(cachew_pb2.RegisterPipelineRequest(job_name="shared"))
    clients = [job.add_client(name, host="host", pid=1, now=0) for name in ("a", "b")]
    return [job.open_reader(client, number, now=0) for number, client in enumerate(clients)]


def test_two_readers_share_the_files_and_each_file_goes_out_once(tmp_path: Path) -> None:
    async def take_all() -> list[str]:
        with CacheStore.open(tmp_path) as store:
            handout = Handout(store, entry_in(tmp_path), shuffled=True)
            paths, both = [], readers()
            while not handout.over.is_set():
                paths += [await handout.next_path(reader) for reader in both]
            assert [await handout.next_path(reader) for reader in both] == [None, None]
            return [path for path in paths if path is not None]

    paths = asyncio.run(take_all())
    assert sorted(paths) == sorted(str(tmp_path / str(number)) for number in range(FILES))
    assert paths != sorted(paths)


@pytest.mark.parametrize("when", ["before it is handed out", "while it is read"])
def test_a_file_that_was_cut_short_is_an_error(tmp_path: Path, when: str) -> None:
    async def take_one() -> None:
        with CacheStore.open(tmp_path) as store:
            handout, reader = Handout(store, entry_in(tmp_path), shuffled=False), readers()[0]
            if when == "while it is read":
                await handout.next_path(reader)
            (tmp_path / "0").write_bytes(b"")
            files = 1 + (when == "while it is read")
            await handout.next_path(reader)
            await handout.check_read(reader, files)

    with pytest.raises(CacheError, match="chunk 0 has 0 bytes and not 100"):
        asyncio.run(take_one())


def test_a_file_whose_name_was_lost_on_its_way_is_an_error(tmp_path: Path) -> None:
    async def take_two() -> None:
        with CacheStore.open(tmp_path) as store:
            handout, reader = Handout(store, entry_in(tmp_path), shuffled=False), readers()[0]
            await handout.next_path(reader)
            await handout.next_path(reader)
            await handout.check_read(reader, files=2)
            await handout.check_read(reader, files=1)

    with pytest.raises(CacheError, match=r"2 files .* were handed out .* 1 arrived"):
        asyncio.run(take_two())
