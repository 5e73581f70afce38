"""The pass that shortens axes: of the samples, and of all weights, shapes and attributes that go with them.

No symbolic solver says which axes belong together. A candidate maps lengths to shorter ones wherever they occur, and
whether it was right to do so the runtime says: a channel count that occurs in twenty weights shrinks in all of them,
and one that two unrelated axes share doesn't shrink, unless both can.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, numpy_helper

from onnxq.graph import constant_node_value
from onnxq.protos import walk_graphs
from onnxq.reduce.problem import Array, ReductionProblem
from onnxq.reduce.search import Edit
from onnxq.reduce.subgraph import declare
from onnxq.tensor_data import tensor_values

_SHAPE_INPUTS: Mapping[str, int] = MappingProxyType(
    {"Reshape": 1, "Expand": 1, "ConstantOfShape": 0, "Split": 1, "Resize": 3}
)
"""Op type -> position of the input that holds lengths."""

_KERNEL_OPS = ("Conv", "ConvTranspose")


@dataclass(frozen=True)
class Scope:
    """Which axes a change of lengths is about.

    Attributes:
        samples: Axes of the model's inputs: the first, and where the range ends.
        stored: The same for weights. Those of convolutions have no more than two.
    """

    samples: tuple[int, int]
    stored: tuple[int, int]


_EVERY = 32
BATCH = Scope((0, 1), (0, 0))
SPACE = Scope((2, _EVERY), (2, _EVERY))
CHANNELS = Scope((1, 2), (0, 2))
ALL = Scope((0, _EVERY), (0, _EVERY))


def coarse_edits(problem: ReductionProblem) -> list[Edit]:
    """Shorten batches and images as far as they go: all later candidates cost less then."""
    return [
        partial(shorten, problem, scope, lengths)
        for scope in (BATCH, SPACE)
        for lengths in _scalings(_lengths(problem, scope))
    ]


def length_edits(problem: ReductionProblem) -> list[Edit]:
    """Divide all lengths of a kind by a number, then shorten each length on its own."""
    edits: list[Edit] = []
    for scope in (BATCH, SPACE, CHANNELS, ALL):
        lengths = _lengths(problem, scope)
        singles = ({length: target} for length in lengths for target in _targets(length))
        edits += [partial(shorten, problem, scope, change) for change in (*_scalings(lengths), *singles)]
    return edits


def shorten(problem: ReductionProblem, scope: Scope, lengths: Mapping[int, int]) -> ReductionProblem:
    """Map lengths to shorter ones on all axes in scope: samples and weights are cropped.

    Args:
        problem: The original.
        scope: Which axes change.
        lengths: Old length -> new length.

    Returns:
        The problem, with the types of outputs as they are now, and none of inner tensors.

    Raises:
        InvalidModelError: The lengths don't fit together.
    """
    model = ModelProto()
    model.CopyFrom(problem.model)
    for graph in walk_graphs(model.graph):
        del graph.value_info[:]
    feeds = tuple(
        {name: _cropped(value, scope.samples, lengths) for name, value in feed.items()} for feed in problem.feeds
    )
    for value in model.graph.input:
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if value.name in feeds[0] and dim.HasField("dim_value"):
                dim.dim_value = feeds[0][value.name].shape[axis]
    _shorten_stored(model, scope, lengths)
    _shorten_nodes(model, lengths, is_grouped=scope in (CHANNELS, ALL))
    types = ReductionProblem(model, feeds).types
    for output in model.graph.output:
        if output.name in types:
            output.CopyFrom(declare(output.name, types[output.name]))
    return ReductionProblem(model, feeds)


def _shorten_stored(model: ModelProto, scope: Scope, lengths: Mapping[int, int]) -> None:
    kernels, shapes = set[str](), set[str]()
    for node in model.graph.node:
        kernels.update(node.input[1:2] if node.op_type in _KERNEL_OPS else ())
        shapes.update(name for name in _shape_input(node) if name)
    for tensor in model.graph.initializer:
        first, last = scope.stored
        values = tensor_values(tensor)
        if tensor.name in shapes:
            changed = _mapped(values, lengths)
        elif tensor.name in kernels:
            changed = _cropped(values, (first, min(last, 2)), lengths)
        else:
            changed = _cropped(values, (first, last), lengths)
        if changed is not values:
            _store(tensor, changed)


def _shorten_nodes(model: ModelProto, lengths: Mapping[int, int], *, is_grouped: bool) -> None:
    shapes = {name for node in model.graph.node for name in _shape_input(node)}
    for node in model.graph.node:
        for attribute in node.attribute:
            if is_grouped and attribute.name == "group" and node.op_type in _KERNEL_OPS:
                attribute.i = lengths.get(attribute.i, attribute.i)
            if node.op_type == "Constant" and attribute.name == "value" and node.output[0] in shapes:
                value = constant_node_value(node)
                if value is not None:
                    _store(attribute.t, _mapped(value, lengths))


def _shape_input(node: NodeProto) -> list[str]:
    slot = _SHAPE_INPUTS.get(node.op_type)
    return [] if slot is None else list(node.input[slot : slot + 1])


def _store(tensor: TensorProto, values: Array) -> None:
    tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(values), tensor.name))


def _mapped(values: Array, lengths: Mapping[int, int]) -> Array:
    if values.dtype != np.int64:
        return values
    flat = [lengths.get(int(value), int(value)) for value in values.reshape(-1)]
    return np.array(flat, np.int64).reshape(values.shape)


def _cropped(values: Array, axes: tuple[int, int], lengths: Mapping[int, int]) -> Array:
    first, last = axes
    kept = [
        slice(lengths.get(length, length) if first <= axis < last else length)
        for axis, length in enumerate(values.shape)
    ]
    cropped = values[tuple(kept)]
    return values if cropped.shape == values.shape else cropped


def _lengths(problem: ReductionProblem, scope: Scope) -> list[int]:
    """Lengths above 1 on the axes in scope, the greatest first."""
    shapes = [(value.shape, scope.samples) for value in problem.feeds[0].values()]
    kernels = {name for n in problem.model.graph.node if n.op_type in _KERNEL_OPS for name in n.input[1:2]}
    for tensor in problem.model.graph.initializer:
        first, last = scope.stored
        shapes.append((tuple(tensor.dims), (first, min(last, 2) if tensor.name in kernels else last)))
    found = {length for shape, (first, last) in shapes for length in shape[first:last] if length > 1}
    return sorted(found, reverse=True)


def _scalings(lengths: list[int]) -> Iterator[dict[int, int]]:
    """Divide by a power of two whatever it divides, the greatest first."""
    factor = 1 << (max(lengths, default=1).bit_length() - 1)
    while factor > 1:
        change = {length: length // factor for length in lengths if length % factor == 0}
        if change:
            yield change
        factor //= 2


def _targets(length: int) -> Iterator[int]:
    """Powers of two below a length, the least first."""
    target = 1
    while target < length:
        yield target
        target *= 2
