"""The texts of golden files: a quantized model, described by the tensors of its float model.

Columns aren't aligned, so that one changed edge is one changed line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

import numpy as np
import onnx
from onnx import ModelProto, ValueInfoProto

from onnxq.corpus.format import GoldenKind
from onnxq.graph import MAIN_GRAPH, Edge
from onnxq.invariants.integers import element_type, scale_axis
from onnxq.invariants.pair import ModelPair
from onnxq.invariants.quantized_graph import Quantization
from onnxq.tensor_types import ValueType, value_type

SCHEMA = 1
"""Version of the golden files that this onnxq writes."""

TOLERANCE = 0.05
"""Relative tolerance of a new ranges.txt; a person may change it in the file."""


def golden_text(pair: ModelPair, kind: GoldenKind) -> str:
    """The text of a golden, made of the two models.

    Raises:
        InvalidModelError: The float model is no usable model.
    """
    title = f"# onnxq {kind}, schema {SCHEMA}"
    if kind == "ranges":
        title += f", relative tolerance {TOLERANCE:g}"
    return "".join(f"{line}\n" for line in (title, *_WRITERS[kind](pair)))


def within_tolerance(expected: str, actual: str) -> str:
    """What is left to compare of two texts of ranges.

    Args:
        expected: The content of a ranges.txt, whose first line states the relative tolerance.
        actual: What it should be now.

    Returns:
        The actual text, but with the expected lines where all numbers of a line are near enough, and the expected first
        line. As it is, if the first line of `expected` isn't one that this onnxq reads.
    """
    title, *lines = expected.splitlines() or [""]
    stated = re.fullmatch(rf"# onnxq ranges, schema {SCHEMA}, relative tolerance (\d+(?:\.\d+)?(?:e-?\d+)?)", title)
    if stated is None:
        return actual
    known = {line.rpartition(": ")[0]: line for line in lines}
    kept = [title]
    for line in actual.splitlines()[1:]:
        before = known.get(line.rpartition(": ")[0], "")
        kept.append(before if _is_near(before, line, float(stated[1])) else line)
    return "".join(f"{line}\n" for line in kept)


def _is_near(before: str, now: str, tolerance: float) -> bool:
    """Whether two lines about one tensor differ in nothing but numbers, and in those within the tolerance."""
    words, others = (line.rpartition(": ")[2].split() for line in (before, now))
    if len(words) != len(others):
        return False
    for word, other in zip(words, others, strict=True):
        try:
            if not np.isclose(float(other), float(word), rtol=tolerance, atol=0):
                return False
        except ValueError:
            if word != other:
                return False
    return True


def display_name(name: str) -> str:
    """A name as it stands in a golden: in quotes, with escapes, if it has spaces, quotes or invisible characters."""
    return name if re.fullmatch(r'[^\s"\\]+', name) and name.isprintable() else json.dumps(name)


def _placement(pair: ModelPair) -> Iterator[str]:
    index = pair.plan.index
    for node, slot, tensor, found in pair.edges():
        if found is not None:
            edge = f"{display_name(pair.key(node))} = {display_name(index.nodes[node].op_type)} input {slot}"
            rank = index.tensor_types[index.inputs[node][slot]].rank
            yield f"{edge} {display_name(tensor)}: {element_type(pair, found)}{_axis(found, rank)}"
    for tensor, found in pair.outputs():
        if found is not None:
            yield f"-> output {display_name(tensor)}: {element_type(pair, found)}"


def _shapes(pair: ModelPair) -> Iterator[str]:
    graph, index = pair.quantized.graph, pair.plan.index
    initialized = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in initialized]
    yield from (_shape_line("input", value.name, value_type(value.type)) for value in inputs)
    yield from (_shape_line("output", value.name, value_type(value.type)) for value in graph.output)
    shown = {value.name for value in (*inputs, *graph.output)}
    inferred = {value.name: value for value in _inferred(pair.quantized)}
    for tensor, name in enumerate(index.tensor_names):
        if index.tensor_scope[tensor] == MAIN_GRAPH and index.is_variable(tensor) and name not in shown:
            if name in inferred:
                yield _shape_line("value", name, _without_made_up_symbols(inferred[name]))
            shown.add(name)


def _inferred(model: ModelProto) -> list[ValueInfoProto]:
    try:
        return list(onnx.shape_inference.infer_shapes(model).graph.value_info)
    except (onnx.shape_inference.InferenceError, ValueError):
        return []  # the check "valid" says what is wrong with it


def _shape_line(kind: str, name: str, type_: ValueType) -> str:
    text = str(type_)
    return f"{kind} {display_name(name)}: {text if text.isprintable() else json.dumps(text)}"


def _without_made_up_symbols(value: ValueInfoProto) -> ValueType:
    """Inference numbers the dims that it doesn't know, over the whole model: another op renumbers them all."""
    found = value_type(value.type)
    if found.shape is None:
        return found
    dims = tuple(None if isinstance(d, str) and re.fullmatch(r"unk__\d+", d) else d for d in found.shape)
    return ValueType(found.elem_type, dims, found.kind)


def _ranges(pair: ModelPair) -> Iterator[str]:
    """A line for each way in which a tensor is quantized: its scale, or the least and the greatest along the axis."""
    lines: dict[str, None] = {}
    index = pair.plan.index
    for node, slot, _, found in pair.edges():
        if found is not None:
            rank = index.tensor_types[index.inputs[node][slot]].rank
            key = index.key(index.use(Edge(node, slot)))
            lines[f"{display_name(key)}{_axis(found, rank)}: {_scales(found)}"] = None
    for tensor, found in pair.outputs():
        if found is not None:
            lines[f"{display_name(tensor)}: {_scales(found)}"] = None
    yield from lines


def _scales(found: Quantization) -> str:
    if found.scale is None or not found.scale.size:
        return "computed"
    scale = found.scale.astype(np.float64)
    numbers = [f"{scale.min():.6g}", f"{scale.max():.6g}"] if scale.size > 1 else [f"{scale.reshape(-1)[0]:.6g}"]
    zero_point = found.zero_point
    zero = "" if zero_point is None or not np.any(zero_point.astype(np.int64)) else ", zero point not 0"
    return " to ".join(numbers) + zero


def _axis(found: Quantization, rank: int | None) -> str:
    axis = scale_axis(found, rank)
    return "" if axis is None else f" per axis {axis}"


_WRITERS: Mapping[GoldenKind, Callable[[ModelPair], Iterator[str]]] = MappingProxyType(
    {"placement": _placement, "shapes": _shapes, "ranges": _ranges}
)
