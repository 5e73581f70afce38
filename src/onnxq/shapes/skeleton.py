"""Models without what shape inference doesn't need, or shouldn't see.

A skeleton lacks the payload of large tensors and everything that somebody declared about values that operators make.
So stale declarations can't mislead, and models of any size can be inferred in memory.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from math import prod

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from onnxq.graph import constant_node_value
from onnxq.protos import bodies, is_default_domain
from onnxq.shapes.graphs import TRIP_INPUTS, captured_names, is_typed
from onnxq.shapes.schemas import Operators

SMALL = 1024
"""Initializers with more elements lose their payload: nobody computes a shape from them."""

IR_WITHOUT_INITIALIZER_INPUTS = 4
"""From this IR version on an initializer needn't be listed among the inputs."""


def make_skeleton(model: ModelProto, operators: Operators) -> ModelProto:
    """The model as shape inference shall see it; see the module's text."""
    skeleton = ModelProto(ir_version=max(model.ir_version, IR_WITHOUT_INITIALIZER_INPUTS))
    skeleton.opset_import.extend(model.opset_import)
    skeleton.functions.extend(model.functions)
    skeleton.graph.CopyFrom(_skeleton_graph(model.graph, operators))
    return skeleton


def _skeleton_graph(
    graph: GraphProto, operators: Operators, outer: Mapping[str, TensorProto] | None = None, owner: str = ""
) -> GraphProto:
    """The skeleton of one graph; of a body if `outer` (the small constants of the graphs around it) is given.

    `owner` is the op type of the node that holds the body.
    """
    bones = GraphProto(name=graph.name)
    bones.initializer.extend(_skeleton_tensor(tensor) for tensor in graph.initializer)
    bones.sparse_initializer.extend(graph.sparse_initializer)
    if outer is not None:
        # ONNX's inference doesn't look up the data of captured constants: give the body its own.
        bones.initializer.extend(outer[name] for name in captured_names(graph) if name in outer)
    constants = {**(outer or {}), **_small_constants(graph, outer or {})}
    for node in graph.node:
        light_bodies = {name: _skeleton_graph(body, operators, constants, node.op_type) for name, body in bodies(node)}
        bones.node.append(_transparent(node, constants) or _light_node(node, light_bodies))
    with_default = {tensor.name for tensor in graph.initializer}
    for position, value in enumerate(graph.input):
        if owner == "Loop" and position < TRIP_INPUTS:
            bones.input.append(_trip_input(value, position))
        elif value.name not in with_default:
            bones.input.append(_known_dims_only(value) if outer is None else ValueInfoProto(name=value.name))
    bones.output.extend(ValueInfoProto(name=value.name) for value in graph.output)
    opaque = {name for node in graph.node if operators.is_opaque(node) for name in node.output}
    declared = {value.name: value for value in (*graph.value_info, *graph.output) if is_typed(value.type)}
    bones.value_info.extend(_known_dims_only(value) for name, value in declared.items() if name in opaque)
    return bones


def _trip_input(value: ValueInfoProto, position: int) -> ValueInfoProto:
    """The counter or condition of a Loop: a scalar, unless the body declares one element. No other node knows that."""
    shape = value.type.tensor_type.shape.dim
    elem_type = TensorProto.BOOL if position else TensorProto.INT64
    return helper.make_tensor_value_info(value.name, elem_type, [1] if len(shape) == 1 else [])


def _transparent(node: NodeProto, constants: Mapping[str, TensorProto]) -> NodeProto | None:
    """A Constant in place of the Identity of one: ONNX's inference doesn't look through it for data."""
    if not _is_identity(node) or node.input[0] not in constants:
        return None
    return helper.make_node("Constant", [], node.output, name=node.name, value=constants[node.input[0]])


def _is_identity(node: NodeProto) -> bool:
    return node.op_type == "Identity" and is_default_domain(node) and len(node.input) == len(node.output) == 1


def _small_constants(graph: GraphProto, outer: Mapping[str, TensorProto]) -> dict[str, TensorProto]:
    """The graph's own constants by name, Identities of its own and of outer ones included."""
    found = {tensor.name: tensor for tensor in graph.initializer if _is_small(tensor)}
    known = ChainMap(found, dict(outer))
    for node in graph.node:
        tensor = known.get(node.input[0]) if _is_identity(node) else _constant_tensor(node)
        if tensor is not None and _is_small(tensor):
            found[node.output[0]] = TensorProto()
            found[node.output[0]].CopyFrom(tensor)
            found[node.output[0]].name = node.output[0]
    return found


def _constant_tensor(node: NodeProto) -> TensorProto | None:
    """What a Constant node yields; None for strings, sparse values, and other nodes."""
    if node.op_type != "Constant" or not is_default_domain(node) or not node.attribute:
        return None
    if node.attribute[0].name == "value":
        return node.attribute[0].t
    value = constant_node_value(node)
    return None if value is None or value.dtype == object else numpy_helper.from_array(value)


def _skeleton_tensor(tensor: TensorProto) -> TensorProto:
    if _is_small(tensor):
        return tensor
    return TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)


def _is_small(tensor: TensorProto) -> bool:
    return prod(tensor.dims) <= SMALL and tensor.data_location != TensorProto.EXTERNAL


def _known_dims_only(value: ValueInfoProto) -> ValueInfoProto:
    """A copy in which 0 and negative numbers are unknown dims: exporters write them for dynamic ones."""
    copy = ValueInfoProto(name=value.name)
    copy.type.CopyFrom(value.type)
    for dim in copy.type.tensor_type.shape.dim if copy.type.HasField("tensor_type") else ():
        if dim.HasField("dim_value") and dim.dim_value <= 0:
            dim.Clear()
    return copy


def without_payload(graph: GraphProto) -> GraphProto:
    """A copy of a graph that lacks the payload of large tensors and no declarations.

    Args:
        graph: Not changed, and its large tensors aren't copied on the way.

    Returns:
        The copy, bodies included.
    """
    light = GraphProto(name=graph.name)
    for field, value in graph.ListFields():
        if field.name not in ("node", "initializer"):
            light.MergeFrom(GraphProto(**{field.name: value}))
    light.initializer.extend(_skeleton_tensor(tensor) for tensor in graph.initializer)
    for node in graph.node:
        light.node.append(_light_node(node, {name: without_payload(body) for name, body in bodies(node)}))
    return light


def _light_node(node: NodeProto, light_bodies: Mapping[str, GraphProto]) -> NodeProto:
    if not any(attribute.type in (AttributeProto.GRAPH, AttributeProto.TENSOR) for attribute in node.attribute):
        return node
    light = NodeProto()
    for field, value in node.ListFields():
        if field.name != "attribute":
            light.MergeFrom(NodeProto(**{field.name: value}))
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            light.attribute.add(name=attribute.name, type=attribute.type, g=light_bodies[attribute.name])
        elif attribute.type == AttributeProto.TENSOR:
            light.attribute.add(name=attribute.name, type=attribute.type, t=_skeleton_tensor(attribute.t))
        else:
            light.attribute.append(attribute)
    return light
