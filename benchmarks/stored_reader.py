"""A trainer in a process of its own that reads what another one has stored."""

from __future__ import annotations

import sys

import cachew_core as cachew
from benchmarks.reading import read_epoch
from benchmarks.stored_cases import batches

EPOCHS = 3


def main() -> None:
    """Takes an endpoint, a job's name, how many batches, their number, and whether to read them
    directly; writes the seconds of each epoch.
    """
    endpoint, job, count, number, direct_reads = sys.argv[1:]
    distribute = cachew.distribute(
        endpoint,
        job_name=job,
        cache_policy="full",
        scaling_policy="all",
        direct_reads=direct_reads,
    )
    dataset = batches(int(count), int(number)).apply(distribute)
    seconds = [read_epoch(dataset).seconds for _ in range(EPOCHS)]
    sys.stdout.write(" ".join(map(str, seconds)) + "\n")


if __name__ == "__main__":
    main()
