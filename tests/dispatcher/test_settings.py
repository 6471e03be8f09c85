"""Settings that can't be used are refused with their name, their value and where they are set."""

import math

import pytest

from cachew_core.errors import SettingsError
from cachew_core.settings import DispatcherSettings


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"min_workers": 5, "max_workers": 4}, "min_workers=5 is over max_workers=4"),
        ({"min_workers": -1}, "setting min_workers=-1"),
        ({"price_trainer_hour": -0.1}, "setting price_trainer_hour=-0.1"),
        ({"price_worker_hour": -1}, "setting price_worker_hour=-1"),
        ({"price_gb_month": -1}, "setting price_gb_month=-1"),
        ({"tenant_weights": "ads=0"}, "the weight of 'ads' must be over 0"),
        ({"tenant_weights": "ads=-2"}, "the weight of 'ads' must be over 0"),
        ({"tenant_weights": {"ads": math.inf}}, "the weight of 'ads' must be over 0"),
        ({"tenant_weights": "ads"}, "setting tenant_weights"),
    ],
)
def test_a_value_that_can_not_be_used_is_named(given: dict[str, object], words: str) -> None:
    with pytest.raises(SettingsError) as caught:
        DispatcherSettings.load(name="test", **given)
    assert words in str(caught.value)


def test_a_value_that_can_not_be_used_says_where_it_is_set() -> None:
    with pytest.raises(SettingsError, match="CACHEW_PRICE_GB_MONTH, or in "):
        DispatcherSettings.load(name="test", price_gb_month=-1)


def test_weights_of_tenants_are_read_from_text() -> None:
    settings = DispatcherSettings.load(name="test", tenant_weights="research=2, ads=1.5")
    assert settings.tenant_weights == {"research": 2.0, "ads": 1.5}
