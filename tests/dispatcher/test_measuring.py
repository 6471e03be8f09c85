"""What was measured beside a training, held against what the training saw."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from cachew_core.dispatcher.history import History
from cachew_core.dispatcher.jobs import JobBook
from cachew_core.dispatcher.measuring import Measurer
from cachew_core.dispatcher.pool import Pool
from cachew_core.metadata import MetadataStore
from cachew_core.policy.decisions import Environment
from cachew_core.proto import cachew_pb2

HERE = Environment(device="disk", version="1")
POINT = {
    "sampled": 10,
    "per_batch": 1.0,
    "prefix_s": 0.01,
    "suffix_s": 0.040,
    "bytes_per_element": 100.0,
    "read_cold_s": 0.001,
    "write_s": 0.001,
}
FIGURES: dict[str, Any] = {"compute_s": 0.060, "points": {"mark": POINT}}


@pytest.mark.parametrize(("seen_s", "told_s"), [(0.030, 0.030), (0.058, 0.060), (0.090, 0.060)])
def test_what_trainers_saw_of_computing_counts_where_it_is_clearly_faster(
    tmp_path: Path, seen_s: float, told_s: float
) -> None:
    url = f"sqlite:///{tmp_path / 'metadata.db'}"
    request = cachew_pb2.RegisterPipelineRequest(job_name="job", fingerprint="f" * 64)
    job = JobBook().register(request)

    async def corrected(history: History) -> float | None:
        measurer = Measurer(
            Pool(lambda: None), history, HERE, scratch=lambda: tmp_path / "scratch", budget_s=1
        )
        await measurer.find(job)
        await measurer.correct(job, seen_s)
        profile = measurer.profile(job, (), batches=None)
        return None if profile is None else profile.compute_s

    with MetadataStore.open(url, store="store") as store:
        history = History(store)
        history.keep_profile("f" * 64, HERE, FIGURES)
        assert asyncio.run(corrected(history)) == told_s
        kept = history.profile("f" * 64, HERE)
    # The next run is not misled, either.
    assert kept is not None
    assert kept["compute_s"] == told_s
    # What follows the mark is a part of all.
    assert kept["points"] == {"mark": {**POINT, "suffix_s": min(0.040, told_s)}}
