"""Values of constant tensors, whatever way the model states them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import AttributeProto, GraphProto, ModelProto, SparseTensorProto, TensorProto, helper

from onnxq.calibration.extract import extract_constants
from onnxq.calibration.runtime import open_session, run, serialize
from onnxq.errors import UnsupportedError
from onnxq.protos import NameSource, is_default_domain
from onnxq.scopes import Location, locate
from onnxq.tensor_data import is_large, tensor_values

_AT_ONCE = 4
"""How many constants of a large model are computed in one run, since the run holds what they are computed from."""

_Stored = TensorProto | SparseTensorProto | NDArray[Any]


class Constants(Mapping[str, NDArray[Any]]):
    """Values of constants by name, which are held as briefly as can be.

    What the model stores is read anew each time. Of what is computed only the latest run's results are held; ask for
    the names in their order, then nothing is computed twice.
    """

    def __init__(
        self, model: ModelProto, located: Mapping[str, Location], names: Sequence[str], stored: Mapping[str, _Stored]
    ) -> None:
        self._model = model
        self._located = located
        self._names = tuple(names)
        self._stored = stored
        computed = [name for name in names if name not in stored]
        by_graph: dict[str, list[str]] = {}
        for name in computed:
            by_graph.setdefault(located[name].site.path, []).append(name)
        step = _AT_ONCE if is_large(model) else max(len(computed), 1)
        runs = [
            of_graph[start : start + step] for of_graph in by_graph.values() for start in range(0, len(of_graph), step)
        ]
        self._runs = {name: run for run in runs for name in run}
        self._latest = self._compute(runs[0]) if runs else {}

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name in self._runs:
            if name not in self._latest:
                self._latest = self._compute(self._runs[name])
            return self._latest[name]
        found = self._stored[name]
        if isinstance(found, TensorProto):
            return tensor_values(found)
        return _dense(found) if isinstance(found, SparseTensorProto) else found

    def _compute(self, keys: Sequence[str]) -> dict[str, NDArray[Any]]:
        """Values of constants that one graph sees."""
        names = [self._located[key].name for key in keys]
        part = extract_constants(self._model, self._located[keys[0]].site, names)
        return dict(zip(keys, _compute(part, names), strict=True))

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
        names: Keys of constant tensors (see `onnxq.scopes`): in the main graph their names. What a body captures has a
            value there too. Initializers that are listed among the inputs count as constants.

    Returns:
        Key -> value, in the order asked for. bfloat16 comes as `ml_dtypes.bfloat16`. It refers to the model,
        which must not change before the values were read.

    Raises:
        ValueError: A key is unknown, or its tensor depends on an input of a graph.
        UnsupportedError: A constant is no tensor.
        CalibrationError: The runtime can't compute one.
    """
    located = locate(model, names)
    for name in names:
        if name not in located:
            raise ValueError(f'"{name}" is no tensor of the model')
    return Constants(model, located, tuple(dict.fromkeys(names)), dict(_stored(located)))


def _stored(located: Mapping[str, Location]) -> Iterator[tuple[str, _Stored]]:
    """Key and value of those that are stored as they stand, in their own graph or in one around."""
    keys: dict[tuple[str, str], list[str]] = {}
    for key, location in located.items():
        for path in location.site.paths:
            keys.setdefault((path, location.name), []).append(key)
    graphs = {p: g for found in located.values() for p, g in zip(found.site.paths, found.site.graphs, strict=True)}
    for path, graph in graphs.items():
        for name, value in _stored_in(graph):
            for key in keys.get((path, name), ()):
                yield key, value


def _stored_in(graph: GraphProto) -> Iterator[tuple[str, _Stored]]:
    yield from ((tensor.name, tensor) for tensor in graph.initializer)
    yield from ((sparse.values.name, sparse) for sparse in graph.sparse_initializer)
    for node in graph.node:
        if node.op_type == "Constant" and is_default_domain(node):
            value = _constant_value(node.attribute[0])
            if value is not None:
                yield node.output[0], value


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


def _compute(part: ModelProto, names: Sequence[str]) -> list[NDArray[Any]]:
    """Run a part of a model that has no inputs."""
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
    return values


def _widen(part: ModelProto, outputs: Sequence[int]) -> None:
    """Let some outputs pass a Cast to float: the runtime can't hand out bfloat16. No value changes."""
    fresh = NameSource(part).fresh
    for position in outputs:
        name = part.graph.output[position].name
        wide = fresh(f"{name}_float")
        part.graph.node.append(helper.make_node("Cast", [name], [wide], to=TensorProto.FLOAT))
        part.graph.output[position].CopyFrom(onnx.ValueInfoProto(name=wide))
