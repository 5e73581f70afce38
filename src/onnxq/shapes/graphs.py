"""Which values a graph defines and captures, and how messages name places inside bodies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from onnx import GraphProto, NodeProto, TypeProto

from onnxq.protos import bodies, describe

STANDARD_DOMAINS = frozenset({"", "ai.onnx", "ai.onnx.ml", "ai.onnx.training", "ai.onnx.preview.training"})
TRIP_INPUTS = 2
"""Inputs of Loop before the carried values: trip count and condition. Its body has as many of its own."""


def walk(graph: GraphProto, place: str = "") -> Iterator[tuple[GraphProto, str]]:
    """The graph and all bodies below it, outer before inner, each with the text that says where it is."""
    yield graph, place
    for node in graph.node:
        for name, body in bodies(node):
            yield from walk(body, body_place(node, name, place))


def body_place(node: NodeProto, attribute: str, place: str = "") -> str:
    """The text that follows a tensor or node of a body in a message."""
    return f" in {attribute} of {describe(node)}{place}"


def free_names(node: NodeProto) -> dict[str, None]:
    """Every tensor that a node reads: its inputs, and what its bodies capture. In order, without repeats."""
    names = {name: None for name in node.input if name}
    for _, body in bodies(node):
        names.update(captured_names(body))
    return names


def captured_names(body: GraphProto) -> dict[str, None]:
    """Every tensor of outer graphs that a body reads."""
    own = defined_names(body)
    read = {name: None for node in body.node for name in free_names(node)}
    read.update({value.name: None for value in body.output})
    return {name: None for name in read if name not in own}


def defined_names(graph: GraphProto) -> dict[str, None]:
    """Every value that this graph itself defines: inputs, initializers, node outputs."""
    names = {value.name: None for value in graph.input}
    names.update({tensor.name: None for tensor in graph.initializer})
    names.update({tensor.values.name: None for tensor in graph.sparse_initializer})
    names.update({name: None for node in graph.node for name in node.output if name})
    return names


def declared_types(graph: GraphProto) -> dict[str, TypeProto]:
    """Types of the graph's own values as they stand in it; those of initializers come from their tensors."""
    types = {v.name: v.type for v in (*graph.output, *graph.value_info, *graph.input) if is_typed(v.type)}
    types.update(constant_types(graph))
    return types


def constant_types(graph: GraphProto) -> dict[str, TypeProto]:
    """Types of the graph's initializers."""
    tensors = [(t.name, t.data_type, t.dims) for t in graph.initializer]
    tensors += [(t.values.name, t.values.data_type, t.dims) for t in graph.sparse_initializer]
    return {name: _tensor_type(data_type, dims) for name, data_type, dims in tensors}


def _tensor_type(elem_type: int, dims: Iterable[int]) -> TypeProto:
    """Like onnx's own helper, several times faster: models hold more initializers than anything else."""
    proto = TypeProto()
    proto.tensor_type.elem_type = elem_type
    shape = proto.tensor_type.shape
    shape.SetInParent()  # a scalar has a shape, too
    for size in dims:
        shape.dim.add(dim_value=size)
    return proto


def is_typed(proto: TypeProto | None) -> bool:
    """Whether a type says at least what kind of value it is, and of a tensor its element type."""
    if proto is None:
        return False
    kind = proto.WhichOneof("value")
    return kind is not None and (kind != "tensor_type" or proto.tensor_type.elem_type != 0)


def has_shape(proto: TypeProto) -> bool:
    """Whether a type tells the rank, or is of a kind that has none."""
    return is_typed(proto) and (not proto.HasField("tensor_type") or proto.tensor_type.HasField("shape"))


def without_shape(proto: TypeProto) -> TypeProto:
    """A copy of a type that says nothing of the shape."""
    bare = TypeProto()
    bare.CopyFrom(proto)
    if bare.HasField("tensor_type"):
        bare.tensor_type.ClearField("shape")
    return bare


def passed_in(node: NodeProto, attribute: str, body: GraphProto) -> list[str | None]:
    """What a node passes for each formal input of its body; None for Loop's own counter and condition."""
    if node.op_type == "Loop" and attribute == "body":
        return [None, None, *node.input[TRIP_INPUTS:]]
    if node.op_type == "Scan" and attribute == "body":
        # Scan of opset 8 has its sequence lengths first.
        return list(node.input[len(node.input) - len(body.input) :])
    return []
