"""Which nodes run in half precision, and why the others don't (rules F2 to F4).

A constant beyond the range keeps its reader in float32, and so do the ops that hand such a value on, up to one that
bounds it again; else an attention mask of -3.4e38 would become -inf on its way to the Softmax, and a fully masked row
NaN:

    mask -> Where(-3.4e38) -> Add -> Softmax -> MatMul          float32 up to and with the Softmax, then half

A constant that would vanish, as a denominator's epsilon does, keeps what is made of it in float32 up to the division:

    v -> Add(1e-12) -> Sqrt -> Div -> Conv                      float32 up to and with the Div, then half
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from enum import Enum

from onnxq.graph import ABSENT, GraphIndex, Kind, stored_value
from onnxq.precision.operators import FLOAT, NONE, SOURCES, Operators, Slots
from onnxq.precision.values import Array, constant_value, overflows, spoils_scale, vanishes


class Kept(Enum):
    """Why a node stays float32."""

    OPERATOR = "its operator has no half-precision form at this opset, or must not be rounded"
    EXCLUDED = "it was excluded"
    CONSTANT = "it is computed from constants only, and rounded where it is used"
    RANGE = "a constant that reaches it is beyond the range of half precision"
    EPSILON = "a constant that reaches it would become zero in half precision"
    SCALE = "its scale would lose more than 1 % in half precision"


@dataclass(frozen=True)
class Assignment:
    """The precision of each node.

    Attributes:
        slots: Node number -> its inputs and outputs that become half precision; a node that isn't here stays float32.
        kept: Node number -> why it stays float32, for nodes with a float32 tensor.
    """

    slots: Mapping[int, Slots]
    kept: Mapping[int, Kept]


_QDQ = frozenset({"QuantizeLinear", "DequantizeLinear"})

_CARRIES_WIDE = frozenset(
    {"Add", "Cast", "Concat", "Expand", "Flatten", "Gather", "GatherND", "Identity", "Max", "Min", "Pad", "Reshape"}
    | {"ScatterND", "Slice", "Split", "Squeeze", "Sub", "Sum", "Tile", "Transpose", "Unsqueeze", "Where", "Neg", "Abs"}
)
"""Ops in whose result a value of an operand can appear as it is."""

_CARRIES_TINY = frozenset(
    {"Abs", "Add", "Cast", "Expand", "Identity", "Max", "Neg", "Pow", "Reciprocal", "Reshape", "Sqrt", "Squeeze"}
    | {"Transpose", "Unsqueeze", "Clip"}
)
"""Ops between an epsilon and the division that it protects."""


def assign(
    model_operators: Operators,
    index: GraphIndex,
    low: int,
    *,
    excluded: Set[int] = frozenset(),
    computed: Mapping[int, Array],
) -> Assignment:
    """Decide for each node, in one pass.

    Args:
        model_operators: What the operators of the model allow.
        index: The model.
        low: The half-precision type.
        excluded: Nodes that must stay float32.
        computed: Tensor number -> value, for constants that aren't stored but computed.

    Returns:
        The assignment.
    """
    slots: dict[int, Slots] = {}
    kept: dict[int, Kept] = {}
    taint: dict[int, Kept] = {}
    values = _Values(index, computed)
    for node in range(len(index.nodes)):
        if not _touches_float(index, node) or index.nodes[node].op_type in SOURCES:
            continue  # it takes the precision of its readers
        allowed = model_operators.slots(index, node)
        why = _why_kept(index, node, allowed, low, excluded, values, taint)
        if why is None:
            slots[node] = allowed
        else:
            kept[node] = why
        _spread(index, node, why, taint)
    return Assignment(slots, kept)


def _why_kept(
    index: GraphIndex,
    node: int,
    allowed: Slots,
    low: int,
    excluded: Set[int],
    values: _Values,
    taint: Mapping[int, Kept],
) -> Kept | None:
    if node in excluded:
        return Kept.EXCLUDED
    if _is_folded(index, node):
        return Kept.CONSTANT
    if allowed == NONE:
        return Kept.OPERATOR
    read = [index.inputs[node][slot] for slot in sorted(allowed.inputs)]
    if index.nodes[node].op_type in _QDQ:
        scale = values.of(index.inputs[node][1])
        if scale is None or spoils_scale(scale, low):
            return Kept.SCALE
    for reason, spoils in _SPOILS.items():
        if any(taint.get(t) == reason or _is_spoiled(values.of(t), spoils, low) for t in read):
            return reason
    return None


def _is_spoiled(value: Array | None, spoils: Callable[[Array, int], bool], low: int) -> bool:
    return value is not None and spoils(value, low)


def _spread(index: GraphIndex, node: int, why: Kept | None, taint: dict[int, Kept]) -> None:
    carriers = {Kept.RANGE: _CARRIES_WIDE, Kept.EPSILON: _CARRIES_TINY}.get(why, frozenset()) if why else frozenset()
    if why is not None and index.nodes[node].op_type in carriers:
        taint.update((t, why) for t in index.outputs[node] if t != ABSENT)


_SPOILS: Mapping[Kept, Callable[[Array, int], bool]] = {Kept.RANGE: overflows, Kept.EPSILON: vanishes}


class _Values:
    """Values of constants: stored ones are read, computed ones were given."""

    def __init__(self, index: GraphIndex, computed: Mapping[int, Array]) -> None:
        self._index = index
        self._computed = computed

    def of(self, tensor: int) -> Array | None:
        if tensor == ABSENT:
            return None
        producer = self._index.producers[tensor]
        if producer != ABSENT and self._index.nodes[producer].op_type == "ConstantOfShape":
            return constant_value(self._index.nodes[producer])
        if not self._index.is_constant(tensor):
            return None
        stored = stored_value(self._index, tensor)
        return stored if stored is not None else self._computed.get(tensor)


def computed_constants(index: GraphIndex) -> list[int]:
    """Float32 constants that are computed rather than stored, and read by something that isn't constant itself."""
    return [
        tensor
        for tensor, kind in enumerate(index.tensor_kinds)
        if kind == Kind.CONSTANT
        and index.tensor_types[tensor].elem_type == FLOAT
        and index.producers[tensor] != ABSENT
        and index.nodes[index.producers[tensor]].op_type not in SOURCES
        and any(not _is_folded(index, edge.node) for edge in index.consumers[tensor])
    ]


def _is_folded(index: GraphIndex, node: int) -> bool:
    """Whether a runtime folds the node away, being computed from constants. The Q/DQ of a weight are kept and fused."""
    if index.nodes[node].op_type in _QDQ:
        return False
    return any(t != ABSENT and index.tensor_kinds[t] == Kind.CONSTANT for t in index.outputs[node])


def _touches_float(index: GraphIndex, node: int) -> bool:
    tensors = (*index.inputs[node], *index.outputs[node])
    return any(t != ABSENT and index.tensor_types[t].elem_type == FLOAT for t in tensors)
