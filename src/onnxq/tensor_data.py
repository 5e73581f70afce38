"""Where the values of stored tensors are: in the model itself, or left in the file that they came from.

A model with a gigabyte of weights and more is never handled as one message: protobuf ends at 2 GiB, and builds a
message in three times its size. Such a model keeps the heavy weights of its main graph outside:

    file.onnx       nodes, names, light tensors         in memory
    file.onnx.data  heavy weights                       mapped one at a time, when somebody asks for their values

A tensor that is left in its file says so the way ONNX does (`data_location`, `external_data`), with an absolute path,
and with a mark that only this process can make: no model can point its tensors at other files of the machine.
"""

from __future__ import annotations

import math
import re
import secrets
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, helper, numpy_helper

from onnxq.errors import InvalidModelError
from onnxq.protos import walk_tensors, with_initializers

LARGE_MODEL = 2**30
"""Bytes of stored values from which on a model is large."""

HEAVY_TENSOR = 2**14
"""Bytes from which on a tensor is heavy. Lighter ones may steer shapes, so they are always in memory."""

_FIELDS = ("float_data", "int32_data", "int64_data", "double_data", "uint64_data")
_MARK = "onnxq.mapped"
_OWN_MARK = secrets.token_hex()


def _bits(name: str) -> int:
    """Bits of an element of a data type: most tell in their names."""
    known = {"FLOAT": 32, "DOUBLE": 64, "BOOL": 8, "STRING": 0, "UNDEFINED": 0}
    digits = re.search(r"\d+", name)
    return known[name] if name in known else int(digits[0]) if digits else 0


_BITS = {number: _bits(name) for name, number in TensorProto.DataType.items()}

_MAPPABLE = frozenset(
    {TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE, TensorProto.BOOL}
    | {TensorProto.INT8, TensorProto.INT16, TensorProto.INT32, TensorProto.INT64}
    | {TensorProto.UINT8, TensorProto.UINT16, TensorProto.UINT32, TensorProto.UINT64}
)
"""Types whose elements lie in a file as they lie in an array, and which onnxruntime takes as inputs."""


def byte_size(tensor: TensorProto) -> int:
    """Bytes that the values of a tensor take, wherever they are; 0 for a tensor without values, or of strings."""
    stored = tensor.HasField("raw_data") or tensor.data_location == TensorProto.EXTERNAL
    if not stored and not any(len(getattr(tensor, field)) for field in _FIELDS):
        return 0
    elements = math.prod(max(length, 0) for length in tensor.dims)
    return -(-elements * _BITS.get(tensor.data_type, 0) // 8)


def is_large(model: ModelProto) -> bool:
    """Whether a model has too many values to be handled as one message."""
    return sum(byte_size(tensor) for tensor in walk_tensors(model)) >= LARGE_MODEL


def is_heavy(tensor: TensorProto) -> bool:
    """Whether a weight of a large model should be kept out of its message."""
    return byte_size(tensor) >= HEAVY_TENSOR


def is_mappable(tensor: TensorProto) -> bool:
    """Whether an array can share the memory of the tensor's values in a file."""
    return tensor.data_type in _MAPPABLE


def is_mapped(tensor: TensorProto) -> bool:
    """Whether the values of a tensor are left in a file, by `leave_in_file`."""
    return tensor.data_location == TensorProto.EXTERNAL and _entries(tensor).get(_MARK) == _OWN_MARK


def leave_in_file(tensor: TensorProto, file: Path, offset: int) -> None:
    """Let a tensor refer to its values in a file, in place.

    Args:
        tensor: A mappable one; values that it holds itself are dropped.
        file: The file, which must stay as it is while the model is in use.
        offset: Where in it the values begin.
    """
    for name in ("raw_data", "external_data", *_FIELDS):
        tensor.ClearField(name)
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", str(file.absolute())), ("offset", str(offset)), (_MARK, _OWN_MARK)):
        tensor.external_data.add(key=key, value=value)


def file_of(tensor: TensorProto) -> Path:
    """The file in which the values of a mapped tensor are."""
    return Path(_entries(tensor)["location"])


def tensor_values(tensor: TensorProto) -> NDArray[Any]:
    """The values of a tensor. Of a mapped one they are read from the file as they are looked at.

    Args:
        tensor: Any stored tensor.

    Returns:
        An array of the tensor's shape, which may be read-only.

    Raises:
        InvalidModelError: The values are in a file that wasn't looked for, or is gone.
        ValueError: The tensor holds more or fewer values than its shape has.
    """
    if tensor.data_location != TensorProto.EXTERNAL:
        return np.asarray(numpy_helper.to_array(tensor))
    if not is_mapped(tensor):
        raise InvalidModelError(
            f'the external data of tensor "{tensor.name}" weren\'t loaded with the model: '
            "give the path of its file, or load it with its data"
        )
    dtype, offset = helper.tensor_dtype_to_np_dtype(tensor.data_type), int(_entries(tensor)["offset"])
    try:
        return np.memmap(file_of(tensor), dtype, "r", offset, tuple(tensor.dims)).view(np.ndarray)
    except (OSError, ValueError) as error:
        raise InvalidModelError(
            f'the values of tensor "{tensor.name}" are gone from {file_of(tensor)}: {error}'
        ) from None


def self_contained(model: ModelProto) -> ModelProto:
    """The model itself, or a copy of one with mapped tensors that holds all values."""
    if not any(map(is_mapped, model.graph.initializer)):
        return model
    return with_initializers(model, map(_embedded, model.graph.initializer))


def _embedded(tensor: TensorProto) -> TensorProto:
    if not is_mapped(tensor):
        return tensor
    copy = TensorProto()
    copy.CopyFrom(tensor)
    copy.ClearField("data_location")
    copy.ClearField("external_data")
    copy.raw_data = tensor_values(tensor).tobytes()
    return copy


def _entries(tensor: TensorProto) -> dict[str, str]:
    return {entry.key: entry.value for entry in tensor.external_data}
