"""Which nodes run in half precision, and why the others don't (rules F2 to F4).

A constant beyond the range keeps its reader in float32, and so do the ops that hand such a value on, up to one that
bounds it again; else an attention mask of -3.4e38 would become -inf on its way to the Softmax, and a fully masked row
NaN:

    mask -> Where(-3.4e38) -> Add -> Softmax -> MatMul          float32 up to and with the Softmax, then half

A constant that would vanish, as a denominator's epsilon does, keeps what is made of it in float32 up to the division,
or where the division is a product, up to that:

    v -> Add(1e-12) -> Sqrt -> Div -> Conv                      float32 up to and with the Div, then half
    v -> Add(1e-12) -> Sqrt -> Reciprocal -> Mul -> Conv        float32 up to and with the Mul, then half

What calibration saw beyond the range keeps float32 what yields it, back to a linear op or a DequantizeLinear, and what
is made of it, up to an op that bounds it again or a QuantizeLinear:

    DQ -> Conv -> BatchNormalization -> Relu(70000) -> AveragePool -> Gemm -> Softmax -> MatMul
          float32 from here on                                                up to here

What spoils a value spoils it in the body that gets it, and, if a Loop or Scan carries it on, in the next round:

    -3.4e38 -> Loop: (state) -> Max(t) -> state                 float32, from the first round on
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass
from enum import Enum

import numpy as np

from onnxq.graph import ABSENT, GraphIndex, Kind, stored_value
from onnxq.precision.body_links import body_links
from onnxq.precision.denominators import denominators
from onnxq.precision.observed import yielding
from onnxq.precision.operators import FLOAT, NONE, QDQ, READS_ANY, SOURCES, Operators, Slots
from onnxq.precision.values import Array, constant_value, exceeds, overflows, spoils_scale, vanishes
from onnxq.protos import is_default_domain


class Kept(Enum):
    """Why a node stays float32."""

    OPERATOR = "its operator has no half-precision form at this opset, or must not be rounded"
    EXCLUDED = "it was excluded"
    CONSTANT = "it is computed from constants only, and rounded where it is used"
    SHAPE = "it computes with shapes, which must stay exact"
    RANGE = "a constant that reaches it is beyond the range of half precision"
    WIDE = "calibration saw values beyond the range of half precision at it or before it"
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


_SCALE = 1
"""Input of a QuantizeLinear or DequantizeLinear that holds the scale."""

_COPIES = frozenset(
    {"Cast", "Concat", "Expand", "Flatten", "Gather", "GatherND", "Identity", "Pad", "Reshape", "ScatterND", "Slice"}
    | {"Split", "Squeeze", "Tile", "Transpose", "Unsqueeze", "Where"}
)

_CARRIES_WIDE = frozenset(
    {"Abs", "Add", "Div", "Max", "Min", "Mul", "Neg", "ReduceMax", "ReduceMin", "Sub", "Sum"} | _COPIES | QDQ
)
"""Ops in whose result a value beyond the range can appear if an operand holds one."""

_BOUNDS = frozenset(
    {"Atan", "Cos", "Erf", "GroupNormalization", "HardSigmoid", "Hardmax", "InstanceNormalization"}
    | {"LayerNormalization", "Log", "LpNormalization", "MeanVarianceNormalization", "QuantizeLinear", "Reciprocal"}
    | {"Sigmoid", "Sign", "Sin", "Softmax", "Softsign", "Tanh"}
)
"""Ops whose result is within the range whatever calibration saw before them. The scale of a pair tells of itself."""

Computed = Callable[[int], Array | None]
"""Tensor number -> value of a constant that isn't stored but computed; None for one that isn't known."""

_EPSILONS = {"BatchNormalization": 1e-5, "InstanceNormalization": 1e-5}
"""Operators that add an attribute of half precision to a denominator, and its default."""


def assign(
    model_operators: Operators,
    index: GraphIndex,
    low: int,
    *,
    excluded: Set[int] = frozenset(),
    beyond: Set[int] = frozenset(),
    computed: Computed,
) -> Assignment:
    """Decide for each node, in one pass; in another one for each value that a body is found to carry on spoiled.

    Args:
        model_operators: What the operators of the model allow.
        index: The model.
        low: The half-precision type.
        excluded: Nodes that must stay float32.
        beyond: Tensors at which calibration saw values beyond the range of the half-precision type.
        computed: Gives the values of constants that aren't stored but computed.

    Returns:
        The assignment.
    """
    rules = _Rules(index, low, excluded, beyond, computed)
    while True:
        known = len(rules.carried)
        assignment = _assign_once(model_operators, index, rules, excluded)
        if len(rules.carried) == known:
            return assignment


def _assign_once(model_operators: Operators, index: GraphIndex, rules: _Rules, excluded: Set[int]) -> Assignment:
    slots: dict[int, Slots] = {}
    kept: dict[int, Kept] = {}
    for node, proto in enumerate(index.nodes):
        if not _touches_float(index, node) or proto.op_type in SOURCES:
            continue  # it takes the precision of its readers
        if proto.op_type in READS_ANY and is_default_domain(proto) and node not in excluded:
            rules.spread(node, rules.taint.get(index.inputs[node][0]))
            continue
        allowed = model_operators.slots(index, node)
        why = rules.why_kept(node, allowed)
        if why is None:
            slots[node] = allowed
        else:
            kept[node] = why
        rules.spread(node, why)
    return Assignment(slots, kept)


class _Rules:
    """Judges node after node, in their order, and remembers which tensors a constant has spoiled.

    Attributes:
        taint: Tensors that hold what half precision can't, and why.
        carried: Inputs of bodies that a later round gets spoiled, as far as this was found out.
    """

    def __init__(self, index: GraphIndex, low: int, excluded: Set[int], beyond: Set[int], computed: Computed) -> None:
        self.taint: dict[int, Kept] = dict.fromkeys(beyond, Kept.WIDE)
        self.carried: set[int] = set()
        self._index = index
        self._links = body_links(index)
        self._low = low
        self._excluded = excluded
        self._yields_wide = yielding(index, beyond)
        self._computed = computed
        self._denominators = denominators(index)

    def why_kept(self, node: int, allowed: Slots) -> Kept | None:
        """Why a node stays float32; None if it doesn't."""
        if node in self._excluded:
            return Kept.EXCLUDED
        kind = _kind(self._index, node)
        if kind == Kind.CONSTANT:
            return Kept.CONSTANT
        if allowed == NONE:
            return Kept.OPERATOR
        if kind == Kind.SHAPE:
            return Kept.SHAPE
        is_qdq, inputs = self._index.nodes[node].op_type in QDQ, self._index.inputs[node]
        for slot in sorted(allowed.inputs):
            scales = is_qdq and slot == _SCALE
            why = self._why_scale_kept(inputs[slot]) if scales else self._why_spoiled(inputs[slot])
            if why is not None:
                return why
        if node in self._yields_wide:
            return Kept.WIDE
        return Kept.EPSILON if self._loses_attribute(node) else None

    def spread(self, node: int, why: Kept | None) -> None:
        """Note that what a node yields is spoiled like what it reads, and that what its bodies get is too."""
        for given, received in self._links.given.get(node, ()):
            spoiled = self._why_spoiled(given)
            if spoiled is not None:
                self.taint.setdefault(received, spoiled)
        outputs = [t for t in self._index.outputs[node] if t != ABSENT]
        if why in (Kept.EXCLUDED, Kept.OPERATOR, Kept.SHAPE):
            why = next((spoiled for t in self._float_inputs(node) if (spoiled := self._why_spoiled(t))), None)
        if (why == Kept.RANGE and self._carries_wide(node)) or (why == Kept.WIDE and not self._bounds(node)):
            self._taint(outputs, why)
        elif why == Kept.EPSILON:
            hands_on = self._index.nodes[node].op_type in _COPIES or self._inverts(node)
            self._taint([t for t in outputs if hands_on or t in self._denominators], why)

    def _float_inputs(self, node: int) -> list[int]:
        types = self._index.tensor_types
        return [t for t in self._index.inputs[node] if t != ABSENT and types[t].elem_type == FLOAT]

    def _taint(self, tensors: Iterable[int], why: Kept) -> None:
        for tensor in tensors:
            self.taint[tensor] = why
            for received in self._links.carried.get(tensor, ()):
                if received not in self.taint:
                    self.carried.add(received)
                    self.taint[received] = why
            self._taint(self._links.yielded.get(tensor, ()), why)

    def _carries_wide(self, node: int) -> bool:
        op_type, inputs = self._index.nodes[node].op_type, self._index.inputs[node]
        return op_type in _CARRIES_WIDE and (op_type != "Div" or self._why_spoiled(inputs[0]) == Kept.RANGE)

    def _bounds(self, node: int) -> bool:
        """Whether the result is within the range though calibration saw values beyond it at the inputs."""
        op_type, inputs = self._index.nodes[node].op_type, self._index.inputs[node]
        if op_type == "Clip":
            return len(inputs) == 3 and ABSENT not in inputs
        if op_type == "Div":
            return self._why_spoiled(inputs[0]) is None
        return op_type in _BOUNDS

    def _inverts(self, node: int) -> bool:
        """Whether the node makes of a tiny value one beyond the range."""
        op_type, inputs = self._index.nodes[node].op_type, self._index.inputs[node]
        return op_type in ("Pow", "Reciprocal") or (op_type == "Div" and self._index.is_constant(inputs[0]))

    def _why_spoiled(self, tensor: int) -> Kept | None:
        if tensor in self.taint:
            return self.taint[tensor]
        value = self._value(tensor)
        if value is None:
            return None
        if overflows(value, self._low):
            return Kept.RANGE
        return Kept.EPSILON if vanishes(value, self._low, throughout=tensor not in self._denominators) else None

    def _why_scale_kept(self, scale: int) -> Kept | None:
        value = self._value(scale)
        if value is None:
            return Kept.SCALE
        if exceeds(value, self._low):
            return Kept.WIDE
        return Kept.SCALE if spoils_scale(value, self._low) else None

    def _loses_attribute(self, node: int) -> bool:
        proto = self._index.nodes[node]
        if not is_default_domain(proto) or proto.op_type not in _EPSILONS:
            return False
        epsilon = next((a.f for a in proto.attribute if a.name == "epsilon"), _EPSILONS[proto.op_type])
        return vanishes(np.array(epsilon, np.float32), self._low)

    def _value(self, tensor: int) -> Array | None:
        """The value of a constant, stored or computed, or the one that a ConstantOfShape repeats."""
        index = self._index
        producer = index.producers[tensor]
        if producer != ABSENT and index.nodes[producer].op_type == "ConstantOfShape":
            return constant_value(index.nodes[producer])
        if not index.is_constant(tensor):
            return None
        stored = stored_value(index, tensor)
        return stored if stored is not None else self._computed(tensor)


def computed_constants(index: GraphIndex) -> list[int]:
    """Float32 constants that are computed rather than stored, and read by something that isn't constant itself.

    Not dequantized weights: their scales tell their range.
    """
    return [
        tensor
        for tensor, kind in enumerate(index.tensor_kinds)
        if kind == Kind.CONSTANT
        and index.tensor_types[tensor].elem_type == FLOAT
        and index.producers[tensor] != ABSENT
        and index.nodes[index.producers[tensor]].op_type not in SOURCES | QDQ
        and any(_kind(index, edge.node) != Kind.CONSTANT for edge in index.consumers[tensor])
    ]


def _kind(index: GraphIndex, node: int) -> Kind:
    """What the node's results depend on. Runtimes fold constants, but not the Q/DQ of a weight: they fuse them."""
    if index.nodes[node].op_type in QDQ:
        return Kind.DATA
    return min((index.tensor_kinds[t] for t in index.outputs[node] if t != ABSENT), default=Kind.DATA)


def _touches_float(index: GraphIndex, node: int) -> bool:
    tensors = (*index.inputs[node], *index.outputs[node])
    return any(t != ABSENT and index.tensor_types[t].elem_type == FLOAT for t in tensors)
