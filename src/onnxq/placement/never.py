"""What is never quantized, whatever the user asks for (rule P6)."""

from __future__ import annotations

from collections.abc import Mapping

from onnx import TensorProto

from onnxq.graph import Edge, GraphIndex, Use
from onnxq.protos import is_default_domain

Unseen = Mapping[Use, str]
"""Tensors that calibration saw no value of -> why: "was empty in every sample"."""

QUANTIZABLE_TYPES = frozenset({TensorProto.FLOAT, TensorProto.FLOAT16})
"""Element types that onnxq writes Q/DQ around."""

NEVER_OP_TYPES = frozenset(
    {
        "ArgMax",
        "ArgMin",
        "Cast",
        "Constant",
        "ConstantOfShape",
        "DequantizeLinear",
        "If",
        "LogSoftmax",
        "Loop",
        "NonMaxSuppression",
        "NonZero",
        "OneHot",
        "QuantizeLinear",
        "Range",
        "Scan",
        "Shape",
        "Size",
        "Softmax",
        "TopK",
    }
)
"""Ops whose inputs are never quantized (P6): ranks, indices, shapes and probabilities don't survive rounding."""

_PARAMETERS = {
    "BatchNormalization": (1, 2, 3, 4),
    "Clip": (1, 2),
    "GroupNormalization": (1, 2),
    "InstanceNormalization": (1, 2),
    "LayerNormalization": (1, 2),
    "PRelu": (1,),
    "Pad": (2,),
    "Resize": (1, 2),
    "Upsample": (1,),
}
"""Float inputs that look like data by their type, but whose exact values matter."""


def never_quantized(index: GraphIndex, node: int, slot: int) -> bool:
    """Whether input `slot` of the node must keep its exact values."""
    proto = index.nodes[node]
    if not is_default_domain(proto):
        return False
    return proto.op_type in NEVER_OP_TYPES or slot in _PARAMETERS.get(proto.op_type, ())


def why_never(index: GraphIndex, edge: Edge, unseen: Unseen) -> str:
    """P6: why the tensor on the edge can't be quantized, whatever reads it; empty if it can."""
    tensor = index.inputs[edge.node][edge.input]
    found = index.tensor_types[tensor]
    if found.kind != "tensor" or found.elem_type not in QUANTIZABLE_TYPES:
        return f"is of type {found}, Q/DQ are written for float and float16"
    if found.shape is not None and 0 in found.shape:
        return "has no elements"
    return unseen.get(index.use(edge), "")
