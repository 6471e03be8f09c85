"""The identity of source files in a bucket: it changes when any of them does."""

from __future__ import annotations

import pytest
from google.cloud import storage

from cachew_core.sources import SourceIdentity, identify


@pytest.fixture
def files(bucket: storage.Bucket) -> str:
    """Three files in two folders of the bucket; the URL of what they are in."""
    for name in ("data/a.rec", "data/b.rec", "data/deep/c.rec"):
        bucket.blob(name).upload_from_string(name)
    return f"gs://{bucket.name}/data"


def seen(*patterns: str) -> SourceIdentity:
    identity = identify(patterns)
    assert identity.problem == ""
    assert len(identity.digest) == 64
    return identity


def test_names_folders_and_globs_mean_what_they_mean_in_tensorflow(files: str) -> None:
    assert seen(f"{files}/a.rec").files == 1
    assert seen(f"{files}/*.rec").files == 2
    assert seen(f"{files}/[ab].r?c").files == 2
    assert seen(f"{files}/*/c.rec").files == 1
    assert seen(files) == seen(f"{files}/")
    assert (seen(files).files, seen(files).bytes) == (3, 10 + 10 + 15)
    assert seen(f"{files}/*.rec") == seen(f"{files}/b.rec", f"{files}/a.rec")
    assert seen(files).digest != seen(f"{files}/*.rec").digest


def test_a_file_that_is_written_again_added_or_removed_is_seen(
    files: str, bucket: storage.Bucket
) -> None:
    digests = [seen(files).digest, seen(files).digest]
    assert digests[0] == digests[1]
    bucket.blob("data/a.rec").upload_from_string("data/a.rec")
    digests.append(seen(files).digest)
    bucket.blob("data/d.rec").upload_from_string("")
    digests.append(seen(files).digest)
    bucket.blob("data/b.rec").delete()
    digests.append(seen(files).digest)
    assert len(set(digests)) == 4


def test_a_name_may_hold_the_characters_of_a_glob(files: str, bucket: storage.Bucket) -> None:
    bucket.blob("data/[a].rec").upload_from_string("odd")
    assert seen(f"{files}/[a].rec").bytes == 3


def test_what_can_not_be_seen_is_a_problem_that_names_it(files: str) -> None:
    missing = identify([f"{files}/x.rec"])
    assert missing.digest == ""
    assert f"source '{files}/x.rec' is not there" in missing.problem
    lost = identify(["gs://no-such-bucket/*"])
    assert "source 'gs://no-such-bucket/*' can't be looked at" in lost.problem
    assert "trust_sources=True" in lost.problem
