"""Placements that are stored as text: a golden placement.txt, or what `onnxq explain --json` printed."""

from __future__ import annotations

import json
import re

import msgspec

from onnxq.corpus.golden_text import SCHEMA as GOLDEN_SCHEMA
from onnxq.diff.view import OUTPUT, EdgeKey, EdgeView, PlacementView, Scaling
from onnxq.errors import UsageError
from onnxq.placement.placement import SCHEMA as EXPLANATION_SCHEMA
from onnxq.scopes import tensor_key

GOLDEN_TITLE = f"# onnxq placement, schema {GOLDEN_SCHEMA}"

_NAME = r'("(?:[^"\\]|\\.)*"|[^\s"\\]+)'
_LINE = re.compile(rf"{_NAME} = {_NAME} input (\d{{1,9}}) {_NAME}: (\S.*?)(?: per axis (-?\d{{1,9}}))?")
_OUTPUT = re.compile(rf"-> output {_NAME}: (\S.*)")


class _Edge(msgspec.Struct):
    graph: str
    node: str
    op_type: str
    output: str
    input: int
    tensor: str
    quantize: bool
    axis: int | None


class _Output(msgspec.Struct):
    tensor: str
    quantize: bool


class _Explanation(msgspec.Struct):
    schema: int
    edges: list[_Edge]
    outputs: list[_Output] = []


def parse_golden(text: str, source: str) -> PlacementView:
    """Read a golden placement.

    Args:
        text: The content of a placement.txt.
        source: Where it is from.

    Raises:
        UsageError: It is none; the message names the line.
    """
    title, *lines = text.splitlines()
    if title != GOLDEN_TITLE:
        raise UsageError(f"{source}: the first line is {title!r}, this onnxq reads {GOLDEN_TITLE!r}")
    edges = {}
    for number, line in enumerate(lines, 2):
        output_line = _OUTPUT.fullmatch(line)
        if output_line is not None:
            name = _unquoted(output_line[1])
            edges[EdgeKey(name, OUTPUT)] = EdgeView("", name, "", "", Scaling(output_line[2]))
            continue
        found = _LINE.fullmatch(line)
        if found is None:
            raise UsageError(f"{source}, line {number}: is no edge of a placement: {line!r}")
        output, op_type, slot, tensor, element_type, axis = found.groups()
        scaling = Scaling(element_type, None if axis is None else int(axis))
        edges[EdgeKey(_unquoted(output), int(slot))] = EdgeView("", _unquoted(tensor), _unquoted(op_type), "", scaling)
    return PlacementView(source, "placement", edges, is_complete=False)


def parse_explanation(text: str, source: str) -> PlacementView:
    """Read what `onnxq explain --json` printed.

    Args:
        text: All of it.
        source: Where it is from.

    Raises:
        UsageError: It is something else; the message names the key.
    """
    try:
        found = msgspec.json.decode(text, type=_Explanation)
    except msgspec.DecodeError as error:
        raise UsageError(f"{source}: is JSON, but not what `onnxq explain --json` prints: {error}") from None
    if found.schema != EXPLANATION_SCHEMA:
        raise UsageError(f"{source}: has schema {found.schema}, this onnxq reads {EXPLANATION_SCHEMA}")
    edges = {}
    for edge in found.edges:
        scaling = Scaling("int8", edge.axis) if edge.quantize else None
        key = EdgeKey(tensor_key(edge.graph, edge.output), edge.input)
        edges[key] = EdgeView(edge.graph, edge.tensor, edge.op_type, edge.node, scaling)
    for name in (output.tensor for output in found.outputs if output.quantize):
        edges[EdgeKey(name, OUTPUT)] = EdgeView("", name, "", "", Scaling("int8"))
    return PlacementView(source, "placement", edges)


def _unquoted(name: str) -> str:
    """The name that `display_name` of the goldens wrote."""
    if not name.startswith('"'):
        return name
    try:
        return str(json.loads(name))
    except json.JSONDecodeError:
        return name
