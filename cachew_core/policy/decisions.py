"""The values that go into autocache's choice and come out of it."""

from __future__ import annotations

from dataclasses import dataclass

from cachew_core.policy.modes import Mode


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Where something was found out; elsewhere it need not hold.

    Attributes:
        device: what the cache lies on, in any wording that stays the same.
        version: of Cachew and TensorFlow, likewise.
    """

    device: str
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A choice that was taken back.

    Attributes:
        point: the cache point whose entry was slower than computing.
        environment: where that was so. It holds until one of these changes.
        workers: at how many workers it was so; for people to read, since autoscale changes the
            number by itself.
        reason: the figures, in words.
    """

    point: str
    environment: Environment
    workers: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What a choice depends on besides the pipeline.

    Attributes:
        workers: the most that the job can have, at least 1.
        least_workers: the fewest; equal to `workers` where the number is fixed.
        demand: batches/s that the trainer could take; None: unknown.
        expected_reads: epochs that will read an entry written now, judged by history.
        epochs_left: epochs that this job will still start, the next one included; None: unknown.
        free_bytes: what the store can take, evictions included; None: no limit.
        entries: points that have an entry already.
        verdicts: choices taken back before.
        environment: where the job runs now.
        current: the point that is read now, "" while the job computes; None: nothing was chosen
            yet. It stays where another one is not clearly better.
    """

    workers: int
    environment: Environment
    least_workers: int = 1
    demand: float | None = None
    expected_reads: float = 3.0
    epochs_left: int | None = None
    free_bytes: int | None = None
    entries: frozenset[str] = frozenset()
    verdicts: tuple[Verdict, ...] = ()
    current: str | None = None

    @property
    def reads(self) -> float:
        """Epochs that will read an entry written now: at least those that the job itself has left
        after it.
        """
        return max(self.expected_reads, 0 if self.epochs_left is None else self.epochs_left - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What a candidate comes to once its entry, if it needs one, is there.

    Attributes:
        workers: the fewest with which it is about as good as it can be.
        batch_s: seconds from batch to batch.
        worker_s: worker-seconds per batch.
        price: money per batch; for a candidate that has to be written first, with its share of that
            and of the storage.
        added_bytes: what has to be stored for it, per batch; 0 for an entry that is there.
        put_workers: the fewest for the epoch that writes it; None: there is no such epoch.
        put_batch_s: seconds from batch to batch in that epoch.
    """

    workers: int
    batch_s: float
    worker_s: float
    price: float
    added_bytes: float = 0.0
    put_workers: int | None = None
    put_batch_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One thing that the next epoch could do.

    Attributes:
        mode: the next epoch's.
        point: the cache point it writes or reads; "" for COMPUTE.
        figures: None: there are no measurements to compute them from.
        left_out: why it can't be chosen; empty: it can.
    """

    mode: Mode
    point: str = ""
    figures: Figures | None = None
    left_out: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What the next epoch does.

    Attributes:
        mode: its mode.
        point: the cache point that it writes or reads; "" for COMPUTE.
        workers: how many workers that epoch should begin with; None: it was not computed.
        reason: why, in words, with the figures of everything that was considered.
        candidates: all of it, those left out included.
        direct: trainers read what is stored themselves, without workers.
    """

    mode: Mode
    reason: str
    point: str = ""
    workers: int | None = None
    candidates: tuple[Candidate, ...] = ()
    direct: bool = False
