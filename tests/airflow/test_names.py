"""The rule that turns a rendered template into a service's name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachew_core.errors import SettingsError
from cachew_core.service_record import service_folder
from cachew_operators.names import valid_service_name

texts = st.text(min_size=1).filter(lambda text: text.strip())


@given(texts)
def test_every_text_gives_a_name_that_a_service_can_have(text: str) -> None:
    service_folder(valid_service_name(text))


@given(texts, texts)
def test_two_texts_give_two_names(one: str, other: str) -> None:
    assert (valid_service_name(one) == valid_service_name(other)) == (one == other)


@given(texts)
def test_a_name_stays_as_it_is_however_often_the_rule_is_applied(text: str) -> None:
    name = valid_service_name(text)
    assert valid_service_name(name) == name


def test_what_the_author_chose_is_kept_if_it_is_a_name() -> None:
    assert valid_service_name("Nightly_eval.2") == "Nightly_eval.2"


def test_a_run_gives_a_name_that_says_which_it_is() -> None:
    name = valid_service_name("cachew_training/scheduled__2026-11-29T00:00:00+00:00")
    assert name.startswith("cachew-training-scheduled-2026-11-29t00-00-00")


@pytest.mark.parametrize("text", ["", "  \n"])
def test_an_empty_name_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="service_name is empty"):
        valid_service_name(text)
