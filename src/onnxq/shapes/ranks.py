"""What a few operators say of an output's shape even if the data that fix it aren't known.

ONNX's inference leaves these outputs without a shape, or with less than can be said, when an input that sizes them is
computed. Rank matters more than dims here: an output of wrong rank breaks whoever reads it.
"""

from __future__ import annotations

from collections.abc import Sequence

from onnx import NodeProto

from onnxq.protos import attribute, is_default_domain
from onnxq.tensor_types import Dim, ValueType

Shape = tuple[Dim, ...]

_SIZED_OPS = frozenset({"GatherND", "Reshape", "Squeeze", "TopK", "Unsqueeze"})
"""Operators with something to say, beside the reductions."""


def is_sized(node: NodeProto) -> bool:
    """Whether `implied_shape` may have something to say about a node."""
    return is_default_domain(node) and (node.op_type in _SIZED_OPS or node.op_type.startswith("Reduce"))


def implied_shape(node: NodeProto, inputs: Sequence[ValueType | None]) -> Shape | None:
    """The shape of all outputs of a node as far as it follows from the shapes of the inputs alone.

    Args:
        node: Any node.
        inputs: A type for each input; None for an absent or untyped one.

    Returns:
        One entry a dim; None if this module has nothing to say.
    """
    if not is_default_domain(node) or not inputs:
        return None
    data = inputs[0].shape if inputs[0] is not None else None
    count = _length(inputs[1]) if len(inputs) > 1 else None
    if node.op_type == "Reshape":
        return None if count is None else (None,) * count
    if data is None:
        return None
    if node.op_type == "TopK":
        return _with_open_axis(data, attribute(node, "axis", -1))
    if node.op_type == "GatherND":
        return _gathered(
            data, inputs[1].shape if len(inputs) > 1 and inputs[1] else None, attribute(node, "batch_dims", 0)
        )
    if node.op_type == "Unsqueeze":
        return None if count is None else (None,) * (len(data) + count)
    if node.op_type == "Squeeze":
        return None if not count else (None,) * (len(data) - count)
    if node.op_type.startswith("Reduce") and len(inputs) > 1:
        if attribute(node, "keepdims", 1):
            return (None,) * len(data)
        return None if not count else (None,) * (len(data) - count)
    return None


def _length(kind: ValueType | None) -> int | None:
    """Number of elements of a 1-D tensor."""
    if kind is None or kind.shape is None or len(kind.shape) != 1:
        return None
    length = kind.shape[0]
    return length if isinstance(length, int) and length >= 0 else None


def _gathered(data: Shape, indices: Shape | None, batch_dims: int) -> Shape | None:
    """Each row of the indices picks from the data along as many axes as it is long, behind the batch dims."""
    row = indices[-1] if indices else None
    if not indices or not isinstance(row, int) or not 0 <= batch_dims + row <= len(data):
        return None
    return (*indices[:-1], *data[batch_dims + row :])


def _with_open_axis(shape: Shape, axis: int) -> Shape | None:
    if not -len(shape) <= axis < len(shape):
        return None
    position = axis % len(shape)
    return (*shape[:position], None, *shape[position + 1 :])
