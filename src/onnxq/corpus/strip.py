"""Taking the weights out of a model, so that its topology can be shared and its weights are not.

Every large weight becomes a recipe (see `onnxq.seeded`): seeded numbers of the same shape, element type and
statistics. What decides about a quantizer's work stays: the graph, the shapes, the scale of each output channel,
channels of zeros, and which weights are equal to each other.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from google.protobuf.message import Message
from numpy.typing import NDArray
from onnx import AttributeProto, ModelProto, NodeProto, TensorProto, numpy_helper

from onnxq.corpus.defaults import DEFAULT_ABOVE, LEAST_ABOVE
from onnxq.errors import InvalidModelError, UsageError
from onnxq.protos import attribute, walk_graphs, walk_tensors
from onnxq.seeded import SEEDABLE, Recipe, is_seeded, seed_tensor
from onnxq.tensor_data import tensor_values

_CHANNEL_ELEMENTS = 16
"""Elements that a channel needs for statistics of its own: those of fewer would give the values away."""


@dataclass(frozen=True)
class Stripped:
    """A model without its weights.

    Attributes:
        model: It loads wherever onnxq loads models; `onnxq.seeded.restore_weights` makes a usual model of it.
        stripped: Elements that are no longer stored.
        tensors: How many tensors they were in.
        kept: Elements that are still stored as they were: short tensors, and integers.
        not_finite: Names of stripped tensors whose NaN and infinite elements became finite.
    """

    model: ModelProto
    stripped: int
    tensors: int
    kept: int
    not_finite: tuple[str, ...]


def strip_weights(model: ModelProto, *, above: int = DEFAULT_ABOVE, seed: int = 0) -> Stripped:
    """Replace the large weights of a model by recipes, and drop its free texts.

    Weights are initializers and values of Constant nodes, those of bodies and functions included, whose elements are
    floats or 8-bit integers. Wider integers steer shapes and indices, and stay. Doc strings and metadata, which nothing
    reads and which often hold paths and source lines, are dropped. Names stay; see `onnxq.renaming`.

    Statistics are rounded to 3 digits: mean, standard deviation, least and greatest value of each output channel, or
    of the whole tensor where a channel has fewer than 16 elements.

    Args:
        model: Complete in memory. It isn't modified.
        above: Tensors with more elements than this are stripped.
        seed: Another seed gives other weights.

    Returns:
        The stripped model, and what became of its values.

    Raises:
        UsageError: `above` is below 16.
        InvalidModelError: The values of a weight can't be read.
    """
    if above < LEAST_ABOVE:
        raise UsageError(f"above={above}: at least {LEAST_ABOVE}, because shorter tensors steer shapes")
    result = ModelProto()
    result.CopyFrom(model)
    _name_constants(result)
    seeds = _Seeds(seed)
    axes = _channel_axes(result)
    stripped = tensors = kept = 0
    not_finite = []
    for tensor in walk_tensors(result):
        if is_seeded(tensor):
            continue
        count = int(np.prod(tensor.dims, dtype=np.int64))
        if count <= above or tensor.data_type not in SEEDABLE:
            kept += count
            continue
        values = _read(tensor)
        finite = np.isfinite(values)
        if not finite.all():
            not_finite.append(tensor.name)
            values = np.where(finite, values, 0.0)
        seed_tensor(tensor, _recipe(values, axes.get(tensor.name, 0), seeds.of(values)))
        stripped, tensors = stripped + count, tensors + 1
    _drop_texts(result)
    return Stripped(result, stripped, tensors, kept, tuple(not_finite))


class _Seeds:
    """Seeds by content: equal weights stay equal. They depend on the order of the weights, not on their values."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._numbers: dict[bytes, int] = {}

    def of(self, values: NDArray[np.float64]) -> int:
        number = self._numbers.setdefault(values.tobytes(), len(self._numbers))
        return zlib.crc32(f"{self._seed}:{number}".encode())


def _recipe(values: NDArray[np.float64], axis: int, seed: int) -> Recipe:
    channels = values.shape[axis]
    if values.ndim < 2 or values.size < channels * _CHANNEL_ELEMENTS:
        rows, known_axis = values.reshape(1, -1), None
    else:
        rows, known_axis = np.moveaxis(values, axis, 0).reshape(channels, -1), axis
    low, high = rows.min(axis=1), rows.max(axis=1)
    return Recipe(seed, known_axis, *(_rounded(s) for s in (rows.mean(axis=1), rows.std(axis=1), low, high)))


def _rounded(numbers: NDArray[np.float64]) -> list[float]:
    return [float(f"{number:.3g}") for number in numbers.tolist()]


def _read(tensor: TensorProto) -> NDArray[np.float64]:
    try:
        return tensor_values(tensor).astype(np.float64)
    except (ValueError, TypeError) as error:
        raise InvalidModelError(f'tensor "{tensor.name}": its values can\'t be read: {error}') from None


def _channel_axes(model: ModelProto) -> Mapping[str, int]:
    """Weight -> axis of its output channels, as the first linear op that reads it has them."""
    ranks = {tensor.name: len(tensor.dims) for tensor in walk_tensors(model)}
    axes: dict[str, int] = {}
    for graph in walk_graphs(model.graph):
        for node in graph.node:
            for slot, name in enumerate(node.input[:2]):
                axis = _axis(node, slot, ranks.get(name, 0))
                if 0 <= axis < ranks.get(name, 0):
                    axes.setdefault(name, axis)
    return axes


def _axis(node: NodeProto, slot: int, rank: int) -> int:
    """The axis that the quantizer's rule for weights takes too; -1 where there is no rule."""
    if node.op_type in ("Conv", "ConvTranspose"):
        return int(node.op_type == "ConvTranspose") if slot == 1 else -1
    if node.op_type == "Gemm":
        return slot ^ int(bool(attribute(node, "transB" if slot else "transA", 0)))
    if node.op_type == "MatMul":
        return rank - 1 if slot else rank - 2
    return -1


def _name_constants(model: ModelProto) -> None:
    """Every Constant of floats holds a tensor, of the name by which nodes read it: one form for all weights."""
    for graph in walk_graphs(model.graph):
        for node in graph.node:
            for a in node.attribute if node.op_type == "Constant" and node.output else ():
                if a.name == "value_floats":
                    values = numpy_helper.from_array(np.array(a.floats, np.float32))
                    a.CopyFrom(AttributeProto(name="value", type=AttributeProto.TENSOR, t=values))
                if a.HasField("t"):
                    a.t.name = node.output[0]


def _drop_texts(message: Message) -> None:
    """Remove doc strings and metadata, recipes apart, from a message and all that it holds."""
    known: Mapping[str, Any] = message.DESCRIPTOR.fields_by_name
    if "doc_string" in known:
        message.ClearField("doc_string")
    if "metadata_props" in known and not (isinstance(message, TensorProto) and is_seeded(message)):
        message.ClearField("metadata_props")
    for field, value in message.ListFields():
        if field.message_type is not None:
            for inner in [value] if isinstance(value, Message) else value:
                _drop_texts(inner)
