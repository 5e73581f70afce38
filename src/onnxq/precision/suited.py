"""Which nodes' values suit half precision, as a reference run of the float model shows."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Protocol

import numpy as np

from onnxq.graph import ABSENT, MAIN_GRAPH, GraphIndex, stored_value
from onnxq.precision.operators import FLOAT
from onnxq.protos import attribute


class ValueRange(Protocol):
    """Least and greatest value of a tensor."""

    @property
    def low(self) -> float:
        """The least value."""

    @property
    def high(self) -> float:
        """The greatest value."""


def float_activations(index: GraphIndex) -> list[int]:
    """Float32 tensors of the main graph that the reference run has to look at."""
    return [
        tensor
        for tensor, found in enumerate(index.tensor_types)
        if found.kind == "tensor"
        and found.elem_type == FLOAT
        and index.tensor_scope[tensor] == MAIN_GRAPH
        and index.is_variable(tensor)
        and not (found.shape is not None and 0 in found.shape)
    ]


def unsuited_nodes(
    index: GraphIndex,
    ranges: Mapping[str, ValueRange],
    *,
    data_max: float,
    init_max: float,
    max_depth_of_reduction: int | None,
) -> set[int]:
    """Numbers of the nodes of the main graph that should stay float32.

    Args:
        index: The model.
        ranges: Tensor name -> range that the reference run saw.
        data_max: Greatest magnitude of an activation.
        init_max: Greatest magnitude of a constant.
        max_depth_of_reduction: Most products that a linear node may sum up; None for no limit.
    """
    wide = {
        tensor
        for tensor in float_activations(index)
        if (name := index.tensor_names[tensor]) in ranges and _magnitude(ranges[name]) > data_max
    }
    for tensor, found in enumerate(index.tensor_types):
        value = stored_value(index, tensor) if found.elem_type == FLOAT and index.is_constant(tensor) else None
        if value is not None and value.size and np.abs(value[np.isfinite(value)]).max(initial=0) > init_max:
            wide.add(tensor)
    return {
        node
        for node, scope in enumerate(index.node_scope)
        if scope == MAIN_GRAPH
        and (
            any(t in wide for t in (*index.inputs[node], *index.outputs[node]) if t != ABSENT)
            or (max_depth_of_reduction is not None and _reduction_depth(index, node) > max_depth_of_reduction)
        )
    }


def _magnitude(found: ValueRange) -> float:
    return max(abs(found.low), abs(found.high))


def _reduction_depth(index: GraphIndex, node: int) -> int:
    """How many products a linear node sums up for one element; 0 for what isn't linear or isn't known."""
    proto = index.nodes[node]
    if proto.op_type not in ("Conv", "ConvTranspose", "Gemm", "MatMul"):
        return 0
    shape = index.tensor_types[index.inputs[node][1]].shape or ()
    dims = [d for d in shape if isinstance(d, int)]
    if not shape or len(dims) != len(shape):
        return 0
    if proto.op_type == "Conv":
        return prod(dims[1:])
    if proto.op_type == "ConvTranspose":
        return dims[0] // attribute(proto, "group", 1) * prod(dims[2:])
    if proto.op_type == "Gemm":
        return dims[-1] if attribute(proto, "transB", 0) else dims[0]
    return dims[-2] if len(dims) > 1 else dims[0]
