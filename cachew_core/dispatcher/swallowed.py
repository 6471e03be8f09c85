"""What a pipeline's own `ignore_errors` swallows, and when it will do so for ever.

Some of tf.data's readers try a file that they can't open again and again, and never pass on to the
next one: with `ignore_errors` behind them, nothing comes any more, and nothing ends (so it is in a
local run, too; seen with TensorFlow 2.21 for missing files and for text with another compression).
"""

from __future__ import annotations

from dataclasses import dataclass

STUCK_S = 30.0
"""Without an element, while errors of readers come again and again."""

STUCK_ERRORS = 10_000
"""In that time; a reader that is stuck meets so many in a second or two."""

_IN_A_FUNCTION = ("{{function_node", "Error in user-defined function")
"""What the text of an error of a `map` begins with: its next record is another one."""


@dataclass(slots=True, kw_only=True)
class Swallowed:
    """The errors of one epoch, as far as they are known.

    Attributes:
        errors: their number.
        example: the text of the first.
        is_stuck: one of them comes for ever, or a few in turn.
    """

    errors: int = 0
    example: str = ""
    is_stuck: bool = False
    _text: str = ""
    _elements: int = -1
    _since_s: float = 0.0
    _in_reading: int = 0

    def add(self, errors: int, text: str, *, elements: int, now_s: float) -> None:
        """Counts some more.

        Args:
            errors: how many.
            text: of one of them.
            elements: that all trainers of the epoch have got so far.
            now_s: of a clock that never goes back.
        """
        if elements != self._elements:
            self._elements, self._since_s, self._in_reading = elements, now_s, 0
        self.errors += errors
        self.example = self.example or text
        if not text.startswith(_IN_A_FUNCTION):
            self._text = text
            self._in_reading += errors
        self.is_stuck = now_s - self._since_s >= STUCK_S and self._in_reading >= STUCK_ERRORS

    def words(self, epoch: int) -> str:
        """How much it was in the epoch of that number, for people."""
        return (
            f"ignore_errors swallowed {self.errors} errors in epoch {epoch}; an error in a file "
            f"ends the reading of that file. The first: {self.example}"
        )

    def stuck_words(self, worker: str) -> str:
        """Why the epoch can't go on, for people."""
        return (
            f"ignore_errors swallowed the same errors on worker {worker} for {STUCK_S:g} s, and no "
            f"element came: {self._text}; tf.data tries such a file for ever, so leave it out"
        )
