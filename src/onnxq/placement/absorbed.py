"""Activations that an integer kernel applies for nothing, by the range of its result: Relu, and Clip from 0 on.

    Conv -> Relu -> Q(zero point at the least integer) -> DQ       one kernel: no integer means a negative number
    Conv -> Clip(0, 6) -> Q(likewise, 255 steps reach to 6) -> DQ  likewise
    Conv -> Relu -> Q(zero point elsewhere) -> DQ                  a float Conv, and that must not be
    Conv -> Q -> DQ -> Relu -> Q(zero point elsewhere) -> DQ       so then the kernel's own result gets a pair

The zero point is elsewhere if the tensor shares its scale with one that can be negative, such as the other part of a
Concat. That must be known before anything is calibrated, so it is read off the ops: each tensor has bounds that it
can't leave, whatever the data.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from onnxq.graph import ABSENT, GraphIndex, stored_value
from onnxq.placement.ops import copy_sources, is_copy
from onnxq.protos import is_default_domain

_POOLS = frozenset({"AveragePool", "GlobalAveragePool", "GlobalMaxPool", "MaxPool"})
_UNBOUNDED = (-math.inf, math.inf)
_OF_UNIT = frozenset({"HardSigmoid", "Sigmoid", "Softmax"})


@dataclass(frozen=True, slots=True)
class Bounds:
    """Least and greatest value that a tensor can have."""

    low: float
    high: float


def known_bounds(index: GraphIndex) -> list[Bounds]:
    """Bounds of every tensor, in one pass over the nodes: those of activations, handed on by copies and pools."""
    found = [Bounds(*_UNBOUNDED)] * len(index.tensor_names)
    for node, proto in enumerate(index.nodes):
        if not is_default_domain(proto) or index.outputs[node][0] == ABSENT:
            continue
        if proto.op_type in _OF_UNIT:
            found[index.outputs[node][0]] = Bounds(0, 1)
        elif proto.op_type in ("Relu", "Clip"):
            before, own = found[index.inputs[node][0]], clipped_to(index, node)
            found[index.outputs[node][0]] = Bounds(
                min(max(before.low, own.low), own.high), max(min(before.high, own.high), own.low)
            )
        elif is_copy(index, node) or proto.op_type in _POOLS:
            parts = [found[t] for t in copy_sources(index, node) if t != ABSENT]
            union = Bounds(min(0, *(p.low for p in parts), 0), max(0, *(p.high for p in parts), 0))
            for tensor in index.outputs[node]:
                if tensor != ABSENT:
                    found[tensor] = union
    return found


def clipped_to(index: GraphIndex, node: int) -> Bounds:
    """What a Relu or Clip lets pass; a bound that isn't stored, or can be replaced from outside, isn't known."""
    if index.nodes[node].op_type == "Relu":
        return Bounds(0, math.inf)
    low, high = (_stored_bound(index, node, slot, unknown) for slot, unknown in ((1, -math.inf), (2, math.inf)))
    return Bounds(low, max(low, high))


def absorbable(index: GraphIndex, result: int, exclude: frozenset[int]) -> int:
    """The activation that can go without a kernel of its own behind a kernel; `ABSENT` if there is none.

    Args:
        index: The model.
        result: The tensor that the kernel yields.
        exclude: Nodes that the user wants untouched.

    Returns:
        Number of the only reader of the result, if it is a Relu, or a Clip whose lower bound is 0.
    """
    reader = only_reader(index, result)
    if reader == ABSENT or reader in exclude or index.nodes[reader].op_type not in ("Relu", "Clip"):
        return ABSENT
    return reader if clipped_to(index, reader).low == 0 else ABSENT


def stored_by(index: GraphIndex, result: int, exclude: frozenset[int]) -> tuple[int, ...]:
    """Tensors behind one of which a kernel's pair stands: its result, and that of the activation behind it."""
    activation = absorbable(index, result, exclude)
    return (result,) if activation == ABSENT else (result, index.outputs[activation][0])


def only_reader(index: GraphIndex, tensor: int) -> int:
    """The node of the standard, in the same graph, that alone reads the tensor, once; `ABSENT` if that isn't so."""
    readers = index.consumers[tensor]
    if len(readers) != 1 or index.is_output[tensor]:
        return ABSENT
    node = readers[0].node
    is_local = index.node_scope[node] == index.tensor_scope[tensor]
    return node if is_local and is_default_domain(index.nodes[node]) else ABSENT


def all_within(bounds: Iterable[Bounds], limit: Bounds) -> bool:
    """Whether the tensors with these bounds all stay within the limit."""
    return all(limit.low <= b.low and b.high <= limit.high for b in bounds)


def _stored_bound(index: GraphIndex, node: int, slot: int, unknown: float) -> float:
    inputs = index.inputs[node]
    if slot >= len(inputs) or inputs[slot] == ABSENT:
        return unknown
    tensor = index.origins[inputs[slot]]
    value = stored_value(index, tensor) if tensor not in index.overridable else None
    return float(value) if value is not None and value.size == 1 and value.ndim == 0 else unknown
