"""Attention cores over long sequences (rule P2): both products stay float, so that a fused float kernel can run them.

    q, k -> MatMul -> Div(scale) -> Add(mask) -> Softmax -> Dropout -> MatMul(v)
            float                                                     float

TensorRT runs such a core in one kernel. Its int8 kernels serve sequences of up to 512; pairs around the products of a
longer one only break the fusion, and the scores are written to memory after all. The length is the size of the axis
that the Softmax sums over: the positions that are attended to.

A length that isn't known counts as long. Nothing promises that it will stay below 512, and the mistakes aren't equal:
float products cost some of the time of a short core, a broken fusion all the memory of a long one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from onnxq.graph import ABSENT, GraphIndex
from onnxq.protos import attribute, is_default_domain

_LONGEST = 512
"""Length of the longest sequence that fused int8 kernels serve."""

_JOINING = frozenset({"Add", "Mul"})
"""Operators between the products that go on with either operand: masks and scales."""

_MOVING = frozenset({"Cast", "Div", "Dropout", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})
"""Operators between the products that go on with their first operand."""


def long_attention(index: GraphIndex) -> dict[int, str]:
    """Find both products of each attention core whose sequence is, or may be, longer than fused int8 kernels serve.

    Three passes over the nodes, however many cores there are: forward what comes from a first product, forward what
    comes from a Softmax of such, backward what goes into such a Softmax that a second product reads.

    Args:
        index: The model.

    Returns:
        Number of a MatMul -> the length: "attention over 600 positions, fused int8 kernels serve up to 512".
    """
    scores = _scores(index)
    weights = _weights(index, scores)
    lengths = _into_products(index, scores, weights)
    found: dict[int, float] = {}
    for node in range(len(index.nodes)):
        if not _is_product(index, node):
            continue
        read = (weights[t] for t in index.inputs[node] if index.local_producer(t, node) != ABSENT)
        length = max(*read, lengths[index.outputs[node][0]], 0)
        if length > 0:
            found[node] = length
    return {node: _detail(length) for node, length in found.items()}


def _detail(length: float) -> str:
    over = "an unknown number of" if length == math.inf else str(int(length))
    return f"attention over {over} positions, fused int8 kernels serve up to {_LONGEST}"


def _scores(index: GraphIndex) -> list[bool]:
    """By tensor: whether it comes from a product of two variables, by masks, scales and moves only."""
    scores = [False] * len(index.tensor_names)
    for node in range(len(index.nodes)):
        if _is_product(index, node) or any(scores[t] for t in _passed_on(index, node)):
            for tensor in index.outputs[node]:
                if tensor != ABSENT:
                    scores[tensor] = True
    return scores


def _weights(index: GraphIndex, scores: Sequence[bool]) -> list[float]:
    """By tensor: the length of the longest core whose Softmax it comes from; 0 for none, or none that is too long."""
    weights = [0.0] * len(index.tensor_names)
    for node in range(len(index.nodes)):
        if _is_softmax(index, node):
            length = _too_long(index, node) if _reads(index, node, scores) else 0
        else:
            length = max((weights[t] for t in _passed_on(index, node)), default=0)
        for tensor in index.outputs[node]:
            if tensor != ABSENT:
                weights[tensor] = length
    return weights


def _into_products(index: GraphIndex, scores: Sequence[bool], weights: Sequence[float]) -> list[float]:
    """By tensor, in one pass backward: the longest core whose scores it goes into.

    Between the Softmax and the second product the tensors carry the same mark, so that a Softmax without a second
    product hands nothing on.
    """
    lengths = [0.0] * len(index.tensor_names)
    for node in reversed(range(len(index.nodes))):
        own = index.outputs[node][0] if index.outputs[node] else ABSENT
        length = lengths[own] if own != ABSENT else 0
        if _is_product(index, node):
            sources = [t for t in index.inputs[node] if weights[t]]
            marks = [weights[t] for t in sources]
        elif _is_softmax(index, node):
            sources, marks = list(index.inputs[node]), [weights[own] if length else 0]
        else:
            sources = [t for t in _passed_on(index, node) if scores[t] or weights[t]]
            marks = [length] * len(sources)
        for tensor, mark in zip(sources, marks, strict=True):
            if index.local_producer(tensor, node) != ABSENT:
                lengths[tensor] = max(lengths[tensor], mark)
    return lengths


def _passed_on(index: GraphIndex, node: int) -> list[int]:
    """The tensors that a node between the products goes on with, those of its own graph only."""
    proto, inputs = index.nodes[node], index.inputs[node]
    if not is_default_domain(proto):
        return []
    if proto.op_type in _JOINING:
        sources = inputs
    elif proto.op_type == "Where":
        sources = inputs[1:]
    else:
        sources = inputs[:1] if proto.op_type in _MOVING else ()
    return [t for t in sources if t != ABSENT and index.local_producer(t, node) != ABSENT]


def _is_product(index: GraphIndex, node: int) -> bool:
    """Whether it is a MatMul of two variables."""
    proto = index.nodes[node]
    return (
        proto.op_type == "MatMul"
        and is_default_domain(proto)
        and all(map(index.is_variable, index.inputs[node]))
        and index.outputs[node][0] != ABSENT
    )


def _is_softmax(index: GraphIndex, node: int) -> bool:
    proto = index.nodes[node]
    return proto.op_type == "Softmax" and is_default_domain(proto) and index.outputs[node][0] != ABSENT


def _reads(index: GraphIndex, node: int, marked: Sequence[bool]) -> bool:
    tensor = index.inputs[node][0]
    return marked[tensor] and index.local_producer(tensor, node) != ABSENT


def _too_long(index: GraphIndex, softmax: int) -> float:
    """The length that a Softmax sums over; infinite if unknown, 0 if fused int8 kernels serve it.

    A prepared model has opset 13 or later, where the axis is a single one, and the last one if none is given.
    """
    shape = index.tensor_types[index.inputs[softmax][0]].shape
    axis = attribute(index.nodes[softmax], "axis", -1)
    if shape is None or not -len(shape) <= axis < len(shape):
        return math.inf
    length = shape[axis]
    if not isinstance(length, int):
        return math.inf
    return length if length > _LONGEST else 0
