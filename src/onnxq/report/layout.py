r"""Where the boxes and lines of a directed acyclic graph go: a layered layout. Numbers in, numbers out.

    layer 0        [in]            every line goes down, from a layer to one below it;
                   /  \            a line over several layers bends only between them, so it never crosses a box
    layer 1     [Conv]  |
                   \  /
    layer 2        [Add]

The steps are those of Sugiyama, Tagawa and Toda (1981): layers by longest path; points where long lines pass a layer;
an order within each layer by barycentres; then positions. The last step looks for the positions nearest to what the
neighbours ask for that keep order and distance. That is isotonic regression, which pooling solves exactly in one pass.

No package does this for us: grandalf is GPL or EPL and had its last release in 2023, the others are bindings to
compiled code or to Graphviz, or lay out by force, which puts Q/DQ anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

LONGEST = 20_000
"""Sum of the layers that all lines may pass: beyond, the picture would be a tangle, and take too long."""

_SWEEPS = 8
_GAP = 22.0
"""Between two boxes of a layer."""
_LINE_GAP = 14.0
"""Between a box and a line that passes it, and between two such lines."""
_LAYER_GAP = 34.0
"""Between two layers."""
_PULL = 0.05
"""How strongly everything is drawn to the middle, of 1."""
_ENTRY_GAP = 24.0
"""Between two lines that enter one box."""
_BOX_WEIGHT, _LINE_WEIGHT = 1.0, 3.0
"""How much a box, and a passing line, cares for its place: lines more, so that they are straight."""


@dataclass(frozen=True, slots=True)
class Box:
    """A placed box: its upper left corner and its size."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Layout:
    """A placed graph.

    Attributes:
        width: Of the whole; everything lies between 0 and it.
        height: Likewise.
        boxes: The boxes, in the order in which they were given.
        lines: For each edge, in the order given, the points (x, y) that it passes, from its source down to its target.
            In turn it goes straight down past a layer, and bends between that layer and the next.
    """

    width: float
    height: float
    boxes: tuple[Box, ...]
    lines: tuple[tuple[tuple[float, float], ...], ...]


def lay_out(sizes: Sequence[tuple[float, float]], edges: Sequence[tuple[int, int]]) -> Layout | None:
    """Place the boxes of a graph in layers. The same graph always gets the same places.

    Args:
        sizes: Width and height of each box.
        edges: Source and target of each line, as positions in `sizes`. There may be several between two boxes.

    Returns:
        The places; None if the lines are too long in all, see `LONGEST`.

    Raises:
        ValueError: The source of an edge doesn't come before its target.
    """
    if any(not 0 <= source < target < len(sizes) for source, target in edges):
        raise ValueError("boxes must be numbered so that each edge goes from a lower to a higher number")
    layer = _layers(len(sizes), edges)
    if sum(layer[target] - layer[source] for source, target in edges) > LONGEST:
        return None
    grid = _Grid(sizes, edges, layer)
    grid.order()
    grid.place()
    return grid.layout()


