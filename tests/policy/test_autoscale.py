"""The rules for the number of workers behind their one face."""

import pytest
from virtual_trainer import VirtualTrainer

from cachew_core.errors import SettingsError
from cachew_core.policy.autoscale import (
    AutoscaleSettings,
    Scaling,
    ScalingPolicy,
    begin,
    look,
    parse_scaling_policy,
)

SETTINGS = AutoscaleSettings()


@pytest.mark.parametrize(
    ("value", "policy"),
    [
        ("auto", ScalingPolicy.RATE_MATCH),
        (1, ScalingPolicy.RATE_MATCH),
        ("2", ScalingPolicy.ALL),
        ("ALL", ScalingPolicy.ALL),
        ("hill_climb", ScalingPolicy.HILL_CLIMB),
    ],
)
def test_policies_have_names_and_the_originals_numbers(
    value: str | int, policy: ScalingPolicy
) -> None:
    assert parse_scaling_policy(value) is policy


@pytest.mark.parametrize("value", ["", "3", "fast", 0])
def test_an_unknown_policy_is_refused_with_those_that_there_are(value: str | int) -> None:
    with pytest.raises(SettingsError, match=r"scaling_policy=.*hill_climb"):
        parse_scaling_policy(value)


def _scaled(scaling: Scaling, trainer: VirtualTrainer, *, epochs: int, most: int) -> Scaling:
    for number in range(1, epochs + 1):
        for progress in trainer.epoch(number, 2000):
            scaling = look(scaling, progress, most=most, settings=SETTINGS)
            trainer.workers = min(scaling.target or most, most)
    return scaling


@pytest.mark.parametrize("policy", [ScalingPolicy.RATE_MATCH, ScalingPolicy.HILL_CLIMB])
def test_each_rule_comes_to_the_number_that_the_trainer_can_use(policy: ScalingPolicy) -> None:
    trainer = VirtualTrainer(work_s=0.036, step_s=0.01)
    scaling = _scaled(begin(policy), trainer, epochs=4, most=8)
    assert scaling.settled
    assert scaling.target == 4
    assert scaling.looked > 0
    assert "4 workers" in scaling.reason


def test_the_policy_all_wants_all_from_the_start() -> None:
    scaling = begin(ScalingPolicy.ALL)
    assert (scaling.target, scaling.settled) == (None, True)
    trainer = VirtualTrainer(work_s=0.036, step_s=0.01)
    assert _scaled(scaling, trainer, epochs=1, most=3) == scaling


def test_what_it_began_with_and_why_is_told() -> None:
    assert begin(ScalingPolicy.RATE_MATCH).reason == "1 worker to begin with"
    scaling = begin(ScalingPolicy.HILL_CLIMB, guess=3, why="an earlier run came to rest there")
    assert scaling.target == 3
    assert scaling.reason == "3 workers to begin with: an earlier run came to rest there"


def test_a_cap_is_no_evidence() -> None:
    trainer = VirtualTrainer(work_s=0.08, step_s=0.01)
    capped = _scaled(begin(ScalingPolicy.RATE_MATCH), trainer, epochs=1, most=2)
    assert capped.target is not None
    assert capped.target > 2
    assert _scaled(capped, trainer, epochs=1, most=20).target in (8, 9)
