"""What an operator allows: which of its inputs and outputs may be half precision (rule F2).

The operator's schema at the model's opset decides. Types that the schema ties together (one type variable) go together;
a type that it fixes to float32, such as that of Resize's scales, stays, with Casts around it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx
from onnx import ModelProto, NodeProto, TensorProto
from onnx.defs import OpSchema, SchemaError

from onnxq.graph import ABSENT, GraphIndex

FLOAT = TensorProto.FLOAT

_TYPE_NAMES: dict[int, str] = {TensorProto.FLOAT16: "tensor(float16)", TensorProto.BFLOAT16: "tensor(bfloat16)"}

_EXACT_INPUTS = {"Dropout": (1,), "Resize": (1, 2), "Upsample": (1,)}
"""Inputs whose values steer the operator. Their schema may allow half precision, their contract doesn't."""

SOURCES = frozenset({"Constant", "ConstantOfShape"})
"""Operators that take their type from an attribute: each reader can have the precision that it wants."""

READS_ANY = frozenset({"Cast", "Shape", "Size"})
"""Operators that take either precision and yield none of their own: they read what there is."""

QDQ = frozenset({"QuantizeLinear", "DequantizeLinear"})
"""The two halves of a Q/DQ pair."""

NEVER = frozenset({"Celu", "If", "Loop", "NonMaxSuppression", "Scan", "SequenceMap", "Upsample"})
"""Operators that stay float32: bodies have float32 boundaries, and the others lose more than digits."""


@dataclass(frozen=True, slots=True)
class Slots:
    """Which float32 inputs and outputs of a node become half precision, by position."""

    inputs: frozenset[int]
    outputs: frozenset[int]


NONE = Slots(frozenset(), frozenset())


class Operators:
    """Answers for one model and one half-precision type."""

    def __init__(self, model: ModelProto, low: int) -> None:
        self._versions = {"" if o.domain == "ai.onnx" else o.domain: o.version for o in model.opset_import}
        self._functions = {(f.domain, f.name) for f in model.functions}
        self._low = _TYPE_NAMES[low]

    def slots(self, index: GraphIndex, node: int) -> Slots:
        """Inputs and outputs of the node that may become half precision; `NONE` if it must stay float32."""
        proto = index.nodes[node]
        schema = self._schema(proto)
        if schema is None or proto.op_type in NEVER or proto.op_type in SOURCES:
            return NONE
        if any(_is_container(index, t) for t in (*index.inputs[node], *index.outputs[node])):
            return NONE  # nothing says what a sequence or optional holds, so they pass through as they are
        inputs = [_float32(index, t) for t in index.inputs[node]]
        outputs = [_float32(index, t) for t in index.outputs[node]]
        allowed = {c.type_param_str for c in schema.type_constraints if self._low in c.allowed_type_strs}
        exact = _EXACT_INPUTS.get(proto.op_type, ())
        bound = {_type_variable(schema.inputs, slot) for slot, is_float in enumerate(inputs) if is_float}
        low_inputs = {
            slot
            for slot, is_float in enumerate(inputs)
            if is_float and slot not in exact and _type_variable(schema.inputs, slot) in allowed
        }
        low_outputs = {
            slot
            for slot, is_float in enumerate(outputs)
            if is_float and _type_variable(schema.outputs, slot) in allowed & bound
        }
        if proto.op_type == "DequantizeLinear":
            low_outputs = {0} if low_inputs else set()
        if any(is_float and slot not in low_outputs for slot, is_float in enumerate(outputs[:1])):
            return NONE  # the result stays float32, so nothing is gained by rounding what it is made of
        return Slots(frozenset(low_inputs), frozenset(low_outputs))

    def _schema(self, node: NodeProto) -> OpSchema | None:
        domain = "" if node.domain == "ai.onnx" else node.domain
        version = self._versions.get(domain)
        if version is None or (node.domain, node.op_type) in self._functions:
            return None
        try:
            return onnx.defs.get_schema(node.op_type, version, domain)
        except SchemaError:
            return None


def _type_variable(parameters: Sequence[OpSchema.FormalParameter], slot: int) -> str:
    """Type variable (or fixed type) of the parameter at a position; the last one may be variadic."""
    return str(parameters[min(slot, len(parameters) - 1)].type_str) if parameters else ""


def _is_container(index: GraphIndex, tensor: int) -> bool:
    return tensor != ABSENT and index.tensor_types[tensor].kind != "tensor"


def _float32(index: GraphIndex, tensor: int) -> bool:
    found = index.tensor_types[tensor] if tensor != ABSENT else None
    return found is not None and found.kind == "tensor" and found.elem_type == FLOAT
