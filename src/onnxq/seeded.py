"""Weights that are stored as a recipe: a seed, and statistics that the values made from it have.

A stripped model shares its topology and not its weights: a tensor keeps name, shape and element type, and instead of
values it holds, among its metadata, a small JSON text from which the values are made when the model is loaded:

    onnxq.seeded = {"seed": 7, "axis": 0, "mean": [..], "std": [..], "low": [..], "high": [..]}

The same recipe makes the same values with every version of numpy, since it takes the raw bits of the generator.
"""

from __future__ import annotations

import math
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta, Struct
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, helper, numpy_helper

from onnxq.errors import InvalidModelError
from onnxq.protos import walk_tensors

KEY = "onnxq.seeded"
"""Name of the metadata entry of a tensor that holds its recipe."""

SEEDABLE = (
    TensorProto.FLOAT,
    TensorProto.FLOAT16,
    TensorProto.BFLOAT16,
    TensorProto.DOUBLE,
    TensorProto.INT8,
    TensorProto.UINT8,
)
"""Element types of weights. Wider integers steer shapes and indices, so their values are always kept."""

ELEMENT_LIMIT = 2**28
"""Elements that the recipes of one model may ask for in all."""

_PAYLOAD = ("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data", "string_data")


class Recipe(Struct, frozen=True, forbid_unknown_fields=True):
    """How the values of a tensor are made. Statistics have one number per channel, or one in all."""

    seed: Annotated[int, Meta(ge=0, lt=2**32)]
    axis: Annotated[int, Meta(ge=0)] | None
    """The axis of the channels; None for one set of statistics in all."""
    mean: list[float]
    std: list[float]
    low: list[float]
    """Least value of each channel; one element has it."""
    high: list[float]
    """Greatest value of each channel; one element has it."""


def make_values(recipe: Recipe, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """The values of a recipe that fits the shape: bell-shaped, cut off at both ends."""
    channels = 1 if recipe.axis is None else shape[recipe.axis]
    bits = np.asarray(np.random.PCG64(recipe.seed).random_raw(math.prod(shape)), np.uint64)
    # The sum of the four 16-bit parts of each word is close to normal, and exact in integers.
    sums = bits.view(np.uint16).reshape(-1, 4).sum(axis=1, dtype=np.int64) - 2 * 0xFFFF
    unit = (sums / (2**16 / math.sqrt(3))).reshape(channels, -1)
    mean, std, low, high = (np.array(s)[:, None] for s in (recipe.mean, recipe.std, recipe.low, recipe.high))
    values = np.clip(mean + std * unit, low, high)
    place, length = recipe.seed % values.shape[1], values.shape[1]
    values[:, place], values[:, (place + max(length // 2, 1)) % length] = low[:, 0], high[:, 0]
    if recipe.axis is None:
        return np.asarray(values.reshape(shape))
    others = [length for axis, length in enumerate(shape) if axis != recipe.axis]
    return np.asarray(np.moveaxis(values.reshape(channels, *others), 0, recipe.axis))


def seed_tensor(tensor: TensorProto, recipe: Recipe) -> None:
    """Replace the values of a tensor by a recipe, in place."""
    for field in (*_PAYLOAD, "external_data", "data_location", "metadata_props"):
        tensor.ClearField(field)
    tensor.metadata_props.add(key=KEY, value=msgspec.json.encode(recipe).decode())


def is_seeded(tensor: TensorProto) -> bool:
    """Whether a tensor holds a recipe in place of values."""
    return any(entry.key == KEY for entry in tensor.metadata_props)


def restore_weights(model: ModelProto) -> None:
    """Make the values of all tensors that hold a recipe, in place; afterwards the model is like any other.

    Args:
        model: A model, stripped or not.

    Raises:
        InvalidModelError: A recipe can't be read, doesn't fit its tensor, or all together ask for more than
            `ELEMENT_LIMIT` elements.
    """
    seeded = [tensor for tensor in walk_tensors(model) if is_seeded(tensor)]
    total = sum(math.prod(max(length, 0) for length in tensor.dims) for tensor in seeded)
    if total > ELEMENT_LIMIT:
        raise InvalidModelError(f"the stripped weights have {total:,} elements, and at most {ELEMENT_LIMIT:,} are made")
    for tensor in seeded:
        shape = tuple(tensor.dims)
        values = make_values(_read_recipe(tensor), shape)
        made = numpy_helper.from_array(_cast(values, tensor.data_type), tensor.name)
        tensor.ClearField("metadata_props")
        tensor.raw_data = made.raw_data


def _read_recipe(tensor: TensorProto) -> Recipe:
    where = f'tensor "{tensor.name}": its recipe ({KEY})'
    text = next(entry.value for entry in tensor.metadata_props if entry.key == KEY)
    try:
        recipe = msgspec.json.decode(text, type=Recipe)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise InvalidModelError(f"{where} can't be read: {error}") from None
    if tensor.data_type not in SEEDABLE:
        raise InvalidModelError(f"{where} is for weights, and this is element type {tensor.data_type}")
    if any(len(getattr(tensor, field)) for field in (*_PAYLOAD, "external_data")):
        raise InvalidModelError(f"{where} stands beside stored values, of which there must be none")
    shape = tuple(tensor.dims)
    if min(shape, default=1) < 1 or (recipe.axis is not None and recipe.axis >= len(shape)):
        raise InvalidModelError(f"{where} doesn't fit shape {list(shape)}")
    channels = 1 if recipe.axis is None else shape[recipe.axis]
    statistics = (recipe.mean, recipe.std, recipe.low, recipe.high)
    if any(len(numbers) != channels for numbers in statistics):
        raise InvalidModelError(f"{where} has statistics of another number of channels than {channels}")
    if any(low > high for low, high in zip(recipe.low, recipe.high, strict=True)):
        raise InvalidModelError(f"{where} has a least value above the greatest")
    return recipe


def _cast(values: NDArray[np.float64], data_type: int) -> NDArray[Any]:
    """Round to the element type; what lies beyond its range becomes the end of the range."""
    dtype = helper.tensor_dtype_to_np_dtype(data_type)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return np.asarray(np.clip(np.rint(values), limits.min, limits.max)).astype(dtype)
    if data_type == TensorProto.DOUBLE:
        return values
    greatest = 65504.0 if data_type == TensorProto.FLOAT16 else 3.3895313892515355e38  # of bfloat16: float32 has more
    return np.clip(values, -greatest, greatest).astype(np.float32).astype(dtype)
