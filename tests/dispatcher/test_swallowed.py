"""When errors that a pipeline ignores are taken to come for ever."""

from __future__ import annotations

from cachew_core.dispatcher.swallowed import STUCK_ERRORS, STUCK_S, Swallowed


def reported(
    swallowed: Swallowed, *, errors: int, seconds: int, text: str = "a", elements: int = 5
) -> bool:
    for second in range(seconds + 1):
        swallowed.add(errors, text, elements=elements, now_s=100.0 + second)
    return swallowed.is_stuck


def test_the_same_error_without_an_element_is_stuck() -> None:
    swallowed = Swallowed()
    assert not reported(swallowed, errors=STUCK_ERRORS, seconds=int(STUCK_S) - 1)
    assert reported(swallowed, errors=STUCK_ERRORS, seconds=int(STUCK_S))
    assert "a; tf.data tries" in swallowed.stuck_words("w/0")


def test_few_errors_are_not() -> None:
    swallowed = Swallowed()
    assert not reported(swallowed, errors=STUCK_ERRORS // 100, seconds=int(STUCK_S) + 10)


def test_errors_between_elements_are_not() -> None:
    swallowed = Swallowed()
    for second in range(3 * int(STUCK_S)):
        swallowed.add(STUCK_ERRORS, "a", elements=second // 20, now_s=float(second))
        assert not swallowed.is_stuck
    assert swallowed.errors == 3 * STUCK_S * STUCK_ERRORS


def test_bad_records_in_a_row_are_not() -> None:
    # As TensorFlow 2.21 words it.
    text = (
        "Error in user-defined function passed to MapDataset:4127 transformation with iterator: "
        "Iterator::Root::IgnoreErrors::ParallelMapV2: assertion failed: [damaged]"
    )
    assert not reported(Swallowed(), errors=STUCK_ERRORS, seconds=3 * int(STUCK_S), text=text)


def test_two_files_in_turn_are_stuck_as_one_is() -> None:
    swallowed = Swallowed()
    for second in range(int(STUCK_S) + 1):
        swallowed.add(STUCK_ERRORS, "ab"[second % 2], elements=5, now_s=float(second))
    assert swallowed.is_stuck
