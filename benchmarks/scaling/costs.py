"""What trainers and workers cost in the studies of scaling."""

from __future__ import annotations

from cachew_core.policy.constants import Prices

PRICES = Prices()
"""The paper's."""


def cost_of(seconds: float, worker_s: float) -> float:
    """Dollars for a trainer for so long, and for so many worker-seconds."""
    return (PRICES.trainer_hour * seconds + PRICES.worker_hour * worker_s) / 3600
