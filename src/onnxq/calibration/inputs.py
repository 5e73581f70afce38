"""What a model's inputs take, and whether a value fits: the one place that compares data with declarations."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, helper

from onnxq.errors import CalibrationError, UnsupportedError, UsageError
from onnxq.tensor_types import Dim, ValueType, value_type


@dataclass(frozen=True, slots=True)
class InputSpec:
    """What one graph input takes.

    Attributes:
        name: Of the input.
        dtype: Of its elements; `object` for strings.
        shape: A positive int, or a symbol or None where any length will do; None when even the rank is open.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[Dim, ...] | None

    def __str__(self) -> str:
        name = "string" if self.dtype == np.object_ else self.dtype.name
        return f"{name} of any shape" if self.shape is None else f"{name}[{_dims_text(self.shape)}]"


def input_specs(model: ModelProto, shapes: Mapping[str, Sequence[int]] | None = None) -> tuple[InputSpec, ...]:
    """Read what the inputs take, in the model's order; inputs that an initializer gives a value are none.

    Args:
        model: The model.
        shapes: Input name -> shape to use for calibration, which settles the dims that the model leaves open.

    Returns:
        One spec an input. Dims declared 0 or negative count as unknown: exporters write them for "any".

    Raises:
        UnsupportedError: An input is no tensor.
        UsageError: A shape names no input, or contradicts the declaration.
    """
    constants = {t.name for t in model.graph.initializer} | {t.values.name for t in model.graph.sparse_initializer}
    declared = {v.name: value_type(v.type) for v in model.graph.input if v.name not in constants}
    chosen = dict(shapes or {})
    for name in chosen:
        if name not in declared:
            raise UsageError(f'calibration shapes: the model has no input "{name}"; {near_misses(name, declared)}')
    return tuple(_spec(name, kind, chosen.get(name)) for name, kind in declared.items())


def parse_shapes(text: str) -> dict[str, tuple[int, ...]]:
    """Read shapes as a command line gives them: `name:1x3x224x224,other:2x3`.

    Args:
        text: Pieces between commas; a name may itself hold colons and slashes, the last colon counts.

    Returns:
        Input name -> shape.

    Raises:
        UsageError: Naming the piece that can't be read.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for piece in text.split(","):
        name, _, dims = piece.strip().rpartition(":")
        lengths = dims.split("x")
        if not name or not all(d.isascii() and d.isdigit() and int(d) > 0 for d in lengths):
            raise UsageError(f'calibration shapes: "{piece.strip()}" is not of the form name:1x3x224x224')
        if name in shapes:
            raise UsageError(f'calibration shapes: "{name}" is given twice')
        shapes[name] = tuple(int(d) for d in lengths)
    return shapes


def check_names(specs: Sequence[InputSpec], names: Iterable[str], where: str) -> None:
    """Whether data name exactly the model's inputs.

    Args:
        specs: The inputs.
        names: What the data name.
        where: Which data these are, for messages.

    Raises:
        CalibrationError: Naming the first that is unknown or missing.
    """
    wanted, given = [s.name for s in specs], list(names)
    for name in given:
        if name not in wanted:
            raise CalibrationError(f'{where}: the model has no input "{name}"; {near_misses(name, wanted)}')
    for spec in specs:
        if spec.name not in given:
            raise CalibrationError(f'{where}: no value for input "{spec.name}", which takes {spec}')


def fit(spec: InputSpec, value: Any, where: str) -> NDArray[Any]:
    """Check one value for one run against an input, and cast it where that loses nothing.

    Between float types, and between integer types, a cast is made if every element survives it; float64 becomes
    float32 in any case, because numpy makes float64 unasked. Nothing else is cast.

    Args:
        spec: The input.
        value: What the data hold for it.
        where: Which sample this is, for messages.

    Returns:
        The value as a contiguous array of exactly the input's dtype.

    Raises:
        CalibrationError: The dtype, the rank or a dim doesn't fit.
    """
    try:
        array = np.asarray(value)
    except ValueError:
        raise CalibrationError(f'{where}: input "{spec.name}" is no rectangular array, it takes {spec}') from None
    fits = spec.shape is None or (
        len(spec.shape) == array.ndim
        and all(not isinstance(d, int) or d == n for d, n in zip(spec.shape, array.shape, strict=True))
    )
    cast = _cast(array, spec.dtype)
    if cast is None or not fits:
        found = f"{array.dtype.name}[{_dims_text(array.shape)}]"
        raise CalibrationError(f'{where}: input "{spec.name}" takes {spec}, and the data hold {found}{_hint(cast)}')
    return np.asarray(cast, order="C")


def near_misses(name: str, known: Iterable[str]) -> str:
    """End of a message about an unknown name: those that are nearly it, or else all that there are."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=3)
    if near:
        return "did you mean " + " or ".join(f'"{n}"' for n in near) + "?"
    return f"it has {', '.join(names)}" if names else "it has none"


def _spec(name: str, declared: ValueType, chosen: Sequence[int] | None) -> InputSpec:
    if declared.kind != "tensor" or declared.elem_type == TensorProto.UNDEFINED:
        raise UnsupportedError(
            f'input "{name}" is a {declared}: onnxq calibrates models whose inputs are typed tensors'
        )
    dtype = helper.tensor_dtype_to_np_dtype(declared.elem_type)
    shape = None if declared.shape is None else tuple(_known(d) for d in declared.shape)
    spec = InputSpec(name, dtype, shape)
    if chosen is None:
        return spec
    if any(n < 1 for n in chosen):
        raise UsageError(f'calibration shapes: input "{name}" has dims below 1: {list(chosen)}')
    if shape is not None and len(shape) != len(chosen):
        raise UsageError(f'calibration shapes: input "{name}" takes {spec}, of {len(shape)} dims, not {len(chosen)}')
    if any(isinstance(d, int) and d != n for d, n in zip(shape or (), chosen, strict=False)):
        raise UsageError(f'calibration shapes: input "{name}" takes {spec}, which {list(chosen)} contradicts')
    return InputSpec(name, dtype, tuple(chosen))


def _known(dim: Dim) -> Dim:
    return None if isinstance(dim, int) and dim <= 0 else dim


def _cast(array: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any] | None:
    """The array in another dtype if no element changes by it (see `fit`); else None."""
    if array.dtype == dtype:
        return array
    if dtype == np.object_:
        return array.astype(dtype) if array.dtype.kind in "UT" else None
    if _family(array.dtype) != _family(dtype) or not _family(dtype):
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        cast = array.astype(dtype)
        if array.dtype.type is np.float64 and dtype.type is np.float32:
            same = np.array_equal(np.isfinite(array), np.isfinite(cast))
        else:
            same = np.array_equal(array, cast.astype(array.dtype), equal_nan=_family(dtype) == "float")
    return cast if same else None


def _family(dtype: np.dtype[Any]) -> str:
    if dtype.kind in "iu":
        return "integer"
    return "float" if dtype.kind == "f" or dtype == helper.tensor_dtype_to_np_dtype(TensorProto.BFLOAT16) else ""


def _hint(cast: NDArray[Any] | None) -> str:
    return " (convert them with astype)" if cast is None else ""


def _dims_text(shape: Sequence[Dim]) -> str:
    return ", ".join("?" if d is None else str(d) for d in shape)
