"""Without a service the pipeline runs in the trainer, and says so."""

import logging
import time

import pytest
import tensorflow as tf

import cachew_core as cachew


@pytest.fixture(autouse=True)
def no_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CACHEW_SERVICE", raising=False)


def test_the_elements_are_those_of_the_pipeline_and_one_line_says_where_it_runs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pipeline = tf.data.Dataset.range(100).apply(cachew.mark()).map(lambda i: i + 1)
    with caplog.at_level(logging.INFO, "cachew"):
        dataset = pipeline.apply(cachew.distribute())
    for _ in range(2):
        assert list(dataset.as_numpy_iterator()) == list(range(1, 101))
    assert len(caplog.records) == 1
    assert "runs in this process" in caplog.text


def test_a_prefetch_buffer_is_kept_without_a_service() -> None:
    dataset = tf.data.Dataset.range(5).apply(cachew.distribute(prefetch=2))
    assert list(dataset.as_numpy_iterator()) == [0, 1, 2, 3, 4]
    assert len(dataset) == 5


def test_a_mark_changes_neither_elements_nor_length() -> None:
    dataset = tf.data.Dataset.range(10).apply(cachew.mark("decoded")).apply(cachew.mark("cropped"))
    assert list(dataset.as_numpy_iterator()) == list(range(10))
    assert len(dataset) == 10


def test_sleep_waits_before_each_element_and_changes_none() -> None:
    dataset = tf.data.Dataset.range(10).apply(cachew.sleep(20_000))
    began = time.monotonic()
    assert list(dataset.as_numpy_iterator()) == list(range(10))
    assert time.monotonic() - began >= 0.2
