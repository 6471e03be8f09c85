"""Wait and step times are measured per iterator, in the graph; the elements stay as they are."""

import gc
import math
import threading
import time

import pytest
import tensorflow as tf

from cachew_core import stock
from cachew_core.client.metrics import ITERATORS, IteratorMeter


def test_time_outside_counts_as_step_and_time_inside_as_wait() -> None:
    meter = IteratorMeter()
    slow = stock.SleepDataset(tf.data.Dataset.range(20), 10_000)
    for _ in meter.attach(slow):
        time.sleep(0.02)
    (totals,) = meter.read()
    assert totals.elements == 20
    assert totals.wait_s >= 20 * 0.01
    assert totals.step_s >= 19 * 0.02
    assert totals.span_s >= 19 * 0.03
    assert totals.wait_s + totals.step_s >= totals.span_s


def test_a_trainer_that_takes_elements_at_once_has_no_steps() -> None:
    meter = IteratorMeter()
    slow = stock.SleepDataset(tf.data.Dataset.range(20), 10_000)
    meter.attach(slow).reduce(tf.constant(0, tf.int64), tf.add)
    (totals,) = meter.read()
    assert totals.step_s < totals.wait_s


def test_a_buffer_in_front_of_the_measuring_hides_no_wait() -> None:
    meter = IteratorMeter()
    slow = stock.SleepDataset(tf.data.Dataset.range(20), 10_000).prefetch(4)
    for _ in meter.attach(slow):
        time.sleep(0.02)
    (totals,) = meter.read()
    assert totals.step_s > totals.wait_s


def test_each_iterator_has_totals_of_its_own() -> None:
    meter = IteratorMeter()
    dataset = meter.attach(tf.data.Dataset.range(7))
    for _ in dataset:
        pass
    half = iter(dataset)
    next(half)
    for _ in dataset:
        pass
    next(half)
    assert [(t.iterator, t.elements) for t in meter.read()] == [(0, 7), (1, 2), (2, 7)]


@pytest.mark.parametrize("outside", [True, False])
def test_each_pass_of_a_repeat_has_totals_of_its_own(outside: bool) -> None:
    meter = IteratorMeter()
    dataset = tf.data.Dataset.range(4)
    repeated = meter.attach(dataset).repeat(3) if outside else meter.attach(dataset, passes=3)
    assert list(repeated.as_numpy_iterator()) == [0, 1, 2, 3] * 3
    assert [t.elements for t in meter.read()] == [4, 4, 4]


def test_an_empty_pass_counts_as_one() -> None:
    meter = IteratorMeter()
    dataset = meter.attach(tf.data.Dataset.range(0))
    assert list(dataset) == []
    assert [(t.elements, t.wait_s, t.step_s, t.span_s) for t in meter.read()] == [(0, 0, 0, 0)]


def test_an_endless_repeat_goes_on_behind_an_empty_pass() -> None:
    passes_seen = stock.cpu_variable(tf.constant(0, tf.int64))
    meter = IteratorMeter()
    # The first pass is empty, as for a trainer whose fellows took everything.
    some = tf.data.Dataset.from_tensors(0).flat_map(
        lambda _: tf.data.Dataset.range(passes_seen.assign_add(1) - 1)
    )
    assert list(meter.attach(some, passes=-1).take(3).as_numpy_iterator()) == [0, 0, 1]


def test_an_iterator_that_is_never_asked_opens_nothing() -> None:
    meter = IteratorMeter()
    iterator = iter(meter.attach(tf.data.Dataset.range(3)))
    assert meter.read() == []
    next(iterator)
    assert len(meter.read()) == 1


def test_more_passes_than_are_kept_overwrite_the_oldest() -> None:
    meter = IteratorMeter()
    for _ in meter.attach(tf.data.Dataset.range(1), passes=ITERATORS + 3):
        pass
    numbers = [totals.iterator for totals in meter.read()]
    assert numbers == list(range(3, ITERATORS + 3))


