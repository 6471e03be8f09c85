"""A trainer in a process of its own that reads an epoch for each line of its input, and says of
each in JSON what it read and in which mode.

    epoch_trainer.py SERVICE JOB ELEMENTS WORK_US
"""

from __future__ import annotations

import json
import sys

import tensorflow as tf

import cachew_core as cachew
from cachew_core.cluster import status


def main() -> None:
    service, job, elements, work_us = sys.argv[1:]
    numbers = tf.data.Dataset.range(int(elements)).apply(cachew.sleep(int(work_us)))
    # Large enough for a volume's speed to matter.
    pipeline = numbers.map(lambda number: (number, tf.zeros([25_000])))
    dataset = pipeline.apply(cachew.distribute(service, job_name=job, direct_reads="never"))
    for _ in sys.stdin:
        read = sorted(int(number) for number, _ in dataset)
        found = next(each for each in status(service).jobs if each.job_name == job)
        sys.stdout.write(
            json.dumps(
                {
                    "whole": read == list(range(int(elements))),
                    "mode": found.epochs[-1].mode,
                    "reasons": [decision.reason for decision in found.decisions],
                }
            )
            + "\n"
        )
        sys.stdout.flush()


if __name__ == "__main__":
    main()