def _layers(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """Longest path from the top; then what has nothing above it is pulled down to its first reader."""
    below: list[list[int]] = [[] for _ in range(count)]
    has_source = [False] * count
    for source, target in edges:
        below[source].append(target)
        has_source[target] = True
    layer = [0] * count
    for box, targets in enumerate(below):
        for target in targets:
            layer[target] = max(layer[target], layer[box] + 1)
    for box, targets in enumerate(below):
        if targets and not has_source[box]:
            layer[box] = min(layer[target] for target in targets) - 1
    return layer


class _Grid:
    """The boxes, and a slot in each layer that a line passes, by layer and then by place in it.

    Slots are numbered: the boxes first, as they were given, then the passing lines.
    """

    def __init__(
        self, sizes: Sequence[tuple[float, float]], edges: Sequence[tuple[int, int]], layer: list[int]
    ) -> None:
        self._boxes, self._sizes = len(sizes), sizes
        self._routes: list[list[int]] = []
        self._layer = list(layer)
        for source, target in edges:
            first = len(self._layer)
            self._layer += range(layer[source] + 1, layer[target])
            self._routes.append([source, *range(first, len(self._layer)), target])
        self._above: list[list[int]] = [[] for _ in self._layer]
        self._below: list[list[int]] = [[] for _ in self._layer]
        for route in self._routes:
            for upper, lower in pairwise(route):
                self._above[lower].append(upper)
                self._below[upper].append(lower)
        self._rows: list[list[int]] = [[] for _ in range(max(self._layer, default=-1) + 1)]
        for slot in self._first_visits():
            self._rows[self._layer[slot]].append(slot)
        self._x = [0.0] * len(self._layer)

    def _first_visits(self) -> list[int]:
        """Every slot in the order of a depth first walk, so that what hangs together starts side by side."""
        seen = [False] * len(self._layer)
        visited = []
        for start in range(self._boxes):
            stack = [start]
            while stack:
                slot = stack.pop()
                if not seen[slot]:
                    seen[slot] = True
                    visited.append(slot)
                    stack += reversed(self._below[slot])
        return visited

    def order(self) -> None:
        """Order each row by the mean position of the neighbours, down and up in turn; the best order seen stays."""
        best, fewest = self._rows, self._crossings()
        for sweep in range(_SWEEPS):
            if fewest == 0:
                break
            down = sweep % 2 == 0
            rows = self._rows if down else self._rows[::-1]
            neighbours = self._above if down else self._below
            sorted_rows = rows[:1]
            for row in rows[1:]:
                position = {slot: place for place, slot in enumerate(sorted_rows[-1])}
                means = {slot: _mean([position[n] for n in neighbours[slot]]) for slot in row}
                sorted_rows.append(_sort_some(row, means))
            self._rows = sorted_rows if down else sorted_rows[::-1]
            crossings = self._crossings()
            if crossings < fewest:
                best, fewest = self._rows, crossings
        self._rows = best

    def _crossings(self) -> int:
        """How many pairs of lines cross between two layers."""
        total = 0
        for row, lower in pairwise(self._rows):
            position = {slot: place for place, slot in enumerate(lower)}
            ends = [position[n] for slot in row for n in sorted(self._below[slot], key=position.__getitem__)]
            total += _inversions(ends, len(lower))
        return total

    def place(self) -> None:
        """Give each slot the x of its middle: start packed, follow the neighbours down and up in turn, then straighten.

        The last two sweeps look at both sides. In the end, what follows in a chain goes right below what it follows.
        """
        for row in self._rows:
            self._settle(row, [0.0] * len(row))
        for sweep in range(_SWEEPS):
            for row in self._rows if sweep % 2 == 0 else self._rows[::-1]:
                self._settle(row, [self._wanted(slot, sweep) for slot in row])
        for row in self._rows:
            self._settle(row, [self._x[self._followed(slot)] for slot in row])

    def _wanted(self, slot: int, sweep: int) -> float:
        """The mean of the neighbours, of those on the side where the sweep comes from if there are any.

        The pull to the middle, x = 0, keeps a row of blocks from wandering off by half a skip each.
        """
        above, below = self._above[slot], self._below[slot]
        near = [*above, *below] if sweep >= _SWEEPS - 2 else ((above, below)[sweep % 2] or (below, above)[sweep % 2])
        mean = _mean([self._x[n] for n in near])
        return (1 - _PULL) * (self._x[slot] if mean is None else mean)

    def _followed(self, slot: int) -> int:
        """The slot that this one follows in a chain; itself if it follows none."""
        above = self._above[slot]
        return above[0] if len(above) == 1 and len(self._below[above[0]]) == 1 else slot

    def _settle(self, row: list[int], wanted: list[float]) -> None:
        """Put the slots of a row as near as they can get to where they want to be, in order and without overlap."""
        widths = [self._width(slot) for slot in row]
        gaps = [
            (a + b) / 2 + (_GAP if s < self._boxes and t < self._boxes else _LINE_GAP)
            for (a, b), (s, t) in zip(pairwise(widths), pairwise(row), strict=True)
        ]
        offsets = list(accumulate(gaps, initial=0.0))
        weights = [_BOX_WEIGHT if slot < self._boxes else _LINE_WEIGHT for slot in row]
        fitted = _isotonic([w - offset for w, offset in zip(wanted, offsets, strict=False)], weights)
        for slot, value, offset in zip(row, fitted, offsets, strict=False):
            self._x[slot] = value + offset

    def _width(self, slot: int) -> float:
        return self._sizes[slot][0] if slot < self._boxes else 0.0

    def layout(self) -> Layout:
        """The boxes and lines with the upper left corner at 0."""
        slots = range(len(self._layer))
        left = min((self._x[s] - self._width(s) / 2 for s in slots), default=0.0)
        right = max((self._x[s] + self._width(s) / 2 for s in slots), default=0.0)
        heights = [max((self._sizes[s][1] for s in row if s < self._boxes), default=0.0) for row in self._rows]
        tops = list(accumulate((h + _LAYER_GAP for h in heights), initial=0.0))
        x = [round(value - left, 1) for value in self._x]
        boxes = []
        for slot, (width, height) in enumerate(self._sizes):
            row = self._layer[slot]
            boxes.append(Box(round(x[slot] - width / 2, 1), tops[row] + (heights[row] - height) / 2, width, height))
        return Layout(
            round(right - left, 1), max(tops[-1] - _LAYER_GAP, 0.0), tuple(boxes), self._lines(x, tops, boxes)
        )

    def _lines(
        self, x: list[float], tops: list[float], boxes: list[Box]
    ) -> tuple[tuple[tuple[float, float], ...], ...]:
        """Each line: past every layer it goes straight down, that of its source and its target included."""
        bottoms = [top - _LAYER_GAP for top in tops[1:]]
        lines = []
        for (source, *passed, target), entry in zip(self._routes, self._entries(x), strict=True):
            layers = [self._layer[source], *(self._layer[slot] for slot in passed), self._layer[target]]
            middles = [x[source], *(x[slot] for slot in passed), round(x[target] + entry, 1)]
            points = [p for m, n in zip(middles, layers, strict=True) for p in ((m, tops[n]), (m, bottoms[n]))]
            start, end = boxes[source].y + boxes[source].height, boxes[target].y
            lines.append(((middles[0], start), *points[1:-1], (middles[-1], end)))
        return tuple(lines)

    def _entries(self, x: list[float]) -> list[float]:
        """How far from the middle each line enters its box: side by side, as they come, so that none hides another."""
        entering: list[list[int]] = [[] for _ in self._sizes]
        for number, route in enumerate(self._routes):
            entering[route[-1]].append(number)
        offsets = [0.0] * len(self._routes)
        for box, numbers in enumerate(entering):
            numbers.sort(key=lambda number: x[self._routes[number][-2]])
            step = min(_ENTRY_GAP, self._sizes[box][0] / (len(numbers) + 1))
            for place, number in enumerate(numbers):
                offsets[number] = (place - (len(numbers) - 1) / 2) * step
        return offsets


def _isotonic(values: Sequence[float], weights: Sequence[float]) -> list[float]:
    """The ascending sequence nearest to the values, by weighted least squares: pool neighbours while they descend."""
    pools: list[tuple[float, float, int]] = []
    for value, weight in zip(values, weights, strict=True):
        pool = (value, weight, 1)
        while pools and pools[-1][0] > pool[0]:
            before = pools.pop()
            total = before[1] + pool[1]
            pool = ((before[0] * before[1] + pool[0] * pool[1]) / total, total, before[2] + pool[2])
        pools.append(pool)
    return [mean for mean, _, count in pools for _ in range(count)]


def _sort_some(row: Sequence[int], means: dict[int, float | None]) -> list[int]:
    """Sort the slots that have a mean; the others keep their places."""
    movable = iter(sorted((s for s in row if means[s] is not None), key=lambda s: means[s] or 0.0))
    return [slot if means[slot] is None else next(movable) for slot in row]


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _inversions(values: Sequence[int], size: int) -> int:
    """How many pairs stand in the wrong order, counted with a Fenwick tree over `size` values."""
    tree, total = [0] * (size + 1), 0
    for seen, value in enumerate(values):
        total += seen
        place = value + 1
        while place:
            total -= tree[place]
            place -= place & -place
        place = value + 1
        while place <= size:
            tree[place] += 1
            place += place & -place
    return total
