"""Which tensors must not become zero because something is divided by them (rule F3).

    v -> Add(eps) -> Sqrt -> Div        eps and both results are denominators; v isn't, eps stands in for it

In these not even one element may vanish, while a weight loses nothing by a tiny element that becomes zero.
"""

from __future__ import annotations

from onnxq.graph import ABSENT, GraphIndex, Kind
from onnxq.protos import is_default_domain

_DIVISORS = {"Div": 1, "Log": 0, "Mod": 1, "Pow": 0, "Reciprocal": 0}
"""Operators that have no finite result where this input is zero. Of Pow it depends on the exponent."""

_KEEPS_ZERO = frozenset(
    {"Abs", "Cast", "Expand", "Flatten", "Gather", "Identity", "Mul", "Neg", "Pow", "Reshape", "Slice", "Split", "Sqrt"}
    | {"Squeeze", "Tile", "Transpose", "Unsqueeze"}
)
"""Operators that make zero of zero."""

_REPLACES_ZERO = frozenset({"Add", "Clip", "Concat", "Max", "Min", "Sub", "Sum", "Where"})
"""Operators by which a constant keeps a result from being zero."""


def denominators(index: GraphIndex) -> frozenset[int]:
    """Tensors that a division depends on, back to the constants that protect it. One pass, last node first."""
    found: set[int] = set()
    for number in reversed(range(len(index.nodes))):
        node, inputs = index.nodes[number], [t for t in index.inputs[number] if t != ABSENT]
        if not is_default_domain(node):
            continue
        if node.op_type in _DIVISORS:
            found.add(index.inputs[number][_DIVISORS[node.op_type]])
        if found.isdisjoint(index.outputs[number]):
            continue
        if node.op_type in _KEEPS_ZERO:
            found.update(inputs)
        elif node.op_type in _REPLACES_ZERO:
            found.update(t for t in inputs if index.tensor_kinds[t] != Kind.DATA)
    return frozenset(found)
