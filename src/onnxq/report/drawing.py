"""A graph as shapes to draw: boxes with lines of text, and curves, each with a class. Escaping is left to the page."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from unicodedata import east_asian_width

from onnxq.report.data import ConstantPicture, EdgePicture, GraphPicture, NodePicture
from onnxq.report.layout import Box, lay_out

_CHARACTER, _LINE_HEIGHT, _PADDING = 6.7, 15.0, 9.0
_BOLD = 1.2
_LEAST_WIDTH = 64.0
_MOST_CHARACTERS = 30
_MOST_CONSTANTS = 4
_MARGIN = 70.0
"""Around the graph: room for the words beside the outermost lines."""


@dataclass(frozen=True, slots=True)
class TextLine:
    """One line of text in a box: its class, content, and the position of its middle."""

    kind: str
    text: str
    x: float
    y: float


@dataclass(frozen=True, slots=True)
class DrawnBox:
    """A box: its classes, place, lines of text, and all that it stands for in one text."""

    kind: str
    box: Box
    lines: tuple[TextLine, ...]
    title: str


@dataclass(frozen=True, slots=True)
class DrawnLine:
    """A line: its classes, the path, all that it stands for in one text, and a word beside it.

    Attributes:
        kind: Classes of the style sheet.
        path: As SVG writes it.
        title: What it stands for.
        label: The word; "" for none.
        label_x: Where the word begins or ends.
        label_y: Its base line.
        label_anchor: Whether it begins there or ends: "start" or "end".
    """

    kind: str
    path: str
    title: str
    label: str
    label_x: float
    label_y: float
    label_anchor: str


@dataclass(frozen=True, slots=True)
class Drawing:
    """All shapes, and the size of the whole."""

    width: float
    height: float
    boxes: tuple[DrawnBox, ...]
    lines: tuple[DrawnLine, ...]
    title: str


def draw(picture: GraphPicture, policy: str) -> Drawing | None:
    """Draw a graph.

    Args:
        picture: The graph.
        policy: Whose fusion rules the quantizer follows: for "tensorrt" a quantized trunk is marked as wrong.

    Returns:
        The shapes; None if the graph is too tangled.
    """
    texts = [_texts(node) for node in picture.nodes]
    layout = lay_out([_size(lines) for lines in texts], [(edge.source, edge.target) for edge in picture.edges])
    if layout is None:
        return None
    boxes = tuple(
        DrawnBox(_box_kind(node), box, _place(lines, box), _describe(node))
        for node, lines, box in zip(picture.nodes, texts, layout.boxes, strict=True)
    )
    lines = tuple(_line(edge, points, policy) for edge, points in zip(picture.edges, layout.lines, strict=True))
    quantized = sum(edge.quantized for edge in picture.edges)
    title = f"Graph of {len(boxes)} boxes and {len(lines)} lines, {quantized} of them quantized"
    return Drawing(layout.width + 2 * _MARGIN, layout.height + 8, boxes, lines, title)


def _texts(node: NodePicture) -> list[tuple[str, str]]:
    """Class and content of each line of text in a box."""
    lines = [("op" if node.kind == "node" else "end", _short(node.label))]
    if node.name:
        lines.append(("name", _short(node.name)))
    quantized = [c for c in node.constants if _is_int8(c)]
    others = [c for c in node.constants if not _is_int8(c)]
    lines += [("constant int8", _constant_text(c)) for c in quantized[:_MOST_CONSTANTS]]
    rest = len(quantized[_MOST_CONSTANTS:]) + len(others)
    if rest == 1 and others:
        lines.append(("constant", _constant_text(others[0])))
    elif rest:
        lines.append(("constant", f"{rest} {'more ' if quantized else ''}constants"))
    if node.gone:
        lines.append(("gone", "gone in the result"))
    return lines


def _constant_text(constant: ConstantPicture) -> str:
    how = "int8" if _is_int8(constant) else ""
    return " ".join(part for part in (_short(constant.name, 14), _short(constant.shape, 18), how) if part)


def _is_int8(constant: ConstantPicture) -> bool:
    return constant.quantization.startswith("int8")


def _size(lines: list[tuple[str, str]]) -> tuple[float, float]:
    widest = max(_text_width(text) * (_BOLD if kind == "op" else 1) for kind, text in lines)
    return max(_LEAST_WIDTH, round(widest + 2 * _PADDING)), len(lines) * _LINE_HEIGHT + _PADDING


def _text_width(text: str) -> float:
    """A guess on the safe side: what font there is isn't known."""
    return _CHARACTER * sum(2 if east_asian_width(character) in "WF" else 1 for character in text)


def _place(lines: list[tuple[str, str]], box: Box) -> tuple[TextLine, ...]:
    middle, top = box.x + box.width / 2, box.y + _PADDING / 2 + 0.75 * _LINE_HEIGHT
    return tuple(TextLine(kind, text, middle, top + row * _LINE_HEIGHT) for row, (kind, text) in enumerate(lines))


def _box_kind(node: NodePicture) -> str:
    marks = [node.kind, "residual" if node.residual else "", "gone" if node.gone else ""]
    return " ".join(mark for mark in marks if mark)


def _describe(node: NodePicture) -> str:
    """Everything known of a box, one fact a line."""
    first = f'{node.label} "{node.name}"' if node.kind == "node" else f"{node.kind} {node.label}"
    facts = [
        "residual Add" if node.residual else "",
        "the quantized model has no counterpart of it" if node.gone else "",
        *(" ".join(part for part in (c.name, c.shape, c.quantization) if part) for c in node.constants),
    ]
    return "\n".join([first, *(fact for fact in facts if fact)])


def _line(edge: EdgePicture, points: tuple[tuple[float, float], ...], policy: str) -> DrawnLine:
    wrong = edge.role == "trunk" and edge.quantized and policy == "tensorrt"
    how = "int8" if edge.quantized else "float" if edge.is_float else "no float"
    axis = "" if edge.axis is None else f" per axis {edge.axis}"
    label = f"{edge.role} {how}" if edge.role else ""
    (x0, _), (x1, y1) = points[-3:-1]  # the last bend
    side = -1 if x0 < x1 else 1
    middle = (x0 + x1) / 2 + side * 7
    return DrawnLine(
        " ".join(mark for mark in (how.replace(" ", "-"), edge.role, "wrong" if wrong else "") if mark),
        _path(points),
        f"{edge.tensor}: {how}{axis}{f', {edge.role} of a residual Add' if edge.role else ''}",
        label,
        round(middle, 1),
        round(y1 - 6, 1),  # below the curve, which comes from this side above it
        "end" if side < 0 else "start",
    )


def _path(points: tuple[tuple[float, float], ...]) -> str:
    """Straight past the layers, and between them a curve that leaves and arrives vertically."""
    parts = [f"M{points[0][0]:g} {points[0][1]:g}"]
    for (x0, y0), (x1, y1) in pairwise(points):
        middle = (y0 + y1) / 2
        if (x0, y0) != (x1, y1):
            parts.append(f"V{y1:g}" if x0 == x1 else f"C{x0:g} {middle:g} {x1:g} {middle:g} {x1:g} {y1:g}")
    return "".join(parts)


def _short(text: str, limit: int = _MOST_CHARACTERS) -> str:
    """The beginning and the end of a long text: names of nodes often differ in their last characters."""
    if len(text) <= limit:
        return text
    tail = limit // 2
    return f"{text[: limit - tail - 1]}\N{HORIZONTAL ELLIPSIS}{text[-tail:]}"
