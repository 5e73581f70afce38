"""Filling what ONNX's shape inference left open in a model, so that a second run can go on from there."""

from __future__ import annotations

from collections import ChainMap
from dataclasses import dataclass, field

import onnx
from onnx import GraphProto, NodeProto, TensorProto, TypeProto, ValueInfoProto

from onnxq.protos import bodies, describe
from onnxq.shapes.graphs import body_place, declared_types, free_names, has_shape, is_typed, passed_in, without_shape
from onnxq.shapes.ranks import Shape, implied_shape, is_sized
from onnxq.shapes.schema_types import input_types, output_types, refusal
from onnxq.shapes.schemas import Operators
from onnxq.tensor_types import value_type


@dataclass(slots=True)
class Gaps:
    """What was open.

    Attributes:
        filled: How many values got a type, or a better shape, that they lacked.
        notes: One line for each node where shape inference gave up though its inputs had types.
    """

    filled: int = 0
    notes: list[str] = field(default_factory=list)


def fill_gaps(graph: GraphProto, operators: Operators) -> Gaps:
    """Type every value of an inferred graph that has none, bodies included.

    Args:
        graph: Sorted, as shape inference left it. Types are added to its `value_info` and outputs.
        operators: The operators of the model that the graph belongs to.

    Returns:
        What was filled, and where shape inference had given up.
    """
    gaps = Gaps()
    _fill_forward(_Scope(graph, ChainMap(), gaps, operators), "")
    return gaps


def fill_from_readers(graph: GraphProto, operators: Operators) -> None:
    """Type the outputs of custom operators by what their readers' schemas demand, last reader first.

    Args:
        graph: Like `fill_gaps`, and filled by it as far as it goes.
        operators: The operators of the model that the graph belongs to.
    """
    _fill_backward(_Scope(graph, ChainMap(), Gaps(), operators))


class _Scope:
    """A graph with the types that are known in it; recording a type writes it into the graph."""

    def __init__(self, graph: GraphProto, outer: ChainMap[str, TypeProto], gaps: Gaps, operators: Operators) -> None:
        self.graph = graph
        self.known = outer.new_child(declared_types(graph))
        self.gaps = gaps
        self.operators = operators
        self._complete = {value.name for value in (*graph.output, *graph.value_info) if has_shape(value.type)}
        self._outputs = {value.name: value for value in graph.output}
        self._entries = {value.name: value for value in graph.value_info}

    def inside(self, body: GraphProto) -> _Scope:
        return _Scope(body, self.known, self.gaps, self.operators)

    def is_settled(self, node: NodeProto) -> bool:
        """Whether there is nothing to find out about a node without bodies: most nodes of most models."""
        return not is_sized(node) and all(name in self._complete for name in node.output if name)

    def lacks(self, name: str) -> bool:
        return bool(name) and not is_typed(self.known.get(name))

    def has_shape(self, name: str) -> bool:
        return name in self.known and has_shape(self.known[name])

    def record(self, name: str, proto: TypeProto) -> None:
        self.known[name] = proto
        self.gaps.filled += 1
        if name not in self._entries:
            self._entries[name] = self.graph.value_info.add(name=name)
        self._entries[name].type.CopyFrom(proto)
        if name in self._outputs:
            self._outputs[name].type.CopyFrom(proto)


def _fill_forward(scope: _Scope, place: str) -> None:
    for node in scope.graph.node:
        for attribute, body in bodies(node):
            _type_body_inputs(node, attribute, body, scope)
            _fill_forward(scope.inside(body), body_place(node, attribute, place))
        if scope.is_settled(node):
            continue
        missing = [name for name in node.output if scope.lacks(name)]
        if missing:
            _note(node, missing, scope, place)
            types = output_types(node, scope.known, scope.operators)
            for name in missing:
                if is_typed(types.get(name)):
                    scope.record(name, types[name])
        _improve_shapes(node, scope)
        if all(scope.has_shape(name) for name in node.input if name):
            shapeless = [name for name in node.output if name and not scope.has_shape(name)]
            types = output_types(node, scope.known, scope.operators) if shapeless else {}
            for name in shapeless:
                if name in types and has_shape(types[name]):
                    scope.record(name, types[name])


def _fill_backward(scope: _Scope) -> None:
    made = {name for node in scope.graph.node for name in node.output if name}
    for node in reversed(scope.graph.node):
        for _, body in bodies(node):
            _fill_backward(scope.inside(body))
        for name, proto in input_types(node, scope.known, scope.operators).items():
            if name in made and scope.lacks(name):
                scope.record(name, proto)


def _note(node: NodeProto, missing: list[str], scope: _Scope, place: str) -> None:
    gave_up = len(missing) == sum(1 for name in node.output if name)
    if gave_up and not scope.operators.is_opaque(node) and not any(scope.lacks(name) for name in free_names(node)):
        data = {tensor.name: tensor for tensor in scope.graph.initializer if tensor.name in node.input}
        reason = refusal(node, scope.known, data, scope.operators)
        text = f"shape inference gave up at {describe(node)}{place}"
        scope.gaps.notes.append(f"{text}: {reason}" if reason else text)


def _type_body_inputs(node: NodeProto, attribute: str, body: GraphProto, scope: _Scope) -> None:
    """Formal inputs of Loop and Scan bodies have the types of what the node passes in."""
    for index, (value, actual) in enumerate(zip(body.input, passed_in(node, attribute, body), strict=False)):
        if is_typed(value.type):
            continue
        if actual is None:
            own = TensorProto.BOOL if index else TensorProto.INT64
            _set_type(value, onnx.helper.make_tensor_type_proto(own, None), scope)
        elif not scope.lacks(actual) and actual:
            _set_type(value, without_shape(scope.known[actual]), scope)


def _set_type(value: ValueInfoProto, proto: TypeProto, scope: _Scope) -> None:
    value.type.CopyFrom(proto)
    scope.gaps.filled += 1


def _improve_shapes(node: NodeProto, scope: _Scope) -> None:
    if not is_sized(node):
        return
    inputs = [value_type(scope.known[name]) if name in scope.known else None for name in node.input]
    shape = implied_shape(node, inputs)
    if shape is None:
        return
    for name in node.output:
        if not name or scope.lacks(name):
            continue
        current = value_type(scope.known[name])
        better = _filled(current.shape, shape)
        if better != current.shape:
            scope.record(name, onnx.helper.make_tensor_type_proto(current.elem_type, better))


def _filled(shape: Shape | None, implied: Shape) -> Shape:
    if shape is None:
        return implied
    if len(shape) != len(implied):
        return shape
    # A symbol may be one that the inference made up, an implied number or symbol never is less.
    return tuple(
        ours if isinstance(ours, int) or theirs is None else theirs for ours, theirs in zip(shape, implied, strict=True)
    )
