"""Types and shapes of all values, from the operators alone (rule S6).

The chain, best first: ONNX's shape inference with data propagation, on a skeleton of the model; then types from
the schemas for what that left open, and the shape inference again, so that shapes come back downstream of a gap.
onnxruntime's symbolic inference isn't part of it: it would add shapes in a few cases of computed Slice and Reshape
arguments only, for a dependency (sympy) and exceptions of every kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import onnx
from onnx import GraphProto, ModelProto, TypeProto

from onnxq.protos import bodies
from onnxq.shapes.gaps import fill_from_readers, fill_gaps
from onnxq.shapes.graphs import constant_types, is_typed, walk, without_shape
from onnxq.shapes.loops import settle_loops
from onnxq.shapes.schemas import Operators
from onnxq.shapes.skeleton import make_skeleton
from onnxq.tensor_types import GraphTypes, value_type


@dataclass(frozen=True, slots=True)
class Inferred:
    """What the operators imply for the values of one graph and of the bodies below it.

    Attributes:
        types: Value name -> its type; a value that couldn't be typed is missing. Dims are positive numbers, zeros that
            are really so, symbols of the model's own inputs, or empty.
        bodies: (position of the node, attribute name) -> the same for a body.
    """

    types: Mapping[str, TypeProto] = field(default_factory=dict)
    bodies: Mapping[tuple[int, str], Inferred] = field(default_factory=dict)


def infer_types(model: ModelProto) -> tuple[GraphTypes, tuple[str, ...]]:
    """Infer the types of all values, with shapes as far as the operators imply them.

    Args:
        model: Sorted and valid otherwise; what it declares of inner values and outputs isn't looked at, but for the
            outputs of custom operators. Not changed.

    Returns:
        The types, and notes on what couldn't be inferred.
    """
    inferred, notes = infer(model)
    return graph_types(inferred), notes


def graph_types(inferred: Inferred) -> GraphTypes:
    """The same as plain data."""
    return GraphTypes(
        {name: value_type(proto) for name, proto in inferred.types.items()},
        {key: graph_types(body) for key, body in inferred.bodies.items()},
    )


def infer(model: ModelProto) -> tuple[Inferred, tuple[str, ...]]:
    """Like `infer_types`, but with protobuf types, which keep what sequences and optionals hold."""
    operators = Operators(model)
    skeleton = make_skeleton(model, operators)
    notes: dict[str, None] = {}

    def chain(bones: ModelProto) -> ModelProto:
        return _chain(bones, operators, notes)

    symbols = frozenset(symbol for graph, _ in walk(skeleton.graph) for symbol in _symbols(graph))
    result = settle_loops(skeleton, chain(skeleton), symbols, chain)
    if not _is_complete(result.graph):
        _adopt_declared_types(result.graph, model.graph)
        fill_from_readers(result.graph, operators)
        result = chain(result)
    return _collect(result.graph, model.graph, symbols), tuple(notes)


def _chain(skeleton: ModelProto, operators: Operators, notes: dict[str, None]) -> ModelProto:
    result = _library_inference(skeleton, notes)
    gaps = fill_gaps(result.graph, operators)
    notes.update(dict.fromkeys(gaps.notes))
    if gaps.filled:
        result = _library_inference(result, notes)
        fill_gaps(result.graph, operators)
    return result


def _library_inference(model: ModelProto, notes: dict[str, None]) -> ModelProto:
    reason = ""
    for data_prop in (True, False):
        try:
            return onnx.shape_inference.infer_shapes(model, check_type=False, strict_mode=False, data_prop=data_prop)
        except Exception as error:  # the library raises several unrelated types, on valid models too
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    notes[f"shape inference failed, only types are known: {reason}"] = None
    copy = ModelProto()
    copy.CopyFrom(model)
    return copy


def _symbols(graph: GraphProto) -> set[str]:
    types = (value.type for value in (*graph.input, *graph.value_info))
    dims = (dim for proto in types if proto.HasField("tensor_type") for dim in proto.tensor_type.shape.dim)
    return {dim.dim_param for dim in dims if dim.dim_param}


def _is_complete(graph: GraphProto) -> bool:
    for part, _ in walk(graph):
        typed = {value.name for value in (*part.value_info, *part.output) if is_typed(value.type)}
        if any(name and name not in typed for node in part.node for name in node.output):
            return False
    return True


def _adopt_declared_types(result: GraphProto, declared: GraphProto) -> None:
    """Where operators say nothing, a declared element type is better than none."""
    typed = {value.name for value in (*result.value_info, *result.output) if is_typed(value.type)}
    made = {name for node in result.node for name in node.output if name}
    for value in (*declared.value_info, *declared.output):
        if value.name in made - typed and is_typed(value.type):
            result.value_info.add(name=value.name).type.CopyFrom(without_shape(value.type))
            typed.add(value.name)
    for node, original in zip(result.node, declared.node, strict=True):
        for (_, body), (_, origin) in zip(bodies(node), bodies(original), strict=True):
            _adopt_declared_types(body, origin)


def _collect(result: GraphProto, model_graph: GraphProto, symbols: frozenset[str]) -> Inferred:
    types: dict[str, TypeProto] = {}
    for value in (*result.output, *result.value_info, *result.input):
        if is_typed(value.type):
            types[value.name] = _own_symbols_only(value.type, symbols)
    types.update(constant_types(model_graph))
    below = {}
    for index, (node, original) in enumerate(zip(result.node, model_graph.node, strict=True)):
        for (attribute, body), (_, origin) in zip(bodies(node), bodies(original), strict=True):
            below[index, attribute] = _collect(body, origin, symbols)
    return Inferred(types, below)


def _own_symbols_only(proto: TypeProto, symbols: frozenset[str]) -> TypeProto:
    """The type without negative dims and without symbols that the inference made up; itself where it has none."""
    dims = proto.tensor_type.shape.dim if proto.HasField("tensor_type") else ()
    foreign = [i for i, dim in enumerate(dims) if dim.dim_value < 0 or (dim.dim_param and dim.dim_param not in symbols)]
    if not foreign:
        return proto
    copy = TypeProto()
    copy.CopyFrom(proto)
    for position in foreign:
        copy.tensor_type.shape.dim[position].Clear()
    return copy
