from __future__ import annotations

import time
from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxq.report.layout import LONGEST, Box, Layout, lay_out

Sizes = list[tuple[float, float]]
Edges = list[tuple[int, int]]


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Sizes, Edges]:
    sizes = draw(st.lists(st.tuples(st.integers(10, 200), st.integers(10, 90)), min_size=1, max_size=14))
    ends = st.integers(0, len(sizes) - 1)
    edges = draw(st.lists(st.tuples(ends, ends), max_size=24))
    return [(float(w), float(h)) for w, h in sizes], [(min(e), max(e)) for e in edges if e[0] != e[1]]


def lay(graph: tuple[Sizes, Edges]) -> Layout:
    layout = lay_out(*graph)
    assert layout is not None
    return layout


def overlap(a: Box, b: Box) -> bool:
    return a.x < b.x + b.width and b.x < a.x + a.width and a.y < b.y + b.height and b.y < a.y + a.height


@given(graphs())
def test_boxes_keep_their_sizes_do_not_overlap_and_lie_within(graph: tuple[Sizes, Edges]) -> None:
    layout = lay(graph)
    assert [(b.width, b.height) for b in layout.boxes] == graph[0]
    assert not [pair for pair in combinations(layout.boxes, 2) if overlap(*pair)]
    assert all(b.x >= -0.11 and b.x + b.width <= layout.width + 0.11 for b in layout.boxes)
    assert all(b.y >= 0 and b.y + b.height <= layout.height for b in layout.boxes)


@given(graphs())
def test_lines_go_down_from_the_lower_edge_of_their_source_to_the_upper_one_of_their_target(
    graph: tuple[Sizes, Edges],
) -> None:
    layout = lay(graph)
    for (source, target), line in zip(graph[1], layout.lines, strict=True):
        above, below = layout.boxes[source], layout.boxes[target]
        assert line[0][1] == above.y + above.height
        assert line[-1][1] == below.y
        assert below.x <= line[-1][0] <= below.x + below.width
        assert all(y0 <= y1 for (_, y0), (_, y1) in pairwise(line))


@given(graphs())
def test_lines_cross_no_box(graph: tuple[Sizes, Edges]) -> None:
    layout = lay(graph)
    for line in layout.lines:
        for (x0, y0), (x1, y1) in pairwise(line):
            if x0 == x1:
                assert not [b for b in layout.boxes if b.x < x0 < b.x + b.width and y0 < b.y + b.height and b.y < y1]
            else:  # it changes its place between two layers only, where no box is
                assert not [b for b in layout.boxes if y0 < b.y + b.height and b.y < y1]


@given(graphs())
def test_the_same_graph_gets_the_same_places(graph: tuple[Sizes, Edges]) -> None:
    assert lay_out(*graph) == lay_out(*graph)


def test_a_chain_is_straight() -> None:
    layout = lay(([(50.0, 20.0), (120.0, 40.0), (30.0, 20.0)], [(0, 1), (1, 2)]))
    assert len({b.x + b.width / 2 for b in layout.boxes}) == 1


def test_a_tree_has_no_crossings() -> None:
    edges = [(0, 1), (0, 2), (1, 5), (2, 3), (1, 6), (2, 4)]
    layout = lay(([(40.0, 20.0)] * 7, edges))
    left, right = sorted((1, 2), key=lambda box: layout.boxes[box].x)
    children = {parent: [layout.boxes[t].x for s, t in edges if s == parent] for parent in (left, right)}
    assert max(children[left]) < min(children[right])


def test_what_has_nothing_above_it_stands_near_its_reader() -> None:
    layout = lay(([(40.0, 20.0)] * 5, [(0, 1), (1, 2), (2, 4), (3, 4)]))
    assert layout.boxes[3].y == layout.boxes[2].y


def test_lines_into_one_box_end_side_by_side() -> None:
    layout = lay(([(40.0, 20.0)] * 2, [(0, 1), (0, 1)]))
    assert layout.lines[0][-1] != layout.lines[1][-1]


def test_an_empty_graph_has_no_size() -> None:
    assert lay_out([], []) == Layout(0.0, 0.0, (), ())


def test_edges_must_follow_the_numbers() -> None:
    with pytest.raises(ValueError, match="lower to a higher"):
        lay_out([(1.0, 1.0)] * 2, [(1, 0)])


def test_a_tangle_is_refused_at_once() -> None:
    count = 400
    chain = [(n, n + 1) for n in range(count - 1)]
    everything = [(0, n) for n in range(2, count)]
    assert sum(t - s for s, t in everything) > LONGEST
    assert lay_out([(40.0, 20.0)] * count, chain + everything) is None


def test_time_grows_with_the_graph_and_not_faster() -> None:
    def seconds(blocks: int) -> float:
        """Of a chain of residual blocks."""
        edges = [e for b in range(blocks) for e in ((3 * b, 3 * b + 1), (3 * b + 1, 3 * b + 3), (3 * b, 3 * b + 3))]
        start = time.process_time()
        lay_out([(40.0, 20.0)] * (3 * blocks + 1), edges)
        return time.process_time() - start

    small, big = (min(seconds(blocks) for _ in range(2)) for blocks in (50, 400))
    assert big < 8 * small * 4
