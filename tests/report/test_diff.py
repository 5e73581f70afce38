from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from onnxq.report.diff import LINE_LIMIT, MOST_LINES, DiffRow, side_by_side

texts = st.lists(st.sampled_from("abcde"), max_size=30).map("\n".join)


@given(texts, texts)
def test_rows_hold_every_line_that_is_on_one_side_only(expected: str, found: str) -> None:
    rows = side_by_side(expected, found)
    assert bool(rows) == (expected != found)
    for text, side, kinds in ((expected, "expected", ("equal", "changed", "removed")), (found, "found", ("equal",))):
        lines = iter(text.splitlines())
        assert all(getattr(row, side) in lines for row in rows if row.kind in kinds)


def test_an_added_and_a_changed_line() -> None:
    assert side_by_side("a\nb\nc\n", "a\nB\nc\nd\n") == (
        DiffRow("equal", "a", "a"),
        DiffRow("changed", "b", "B"),
        DiffRow("equal", "c", "c"),
        DiffRow("added", "", "d"),
    )


def test_equal_lines_far_from_a_difference_are_counted_only() -> None:
    lines = [str(n) for n in range(100)]
    rows = side_by_side("\n".join(lines), "\n".join([*lines[:50], "new", *lines[50:]]))
    assert [row.expected for row in rows if row.kind == "skipped"] == ["47 equal lines", "47 equal lines"]
    assert len(rows) == 9


def test_long_texts_and_lines_are_cut() -> None:
    rows = side_by_side("x" * 10_000, "y\n" * 10_000)
    assert len(rows) == MOST_LINES
    assert len(rows[0].expected) == LINE_LIMIT