def test_iterators_in_several_threads_do_not_disturb_each_other() -> None:
    meter = IteratorMeter()
    dataset = meter.attach(tf.data.Dataset.range(500))
    threads = [threading.Thread(target=lambda: [None for _ in dataset]) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        assert all(0 <= totals.elements <= 500 for totals in meter.read())
    assert [totals.elements for totals in meter.read()] == [500] * 4


def test_a_wait_that_goes_on_is_no_step_yet() -> None:
    meter = IteratorMeter()
    slow = stock.SleepDataset(tf.data.Dataset.range(3), 500_000)
    iterator = iter(meter.attach(slow))
    next(iterator)
    before = meter.read()
    asking = threading.Thread(target=lambda: next(iterator))
    asking.start()
    while asking.is_alive():
        looked = meter.read()
        assert looked == before or looked[0].elements == 2
    (totals,) = meter.read()
    assert totals.step_s < 0.5 * totals.wait_s


def test_the_wait_for_the_end_is_no_step() -> None:
    end_s = 2.0
    meter = IteratorMeter()
    numbers = stock.SleepDataset(tf.data.Dataset.range(100), 5_000)
    end = stock.SleepDataset(tf.data.Dataset.range(0), int(1e6 * end_s))
    arrivals: list[float] = []
    iterator = iter(meter.attach(numbers.concatenate(end)))
    reading = threading.Thread(target=lambda: arrivals.extend(time.time() for _ in iterator))
    reading.start()
    while reading.is_alive():
        meter.read()
        reading.join(0.05)
    (totals,) = meter.read()
    assert totals.elements == 100
    assert abs(totals.span_s - (arrivals[-1] - arrivals[0])) < end_s / 2


def test_a_line_that_was_used_before_begins_at_nothing() -> None:
    meter = IteratorMeter()
    for passes in (ITERATORS, 2):
        for _ in meter.attach(tf.data.Dataset.range(5), passes=passes):
            pass
        totals = meter.read()
    assert [t.iterator for t in totals] == list(range(2, ITERATORS + 2))
    assert {t.elements for t in totals} == {5}
    assert all(t.wait_s < 1 for t in totals)


def test_an_error_passes_and_the_iterator_goes_on() -> None:
    meter = IteratorMeter()
    numbers = tf.constant([0.0, 1.0, math.inf, 3.0])
    broken = tf.data.Dataset.from_tensor_slices(numbers).map(
        lambda number: tf.debugging.check_numerics(number, "the third")
    )
    iterator = iter(meter.attach(broken))
    assert [int(next(iterator)) for _ in range(2)] == [0, 1]
    with pytest.raises(tf.errors.InvalidArgumentError):
        next(iterator)
    assert [int(element) for element in iterator] == [3]
    assert [totals.elements for totals in meter.read()] == [4]


def test_an_iterator_outlives_the_meter_and_what_it_was_made_from() -> None:
    iterator = iter(IteratorMeter().attach(tf.data.Dataset.range(3), passes=2).repeat(2))
    gc.collect()
    assert [int(element) for element in iterator] == [0, 1, 2] * 4


def test_a_meter_can_be_read_when_nothing_of_its_dataset_is_left() -> None:
    meter = IteratorMeter()
    next(iter(meter.attach(tf.data.Dataset.range(3))))
    gc.collect()
    assert [totals.elements for totals in meter.read()] == [1]


def test_elements_of_every_structure_pass_unchanged() -> None:
    element = (
        {"none": None, "empty": (), "text": tf.constant("a")},
        tf.RaggedTensor.from_row_splits(tf.range(3), [0, 1, 3]),
        tf.sparse.from_dense([0, 5]),
        tf.zeros([0, 3]),
    )
    dataset = tf.data.Dataset.from_tensors(element)
    measured = IteratorMeter().attach(dataset)
    assert measured.element_spec == dataset.element_spec
    (structure, ragged, sparse, nothing) = next(iter(measured))
    assert structure["none"] is None
    assert structure["empty"] == ()
    assert structure["text"].numpy() == b"a"
    assert ragged.to_list() == [[0], [1, 2]]
    assert tf.sparse.to_dense(sparse).numpy().tolist() == [0, 5]
    assert nothing.shape == (0, 3)
