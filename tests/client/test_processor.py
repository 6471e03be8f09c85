"""How busy a trainer says that its process is."""

from __future__ import annotations

import os
import time

import pytest

from cachew_core.client.processor import ProcessorUse


class Clocks:
    """The wall's and the process's."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wall_s = self.used_s = 0.0
        monkeypatch.setattr(time, "monotonic", lambda: self.wall_s)
        monkeypatch.setattr(time, "process_time", lambda: self.used_s)
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})


def test_it_is_the_share_of_the_cores_over_the_last_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clocks = Clocks(monkeypatch)
    use = ProcessorUse()
    assert use.share() == 0
    clocks.wall_s, clocks.used_s = 2.0, 4.0
    assert use.share() == pytest.approx(0.5)
    # Half a second is too little to say something new.
    clocks.wall_s, clocks.used_s = 2.5, 6.0
    assert use.share() == pytest.approx(0.5)
    clocks.wall_s = 4.0
    assert use.share() == pytest.approx(0.25)


def test_it_is_never_over_one(monkeypatch: pytest.MonkeyPatch) -> None:
    clocks = Clocks(monkeypatch)
    use = ProcessorUse()
    clocks.wall_s, clocks.used_s = 1.0, 4.1
    assert use.share() == 1
