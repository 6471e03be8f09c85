"""Services whose cache is in a bucket: what one stored, the next one reads, on any machine."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
import tensorflow as tf
from cached_jobs import Calls, Trainer, await_stored, modes, multiset, reasons
from google.cloud import storage
from object_store import ADDRESS, ObjectStore, names
from real_service import DEADLINE_S, RealService, eventually

import cachew_core as cachew

Start = Callable[..., RealService]


@pytest.fixture
def start(url: str, tmp_path: Path) -> Iterator[Start]:
    """Starts a service on the test's bucket with one worker and a stage of its own."""
    with ExitStack() as stack:

        def start_(name: str, *flags: str, workers: int = 1) -> RealService:
            (tmp_path / name).mkdir()
            places = (f"--cache-dir={url}", f"--cache-stage-dir={tmp_path / name / 'stage'}")
            service = stack.enter_context(
                RealService(tmp_path / name, f"--name={name}", *places, *flags)
            )
            for _ in range(workers):
                service.add_agent()
            return service

        yield start_


def served(service: RealService, dataset: tf.data.Dataset, job: str) -> tf.data.Dataset:
    return dataset.apply(cachew.distribute(service.endpoint, job_name=job, cache_policy="full"))


def pipeline(calls: Calls) -> tf.data.Dataset:
    """200 rows of different lengths."""
    names = tf.data.Dataset.range(200).map(tf.strings.as_string)
    return calls.counted(names).map(lambda name: (name, tf.strings.bytes_split(name)))


def slow(calls: Calls) -> tf.data.Dataset:
    return pipeline(calls).apply(cachew.sleep(10_000))


def objects_in(bucket: storage.Bucket, part: str) -> list[str]:
    return names(bucket, f"some/cache/{part}/")


def test_another_service_on_another_machine_reads_from_its_first_epoch(
    start: Start, tmp_path: Path, bucket: storage.Bucket
) -> None:
    calls = Calls(tmp_path / "calls")
    first = start("first", workers=2)
    dataset = served(first, pipeline(calls), "training")
    expected = multiset(dataset)
    await_stored(first, "training")
    assert calls.taken() == 200
    assert multiset(dataset) == expected
    assert modes(first, "training") == ["PUT", "GET"]
    assert len(objects_in(bucket, "entries")) == 1
    assert objects_in(bucket, "writing") == []
    first.stop()
    shutil.rmtree(first.folder / "stage")

    second = start("second", workers=2)
    dataset = served(second, pipeline(calls), "again")
    assert multiset(dataset) == expected
    assert multiset(dataset) == expected
    assert modes(second, "again") == ["GET", "GET"]
    assert calls.taken() == 0


def test_a_worker_that_comes_while_stored_data_is_read_has_it_before_it_begins(
    start: Start, tmp_path: Path
) -> None:
    calls = Calls(tmp_path / "calls")
    writer = start("writer")
    expected = multiset(served(writer, pipeline(calls), "training"))
    # Drained, a service ends when what was written is stored.
    writer.shutdown(drain=True)
    writer.dispatcher.wait(DEADLINE_S)
    reader = start("reader")
    trainer = Trainer(
        served(reader, pipeline(calls), "reading").apply(cachew.sleep(1_000)), hold_at=5
    )
    eventually(lambda: trainer.has(5))
    shutil.rmtree(reader.folder / "stage" / "entries")
    reader.add_agent()
    eventually(lambda: reader.workers_of("reading") == 2)
    trainer.go_on()
    assert trainer.done() == expected
    assert modes(reader, "reading") == ["GET"]
    assert len(list((reader.folder / "stage" / "entries").glob("*/runs"))) == 1


def test_a_damaged_object_is_found_and_the_epoch_computes_and_the_next_one_writes(
    start: Start, tmp_path: Path, bucket: storage.Bucket
) -> None:
    calls = Calls(tmp_path / "calls")
    writer = start("writer")
    expected = multiset(served(writer, pipeline(calls), "training"))
    await_stored(writer, "training")
    writer.stop()
    (damaged, *_) = [name for name in objects_in(bucket, "data") if name.endswith(".snapshot")]
    size = bucket.get_blob(damaged).size
    bucket.blob(damaged).upload_from_string(b"x" * size)

    reader = start("reader")
    dataset = served(reader, pipeline(calls), "reading")
    assert multiset(dataset) == expected
    assert "is damaged: chunk" in reasons(reader, "reading")
    assert multiset(dataset) == expected
    await_stored(reader, "reading", 2)
    assert multiset(dataset) == expected
    assert modes(reader, "reading") == ["COMPUTE", "PUT", "GET"]
    assert reader.log_text().count("is given up") == 1


def test_training_goes_on_when_the_bucket_is_lost_while_the_epoch_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ObjectStore(tmp_path / "server.log") as objects:
        monkeypatch.setenv(ADDRESS, objects.url)
        with closing(storage.Client(project="test")) as client:
            client.create_bucket("lost")
        places = ("--cache-dir=gs://lost/cache", f"--cache-stage-dir={tmp_path / 'stage'}")
        with RealService(tmp_path, *places) as service:
            service.add_agent()
            dataset = served(service, slow(Calls(tmp_path / "calls")), "training")
            trainer = Trainer(dataset, hold_at=10)
            eventually(lambda: trainer.has(10))
            objects.stop()
            trainer.go_on()
            expected = trainer.done()
            assert expected.total() == 200 == len(expected)
            assert multiset(dataset) == expected
            assert modes(service, "training") == ["PUT", "COMPUTE"]
            assert "gs://lost/cache failed" in service.log_text()
            assert list((tmp_path / "stage" / "writing").glob("*")) == []


def test_a_bucket_that_can_not_be_used_is_one_error_at_the_start_that_names_the_setting(
    bucket: storage.Bucket, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "cachew_core.cli", "dispatcher"]
    command += ["--cache-dir=gs://no-such-bucket/x", f"--cache-stage-dir={tmp_path}"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 1
    (told,) = [line for line in ended.stderr.splitlines() if "no-such-bucket" in line]
    assert "cache_dir gs://no-such-bucket/x can't be used" in told
