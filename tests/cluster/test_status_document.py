from __future__ import annotations

import json

from cachew_core.proto import cachew_pb2
from cachew_core.status_document import status_document

STATUS = cachew_pb2.ServiceStatus(
    name="one",
    endpoint="grpc://127.0.0.1:7000",
    state="running",
    versions=cachew_pb2.Versions(api=1),
    workers=[cachew_pb2.WorkerStatus(id="a/0", address="h:1", pid=2**40, state="serving", job="j")],
    jobs=[
        cachew_pb2.JobStatus(
            job_name="j",
            fingerprint="f",
            mode="COMPUTE",
            workers=1,
            target_workers=2,
            batch_time_ms=1.5,
            wait_fraction=0.25,
            epochs=[
                cachew_pb2.EpochStatus(
                    epoch=1, mode="COMPUTE", elements=2**40, seconds=2.5, workers=1
                )
            ],
        )
    ],
)


def test_a_status_has_the_promised_names_at_its_top() -> None:
    document = status_document(STATUS)
    assert document.keys() == {
        *("name", "endpoint", "page", "state", "notices", "workers", "jobs", "stored"),
    }


def test_workers_jobs_and_epochs_have_the_promised_names_and_values() -> None:
    document = json.loads(json.dumps(status_document(STATUS)))
    worker = {"id": "a/0", "address": "h:1", "pid": 2**40, "state": "serving", "job": "j"}
    assert document["workers"] == [worker]
    (job,) = document["jobs"]
    (epoch,) = job.pop("epochs")
    promised_job = {
        "job_name": "j",
        "fingerprint": "f",
        "mode": "COMPUTE",
        "workers": 1,
        "target_workers": 2,
        "batch_time_ms": 1.5,
        "wait_fraction": 0.25,
    }
    promised_epoch = {
        "epoch": 1,
        "mode": "COMPUTE",
        "elements": 2**40,
        "seconds": 2.5,
        "workers": 1,
        "repeated": 0,
        "skipped": 0,
    }
    assert job | promised_job == job
    assert epoch | promised_epoch == epoch


def test_what_is_zero_or_empty_is_there_too() -> None:
    document = status_document(cachew_pb2.ServiceStatus(jobs=[cachew_pb2.JobStatus()]))
    assert document["workers"] == []
    assert document["jobs"][0]["wait_fraction"] == 0
    assert document["jobs"][0]["epochs"] == []
