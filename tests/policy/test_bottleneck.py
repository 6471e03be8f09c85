"""What is said to hold a training up."""

from __future__ import annotations

from typing import Any

import pytest

from cachew_core.policy.bottleneck import Bottleneck, bottleneck

WAITING = {
    "wait_share": 0.5,
    "client_cpu_share": 0.1,
    "workers": 4,
    "wanted": 4,
    "settled": True,
}


@pytest.mark.parametrize(
    ("measured", "what"),
    [
        ({}, Bottleneck.SHARED),
        ({"wait_share": None}, Bottleneck.UNKNOWN),
        ({"wait_share": 0.04}, Bottleneck.TRAINER),
        ({"wait_share": 0.04, "client_cpu_share": 1.0}, Bottleneck.TRAINER),
        ({"client_cpu_share": 0.9}, Bottleneck.CLIENT),
        ({"workers": 2}, Bottleneck.WORKERS),
        ({"workers": 2, "client_cpu_share": 0.9}, Bottleneck.WORKERS),
        ({"settled": False}, Bottleneck.WORKERS),
        # A policy that never looks knows nothing of what more would give.
        ({"wanted": None}, Bottleneck.WORKERS),
        ({"wanted": None, "client_cpu_share": 0.9}, Bottleneck.CLIENT),
    ],
)
def test_what_holds_a_training_up(measured: dict[str, Any], what: Bottleneck) -> None:
    assert bottleneck(**(WAITING | measured)) is what
