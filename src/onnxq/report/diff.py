"""Two texts side by side, line by line, with what is equal and far from any difference left out."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import zip_longest

MOST_LINES = 2_000
"""Lines of each text that are compared."""

LINE_LIMIT = 400
"""Characters of a line that are shown."""

_CONTEXT = 3


@dataclass(frozen=True, slots=True)
class DiffRow:
    """One row: a line of each text.

    Attributes:
        kind: "equal", "changed", "removed" (only expected), "added" (only found), or "skipped" for lines left out.
        expected: The line of the expected text; what is left out, for "skipped".
        found: The line of the text that was found.
    """

    kind: str
    expected: str
    found: str


def side_by_side(expected: str, found: str) -> tuple[DiffRow, ...]:
    """Compare two texts.

    Args:
        expected: One text; lines beyond `MOST_LINES` don't count, and likewise for the other one.
        found: The other one.

    Returns:
        The rows; () if the texts are equal. Texts that differ beyond `MOST_LINES` only have one row, of what is equal.
    """
    if expected == found:
        return ()
    left, right = (text.splitlines()[:MOST_LINES] for text in (expected, found))
    rows: list[DiffRow] = []
    shown = 0
    for group in SequenceMatcher(None, left, right).get_grouped_opcodes(_CONTEXT):
        rows += _left_out(group[0][1] - shown)
        for tag, left_from, left_to, right_from, right_to in group:
            pairs = zip_longest(left[left_from:left_to], right[right_from:right_to])
            rows += [_row(tag, before, after) for before, after in pairs]
        shown = group[-1][2]
    return (*rows, *_left_out(len(left) - shown))


def _left_out(count: int) -> list[DiffRow]:
    return [DiffRow("skipped", f"{count:,} equal line{'s' if count > 1 else ''}", "")] if count else []


def _row(tag: str, expected: str | None, found: str | None) -> DiffRow:
    if tag == "equal":
        kind = "equal"
    elif expected is None:
        kind = "added"
    else:
        kind = "removed" if found is None else "changed"
    return DiffRow(kind, (expected or "")[:LINE_LIMIT], (found or "")[:LINE_LIMIT])
