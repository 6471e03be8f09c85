"""Names and numbers of policies, and what the fixed ones do."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachew_core.errors import SettingsError
from cachew_core.policy.costs import PointProfile
from cachew_core.policy.fixed import follow
from cachew_core.policy.modes import END, CachePolicy, Mode, parse_policy

POINTS = (PointProfile(name="read"), PointProfile(name="decoded"), PointProfile(name=END))
NUMBERS = {
    1: CachePolicy.AUTO,
    2: CachePolicy.COMPUTE,
    3: CachePolicy.FULL,
    4: CachePolicy.SOURCE,
    30: CachePolicy.PUT,
    31: CachePolicy.GET,
    40: CachePolicy.PUT_SOURCE,
    41: CachePolicy.GET_SOURCE,
}


def test_the_original_s_numbers_mean_what_they_meant_there() -> None:
    assert {policy.number: policy for policy in CachePolicy} == NUMBERS


@pytest.mark.parametrize("number", NUMBERS)
def test_a_policy_is_read_by_number_text_and_name(number: int) -> None:
    policy = NUMBERS[number]
    for value in (number, str(number), policy.value, policy.upper(), policy.replace("_", "-")):
        assert parse_policy(value) is policy


def _known(value: str | int) -> bool:
    text = str(value).strip().lower().replace("-", "_")
    return any(text in (policy.value, str(policy.number)) for policy in CachePolicy)


@settings(deadline=None)
@given((st.text() | st.integers()).filter(lambda value: not _known(value)))
def test_anything_else_is_an_error_that_names_the_setting_the_value_and_what_there_is(
    value: str | int,
) -> None:
    with pytest.raises(SettingsError) as raised:
        parse_policy(value)
    for part in ("cache_policy", repr(value), "put_source (40)"):
        assert part in str(raised.value)


@pytest.mark.parametrize("value", [5, 0, True, "", "never"])
def test_there_is_no_policy_of_another_name(value: str | int) -> None:
    with pytest.raises(SettingsError, match="cache_policy="):
        parse_policy(value)


@pytest.mark.parametrize(
    ("policy", "first", "later", "point"),
    [
        (CachePolicy.COMPUTE, Mode.COMPUTE, Mode.COMPUTE, ""),
        (CachePolicy.FULL, Mode.PUT, Mode.GET, END),
        (CachePolicy.SOURCE, Mode.PUT_SOURCE, Mode.GET_SOURCE, "decoded"),
        (CachePolicy.PUT, Mode.PUT, Mode.PUT, END),
        (CachePolicy.GET, Mode.COMPUTE, Mode.GET, END),
        (CachePolicy.PUT_SOURCE, Mode.PUT_SOURCE, Mode.PUT_SOURCE, "decoded"),
        (CachePolicy.GET_SOURCE, Mode.COMPUTE, Mode.GET_SOURCE, "decoded"),
    ],
)
def test_a_fixed_policy_needs_no_measurement(
    policy: CachePolicy, first: Mode, later: Mode, point: str
) -> None:
    before = follow(policy, POINTS, frozenset())
    after = follow(policy, POINTS, frozenset({"read", "decoded", END}))
    assert before is not None
    assert after is not None
    assert (before.mode, after.mode, after.point) == (first, later, point)
    assert before.point == ("" if first is Mode.COMPUTE else point)
    assert policy.value in before.reason


def test_the_policy_that_is_not_fixed_is_left_to_the_measurements() -> None:
    assert follow(CachePolicy.AUTO, POINTS, frozenset()) is None


def test_what_may_not_be_stored_is_computed_and_the_reason_says_why() -> None:
    points = (PointProfile(name=END, refusal="map at line 3 calls tf.random.uniform"),)
    full = follow(CachePolicy.FULL, points, frozenset({END}))
    source = follow(CachePolicy.SOURCE, points, frozenset())
    assert full is not None
    assert source is not None
    assert (full.mode, source.mode) == (Mode.COMPUTE, Mode.COMPUTE)
    assert "map at line 3 calls tf.random.uniform" in full.reason
    assert "cachew.mark" in source.reason
