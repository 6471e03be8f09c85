"""A trainer in a process of its own, for the namespaces of a GlusterFS server: reads some epochs of
records and says what it got, in JSON.

    gluster_trainer.py SERVICE JOB FOLDER EPOCHS [HOLD_AT]

At the element HOLD_AT of the last epoch it says "holds" and waits for a line.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import tensorflow as tf

import cachew_core as cachew
from cachew_core.cluster import status


def main() -> None:
    service, job, folder, epochs, *hold_at = sys.argv[1:]
    dataset = pipeline(Path(folder)).apply(cachew.distribute(service, job_name=job))
    read = []
    for number in range(int(epochs)):
        last = number == int(epochs) - 1
        read.append(_read(dataset, int(hold_at[0]) if hold_at and last else 0))
    found = next(each for each in status(service).jobs if each.job_name == job)
    for epoch, mode in zip(read, (epoch.mode for epoch in found.epochs), strict=True):
        epoch["mode"] = mode
    reasons = [decision.reason for decision in found.decisions]
    _say(json.dumps({"epochs": read, "reasons": reasons, "notices": list(found.notices)}))


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def pipeline(folder: Path) -> tf.data.Dataset:
    files = sorted(str(path) for path in folder.iterdir())
    # As large as records are, so that an epoch is no matter of one read.
    return tf.data.Dataset.from_tensor_slices(files).flat_map(
        lambda file: tf.data.TFRecordDataset(file).map(lambda record: (record, tf.zeros([25_000])))
    )


def _read(dataset: tf.data.Dataset, hold_at: int) -> dict[str, Any]:
    got: list[str] = []
    error = ""
    try:
        for record, _ in dataset:
            got.append(record.numpy().decode())
            if len(got) == hold_at:
                _say("holds")
                sys.stdin.readline()
    except tf.errors.OpError as failure:
        error = f"{type(failure).__name__}: {failure}"
    return {"records": sorted(got), "error": error}


if __name__ == "__main__":
    main()
