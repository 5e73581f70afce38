"""As which integers a pair stores a tensor: their element type, and the axis along which each index has its scale."""

from __future__ import annotations

from collections.abc import Iterable

from onnx import TensorProto

from onnxq.invariants.pair import ModelPair
from onnxq.invariants.quantized_graph import Quantization
from onnxq.protos import attribute


def element_type(pair: ModelPair, found: Quantization) -> str:
    """The element type that a tensor is quantized to, such as "int8"."""
    if found.zero_point is not None:
        return str(found.zero_point.dtype)
    if found.quantize is not None:
        given = attribute(found.quantize, "output_dtype", 0) or _stored_type(pair, found.quantize.input[2:3])
        return type_name(given or TensorProto.UINT8)  # uint8 is what the operator defines
    return type_name(_stored_type(pair, found.dequantize.input[:1]))


def type_name(number: int) -> str:
    """An element type in small letters, such as "float16"."""
    known = number in TensorProto.DataType.values()
    return TensorProto.DataType.Name(number).lower() if known and number else "unknown type"


def _stored_type(pair: ModelPair, names: Iterable[str]) -> int:
    return next((pair.stored_types[name] for name in names if name in pair.stored_types), 0)


def scale_axis(found: Quantization, rank: int | None) -> int | None:
    """The axis of the scales, counted from the front where the rank is known; None for one scale in all.

    One scale is one, whether it is stored as [] or as [1].
    """
    if found.axis is None or found.scale is None or found.scale.size == 1:
        return None
    return found.axis + rank if found.axis < 0 and rank is not None else found.axis
