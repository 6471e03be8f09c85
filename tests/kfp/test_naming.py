"""Setup and teardown come to the same service name, each on its own."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachew_components.naming import service_name
from cachew_core.errors import SettingsError
from cachew_core.service_record import service_folder

RUN_IDS = st.text(min_size=1)


@given(run_name=st.text(), run_id=RUN_IDS)
def test_a_name_made_from_any_run_is_a_valid_service_name(run_name: str, run_id: str) -> None:
    name = service_name(name="", run_name=run_name, run_id=run_id)
    assert service_folder(name).name == name


@given(run_name=st.text(), run_ids=st.lists(RUN_IDS, min_size=2, max_size=2, unique=True))
def test_runs_of_the_same_name_get_different_services(run_name: str, run_ids: list[str]) -> None:
    first, second = (service_name(name="", run_name=run_name, run_id=each) for each in run_ids)
    assert first != second


def test_a_name_made_from_a_run_is_readable_and_the_same_each_time() -> None:
    names = {
        service_name(name="", run_name="Nightly run (EU) 2026", run_id="1f0c") for _ in range(2)
    }
    (name,) = names
    assert name.startswith("Nightly-run-EU-2026-")


def test_a_chosen_name_is_taken_as_it_is() -> None:
    assert service_name(name="photographs", run_name="a run", run_id="1f0c") == "photographs"


def test_neither_name_nor_run_is_an_error_that_says_what_to_do() -> None:
    with pytest.raises(SettingsError, match="pass name= to the component"):
        service_name(name="", run_name="", run_id="")
