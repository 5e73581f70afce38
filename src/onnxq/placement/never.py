"""What is never quantized, whatever the user asks for (rule P6)."""

from __future__ import annotations

from collections.abc import Mapping

from onnx import TensorProto

from onnxq.graph import ABSENT, Edge, GraphIndex, Use
from onnxq.protos import is_default_domain

Unseen = Mapping[Use, str]
"""Tensors that calibration saw no value of -> why: "was empty in every sample"."""

QUANTIZABLE_TYPES = frozenset({TensorProto.FLOAT, TensorProto.FLOAT16})
"""Element types that onnxq writes Q/DQ around."""

NEVER_OP_TYPES = frozenset(
    {
        "AffineGrid",
        "ArgMax",
        "ArgMin",
        "Bernoulli",
        "BitCast",
        "Cast",
        "CastLike",
        "Constant",
        "ConstantOfShape",
        "DequantizeLinear",
        "DynamicQuantizeLinear",
        "Equal",
        "EyeLike",
        "Greater",
        "GreaterOrEqual",
        "Hardmax",
        "If",
        "IsInf",
        "IsNaN",
        "Less",
        "LessOrEqual",
        "LogSoftmax",
        "Loop",
        "MelWeightMatrix",
        "Multinomial",
        "NegativeLogLikelihoodLoss",
        "NonMaxSuppression",
        "NonZero",
        "OneHot",
        "QLinearConv",
        "QLinearMatMul",
        "QuantizeLinear",
        "RandomNormalLike",
        "RandomUniformLike",
        "Range",
        "Scan",
        "SequenceMap",
        "Shape",
        "Size",
        "Softmax",
        "SoftmaxCrossEntropyLoss",
        "TopK",
        "Unique",
    }
)
"""Ops whose inputs are never quantized (P6): ranks, indices, masks, shapes, coordinates and probabilities don't survive
rounding."""

_PARAMETERS = {
    "Attention": (3,),
    "BatchNormalization": (1, 2, 3, 4),
    "Clip": (1, 2),
    "DeformConv": (2, 3, 4),
    "Dropout": (1,),
    "GridSample": (1,),
    "GroupNormalization": (1, 2),
    "InstanceNormalization": (1, 2),
    "LayerNormalization": (1, 2),
    "MaxRoiPool": (1,),
    "PRelu": (1,),
    "Pad": (2,),
    "Pow": (1,),
    "RMSNormalization": (1,),
    "Resize": (1, 2),
    "RoiAlign": (1,),
    "RotaryEmbedding": (1, 2),
    "STFT": (2,),
    "Upsample": (1,),
}
"""Float inputs that look like data by their type, but whose exact values matter: factors, bounds, exponents, masks that
are added, places to read from."""


def never_quantized(index: GraphIndex, node: int, slot: int) -> bool:
    """Whether input `slot` of the node must keep its exact values."""
    return bool(why_exact(index, node, slot))


def why_exact(index: GraphIndex, node: int, slot: int) -> str:
    """P6: why input `slot` of the node must keep its exact values; empty if it need not."""
    proto = index.nodes[node]
    if not is_default_domain(proto):
        return ""
    if proto.op_type in NEVER_OP_TYPES:
        return f"is read by {proto.op_type}, whose result rounding would change by more than its last digits"
    if slot in _PARAMETERS.get(proto.op_type, ()):
        return "is a parameter"
    if proto.op_type == "MaxPool" and len(index.outputs[node]) > 1 and _is_used(index, index.outputs[node][1]):
        # Rounding makes ties, and of equal values another one is the greatest: MaxUnpool would put it elsewhere.
        return "decides the indices that the MaxPool yields"
    return ""


def _is_used(index: GraphIndex, tensor: int) -> bool:
    return tensor != ABSENT and bool(index.consumers[tensor] or index.is_output[tensor])


def why_never(index: GraphIndex, edge: Edge, unseen: Unseen) -> str:
    """P6: why the tensor on the edge can't be quantized, whatever reads it; empty if it can."""
    return why_no_pair(index, index.use(edge), unseen)


def why_no_pair(index: GraphIndex, use: Use, unseen: Unseen) -> str:
    """P6: why a graph's tensor can't be quantized; empty if it can."""
    found = index.tensor_types[use.tensor]
    if found.kind != "tensor" or found.elem_type not in QUANTIZABLE_TYPES:
        return f"is of type {found}, Q/DQ are written for float and float16"
    if found.shape is not None and 0 in found.shape:
        return "has no elements"
    return unseen.get(use, "")
