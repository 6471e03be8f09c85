"""Work on this node's copies of buckets, as the dispatcher orders it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from pathlib import Path

from cachew_core.cache import Chunk, DamagedError, NotCompleteError, Run, Stage
from cachew_core.errors import CacheError
from cachew_core.gcs import Bucket
from cachew_core.proto import cachew_pb2

_log = logging.getLogger(__name__)

Result = cachew_pb2.StageResult


class Stages:
    """The copies on this node; one service has one."""

    def __init__(self) -> None:
        self._stages: dict[tuple[str, str], Stage] = {}

    def end(self) -> None:
        """Breaks off what is under way, so that this process can end."""
        for stage in self._stages.values():
            stage.end()

    async def do(self, order: cachew_pb2.StageOrder) -> cachew_pb2.StageResult:
        """Carries an order out and says how that went; never raises for what went wrong."""
        result = Result(order_id=order.order_id)
        try:
            runs = await asyncio.to_thread(self._do, order)
            result.runs.extend(_told(run) for run in runs)
        except NotCompleteError as error:
            result.failure, result.error = Result.INCOMPLETE, str(error)
        except DamagedError as error:
            result.failure, result.error = Result.DAMAGED, str(error)
        except (CacheError, OSError) as error:
            result.failure, result.error = Result.FAILED, str(error)
        except Exception as error:
            _log.exception("stage order %s", order.order_id)
            result.failure = Result.FAILED
            result.error = f"the agent failed: {type(error).__name__}: {error}"
        return result

    async def do_first(self, orders: Iterable[cachew_pb2.StageOrder]) -> None:
        """Carries orders out on which something depends.

        Raises:
            CacheError: one could not be carried out.
        """
        for result in await asyncio.gather(*(self.do(order) for order in orders)):
            if result.error:
                raise CacheError(result.error)

    def _do(self, order: cachew_pb2.StageOrder) -> list[Run]:
        stage = self._stage(order.bucket, order.folder)
        match order.WhichOneof("work"):
            case "send":
                return stage.send(order.send)
            case "fetch":
                files = [_chunk(file) for file in order.fetch.files]
                stage.fetch(order.fetch.name, files, keep=set(order.keep))
            case "tidy":
                stage.tidy(set(order.tidy.names))
            case "remove":
                stage.remove(order.remove)
            case unknown:
                raise CacheError(f"this agent does not know how to {unknown}")
        return []

    def _stage(self, bucket: str, folder: str) -> Stage:
        # Two threads may make one each the first time, of which the second stays: both are right.
        stage = self._stages.get((bucket, folder))
        if stage is None:
            stage = self._stages[bucket, folder] = Stage(Path(folder), Bucket(bucket))
        return stage


def _chunk(file: cachew_pb2.StagedFile) -> Chunk:
    return Chunk(path=file.path, bytes=file.bytes, crc32=file.crc32)


def _told(run: Run) -> cachew_pb2.StagedRun:
    files = [
        cachew_pb2.StagedFile(path=chunk.path, bytes=chunk.bytes, crc32=chunk.crc32)
        for chunk in run.chunks
    ]
    return cachew_pb2.StagedRun(files=files, elements=run.elements)
