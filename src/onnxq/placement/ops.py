"""The classes of operators that the placement rules speak of.

The words are those of TensorRT's published advice on where Q/DQ belong. Which operator is in which class is decided
here.
"""

from __future__ import annotations

from onnxq.graph import ABSENT, GraphIndex, stored_value
from onnxq.protos import attribute, is_default_domain, string_attribute

CONVOLUTIONS = frozenset({"Conv", "ConvTranspose"})
"""Operators that can be a branch's backbone: their kernels can add a second operand to the result."""

LINEAR = CONVOLUTIONS | {"Gemm", "MatMul"}
"""Operators with int8 kernels that multiply by a weight."""

RESIDUAL = frozenset({"Add", "Sum"})
"""Operators that can close a residual branch. A Sum counts only with two inputs."""

ACTIVATIONS = frozenset(
    {
        "Celu",
        "Clip",
        "Elu",
        "Gelu",
        "HardSigmoid",
        "HardSwish",
        "LeakyRelu",
        "Mish",
        "PRelu",
        "Relu",
        "Selu",
        "Sigmoid",
        "Softplus",
        "Swish",
        "Tanh",
    }
)
"""Activations that a kernel applies to its result before storing it."""

ARITHMETIC = frozenset({"Add", "Div", "Max", "Min", "Mul", "Sub", "Sum"})
"""Operators that belong to an epilogue when all but one operand are constant. Max and Min are Clip written out."""

GATE_ONLY = frozenset({"Abs", "Erf", "Exp", "Neg", "Pow", "Reciprocal", "Sqrt", "Square", "Log"})
"""Pointwise functions that occur inside a written-out activation but are no activation by themselves."""

SATURATING = frozenset({"Clip", "Erf", "Exp", "HardSigmoid", "Min", "Sigmoid", "Tanh"})
"""What makes t*g(t) an activation: a gate g that levels off. Without one it is a polynomial, which no kernel fuses."""

CONTROL_FLOW = frozenset({"If", "Loop", "Scan"})
"""Operators whose bodies are graphs like any other: what runs in them can be calibrated, hence quantized."""

PICKING = frozenset({"GlobalMaxPool", "MaxPool"})
"""Pooling operators whose results are values of their input: int8 data pass through them without a new rounding."""

POOLS = PICKING | {"AveragePool", "GlobalAveragePool", "GlobalLpPool", "LpPool"}
"""Pooling operators. A ReduceMean over all spatial axes is one too, see `onnxq.placement.pooling`."""

NORMALIZATIONS = frozenset({"LayerNormalization"})
"""Operators that normalize what a convolution yields, and aren't part of its kernel."""

COPIES = frozenset(
    {
        "Concat",
        "DepthToSpace",
        "Dropout",
        "Expand",
        "Flatten",
        "Gather",
        "GatherElements",
        "GatherND",
        "Identity",
        "Reshape",
        "Slice",
        "SpaceToDepth",
        "Split",
        "Squeeze",
        "Tile",
        "Transpose",
        "Unsqueeze",
    }
)
"""Operators that move data and change no value. A nearest Resize is one too, see `is_copy`."""


def is_copy(index: GraphIndex, node: int) -> bool:
    """Whether the node only moves data: quantization can cross it without changing a value."""
    proto = index.nodes[node]
    if not is_default_domain(proto):
        return False
    if proto.op_type == "Dropout":
        return not _is_training(index, node)
    if proto.op_type in ("Resize", "Upsample"):
        return string_attribute(proto, "mode", "nearest") == "nearest"
    return proto.op_type in COPIES


def _is_training(index: GraphIndex, node: int) -> bool:
    """Whether a Dropout may drop something: its mode is given, and isn't the constant false."""
    mode = index.inputs[node][2] if len(index.inputs[node]) > 2 else ABSENT
    if mode == ABSENT:
        return False
    value = stored_value(index, index.origins[mode])
    return value is None or bool(value.any())


def copy_sources(index: GraphIndex, node: int) -> tuple[int, ...]:
    """Tensors whose values a copy operator passes on: its first input, of a Concat every input."""
    inputs = index.inputs[node]
    return inputs if index.nodes[node].op_type == "Concat" else inputs[:1]


def is_control_flow(index: GraphIndex, node: int) -> bool:
    """Whether the node is an If, Loop or Scan of the ONNX standard."""
    proto = index.nodes[node]
    return proto.op_type in CONTROL_FLOW and is_default_domain(proto)


def is_linear(index: GraphIndex, node: int) -> bool:
    """Whether the node is a Conv, ConvTranspose, Gemm or MatMul of the ONNX standard."""
    proto = index.nodes[node]
    return proto.op_type in LINEAR and is_default_domain(proto)


def is_convolution(index: GraphIndex, node: int) -> bool:
    """Whether the node is a Conv or ConvTranspose of the ONNX standard."""
    proto = index.nodes[node]
    return proto.op_type in CONVOLUTIONS and is_default_domain(proto)


def group_count(index: GraphIndex, node: int) -> int:
    """Number of groups of a convolution."""
    return attribute(index.nodes[node], "group", 1)
