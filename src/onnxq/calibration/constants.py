"""Values of constant tensors, whatever way the model states them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import AttributeProto, ModelProto, SparseTensorProto, TensorProto, helper

from onnxq.calibration.extract import extract
from onnxq.calibration.runtime import open_session, run, serialize
from onnxq.errors import UnsupportedError
from onnxq.protos import NameSource, is_default_domain
from onnxq.tensor_data import is_large, tensor_values

_AT_ONCE = 4
"""How many constants of a large model are computed in one run, since the run holds what they are computed from."""

_Stored = TensorProto | SparseTensorProto | NDArray[Any]


class Constants(Mapping[str, NDArray[Any]]):
    """Values of constants by name, which are held as briefly as can be.

    What the model stores is read anew each time. Of what is computed only the latest run's results are held; ask for
    the names in their order, then nothing is computed twice.
    """

    def __init__(self, model: ModelProto, names: Sequence[str], stored: Mapping[str, _Stored]) -> None:
        self._model = model
        self._names = tuple(names)
        self._stored = stored
        computed = [name for name in names if name not in stored]
        step = _AT_ONCE if is_large(model) else max(len(computed), 1)
        runs = [computed[start : start + step] for start in range(0, len(computed), step)]
        self._runs = {name: run for run in runs for name in run}
        self._latest = _compute(model, runs[0]) if runs else {}

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name in self._runs:
            if name not in self._latest:
                self._latest = _compute(self._model, self._runs[name])
            return self._latest[name]
        found = self._stored[name]
        if isinstance(found, TensorProto):
            return tensor_values(found)
        return _dense(found) if isinstance(found, SparseTensorProto) else found

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def evaluate_constants(model: ModelProto, names: Sequence[str]) -> Constants:
    """Values of tensors that don't depend on the graph's inputs.

    Initializers and Constant nodes are read as they stand. What is computed from them (a Transpose of a weight, a
    ConstantOfShape, a Cast from float16) is computed by the runtime, all in one run of only these nodes; if the model
    is large, in a run for each few, when they are asked for.

    Args:
        model: Topologically sorted, complete in memory.
        names: Constant tensors of the main graph. Initializers that are listed among the inputs count as constants.

    Returns:
        Tensor name -> value, in the order asked for. bfloat16 comes as `ml_dtypes.bfloat16`. It refers to the model,
        which must not change before the values were read.

    Raises:
        ValueError: A name is unknown, or depends on a graph input.
        UnsupportedError: A constant is no tensor.
        CalibrationError: The runtime can't compute one.
    """
    wanted = set(names)
    found: dict[str, _Stored] = {t.name: t for t in model.graph.initializer if t.name in wanted}
    found.update((t.values.name, t) for t in model.graph.sparse_initializer if t.values.name in wanted)
    for node in model.graph.node:
        if node.op_type == "Constant" and is_default_domain(node) and node.output[0] in wanted:
            value = _constant_value(node.attribute[0])
            if value is not None:
                found[node.output[0]] = value
    return Constants(model, tuple(dict.fromkeys(names)), found)


def _constant_value(attribute: AttributeProto) -> _Stored | None:
    """Value of a Constant node's attribute; None for strings, which nothing here needs fast."""
    value = helper.get_attribute_value(attribute)
    match attribute.name:
        case "value" | "sparse_value":
            stored: _Stored = value
            return stored
        case "value_float" | "value_floats":
            return np.asarray(value, dtype=np.float32)
        case "value_int" | "value_ints":
            return np.asarray(value, dtype=np.int64)
        case _:
            return None


def _dense(sparse: SparseTensorProto) -> NDArray[Any]:
    """A sparse tensor written out; its indices are flat positions, or one coordinate tuple a value."""
    values, indices = tensor_values(sparse.values), tensor_values(sparse.indices)
    dense = np.zeros(tuple(sparse.dims), values.dtype)
    dense[np.unravel_index(indices, dense.shape) if indices.ndim == 1 else tuple(indices.T)] = values
    return dense


def _compute(model: ModelProto, names: Sequence[str]) -> dict[str, NDArray[Any]]:
    part = extract(model, names)
    if part.graph.input:
        raise ValueError(
            f'{list(names)}: not all constant, input "{part.graph.input[0].name}" is among their ancestors'
        )
    session = open_session(serialize(part))
    types = [o.type for o in session.runtime.get_outputs()]
    for name, kind in zip(names, types, strict=True):
        if not kind.startswith("tensor("):
            raise UnsupportedError(f'constant "{name}" is a {kind}, and only tensors are evaluated')
    narrow = [position for position, kind in enumerate(types) if kind == "tensor(bfloat16)"]
    if narrow:
        _widen(part, narrow)
        session = open_session(serialize(part))
    values = run(session, {}, "the constants")
    for position in narrow:
        values[position] = values[position].astype(helper.tensor_dtype_to_np_dtype(TensorProto.BFLOAT16))
    return dict(zip(names, values, strict=True))


def _widen(part: ModelProto, outputs: Sequence[int]) -> None:
    """Let some outputs pass a Cast to float: the runtime can't hand out bfloat16. No value changes."""
    fresh = NameSource(part).fresh
    for position in outputs:
        name = part.graph.output[position].name
        wide = fresh(f"{name}_float")
        part.graph.node.append(helper.make_node("Cast", [name], [wide], to=TensorProto.FLOAT))
        part.graph.output[position].CopyFrom(onnx.ValueInfoProto(name=wide))
