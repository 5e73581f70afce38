"""Types of values in a model, as plain data: cheaper to read and compare than protobuf messages.

A dim is an int (known), a str (a symbol that the model's author declared) or None (unknown).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import onnx
from onnx import TensorProto

Dim = int | str | None

FLOAT_TYPES = frozenset({TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE})


@dataclass(frozen=True, slots=True)
class ValueType:
    """Type of one value.

    Attributes:
        elem_type: `TensorProto.DataType`; 0 when unknown.
        shape: One entry a dim; None when even the rank is unknown.
        kind: "tensor", "sparse_tensor", "sequence", "optional" or "map". Of what isn't a tensor only `kind` counts.
    """

    elem_type: int
    shape: tuple[Dim, ...] | None = None
    kind: str = "tensor"

    @property
    def is_float(self) -> bool:
        """Whether it is a tensor of a floating-point type that arithmetic runs in."""
        return self.kind == "tensor" and self.elem_type in FLOAT_TYPES

    @property
    def rank(self) -> int | None:
        """Number of dims, or None when unknown."""
        return None if self.shape is None else len(self.shape)

    def __str__(self) -> str:
        if self.kind != "tensor":
            return self.kind
        name = TensorProto.DataType.Name(self.elem_type).lower() if self.elem_type else "untyped"
        if self.shape is None:
            return name
        return f"{name}[{', '.join('?' if d is None else str(d) for d in self.shape)}]"


@dataclass(frozen=True, slots=True)
class GraphTypes:
    """Types of all values of one graph, and of the bodies below it.

    Attributes:
        tensors: Value name -> type: inputs, initializers, node outputs of this graph (not captured outer values).
        bodies: (position of the node in `graph.node`, attribute name) -> types of that body graph.
    """

    tensors: Mapping[str, ValueType] = field(default_factory=dict)
    bodies: Mapping[tuple[int, str], GraphTypes] = field(default_factory=dict)


def value_type(proto: onnx.TypeProto) -> ValueType:
    """Read a `TypeProto` as it stands: numbers are kept, 0 and negative ones included."""
    kind = proto.WhichOneof("value")
    if kind is None:
        return ValueType(0)
    if kind != "tensor_type":
        return ValueType(0, None, kind.removesuffix("_type"))
    tensor = proto.tensor_type
    if not tensor.HasField("shape"):
        return ValueType(tensor.elem_type)
    return ValueType(tensor.elem_type, tuple(_dim(d) for d in tensor.shape.dim))


def _dim(proto: onnx.TensorShapeProto.Dimension) -> Dim:
    which = proto.WhichOneof("value")
    if which == "dim_value":
        return int(proto.dim_value)
    return (proto.dim_param or None) if which == "dim_param" else None
