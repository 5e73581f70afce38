"""How far apart two outputs are in steps of an integer type, and for which outputs that means something."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import numpy as np

from onnxq.graph import ABSENT, MAIN_GRAPH, GraphIndex, Kind

LEAST_MAGNITUDE = 1e-3
"""Outputs that are smaller throughout are measured by this."""

_JUMPS = frozenset({"Ceil", "Floor", "Hardmax", "Mod", "Round", "Sign", "Unique"})
"""Operators on floats whose result jumps."""

_DIVISORS = MappingProxyType({"Div": 1, "Reciprocal": 0})
"""Operators that divide, and which input it is that they divide by."""


def float_outputs(index: GraphIndex) -> dict[str, bool]:
    """Float outputs of the main graph, and whether they follow the data without jumps.

    Where an index, a comparison, a rounding or a division by something computed lies on the way, the smallest error may
    make a great difference: x / (|x| + 1e-12) is the sign of x.
    """
    starts = [_makes_jump(index, node) for node in range(len(index.nodes))]
    for node in reversed(range(len(index.nodes))):  # what is in a body has a greater number than its owner
        owner = index.scopes[index.node_scope[node]].owner
        if owner != ABSENT and starts[node]:
            starts[owner] = True
    jumps = [False] * len(index.tensor_names)
    for node, is_start in enumerate(starts):
        after_jump = is_start or any(jumps[t] for t in (*index.inputs[node], *index.captures[node]) if t != ABSENT)
        for tensor in index.outputs[node]:
            if tensor != ABSENT:
                jumps[tensor] = after_jump
    return {
        name: not jumps[tensor]
        for tensor, name in enumerate(index.tensor_names)
        if index.is_output[tensor] and index.tensor_scope[tensor] == MAIN_GRAPH
        if index.tensor_types[tensor].is_float
    }


def _makes_jump(index: GraphIndex, node: int) -> bool:
    """Whether a node makes integers, bools or rounded numbers of float data, or divides by some."""
    op_type, inputs = index.nodes[node].op_type, index.inputs[node]
    if op_type in _JUMPS or (op_type in _DIVISORS and not index.is_constant(inputs[_DIVISORS[op_type]])):
        return True
    made = [index.tensor_types[t] for t in index.outputs[node] if t != ABSENT and index.tensor_kinds[t] == Kind.DATA]
    read = [index.tensor_types[t] for t in index.inputs[node] if t != ABSENT and index.tensor_kinds[t] == Kind.DATA]
    return any(t.kind == "tensor" and t.elem_type and not t.is_float for t in made) and any(t.is_float for t in read)


def steps_apart(reference: Any, value: Any) -> float:
    """The greatest difference, in steps of 1/127 of the greatest magnitude of the reference.

    Returns:
        inf for what isn't there, has another shape, or isn't finite where the reference is.
    """
    if not isinstance(value, np.ndarray) or value.shape != reference.shape:
        return np.inf
    exact, got = reference.astype(np.float64), value.astype(np.float64)
    finite = np.isfinite(exact)
    if not np.isfinite(got[finite]).all():
        return np.inf
    step = max(float(np.abs(exact[finite]).max(initial=0)), LEAST_MAGNITUDE) / 127
    return float(np.abs(exact[finite] - got[finite]).max(initial=0)) / step
