"""Changes to how constants are stored and what is declared, which mean nothing either; see `transforms`."""

from __future__ import annotations

from random import Random

import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from onnxq.errors import InvalidModelError
from onnxq.graph import constant_node_value
from onnxq.protos import NameSource, opset_version, raise_ir_version, walk_graphs
from onnxq.relations.variant import Variant, copy_model, replace_all
from onnxq.shapes import infer_types, prepare
from onnxq.shapes import raise_opset as convert
from onnxq.tensor_types import GraphTypes

RAISED_OPSET = 21
"""Version that models are converted to: the first whose Q/DQ take blocks and 16 bits; runtimes have long had it."""

WRONG_SHAPES = ((), (7,), (1, 3, 5, 5), ("a", "b"), (1, 1, 1, 1))


def constants_as_nodes(model: ModelProto, rng: Random) -> Variant:
    """Turn initializers into Constant nodes, all of some graphs and most of others."""
    copy = copy_model(model)
    for graph in reversed(list(walk_graphs(copy.graph))):
        fixed = {value.name for value in (*graph.input, *graph.output)}
        turned = [t for t in graph.initializer if t.name not in fixed and rng.random() < 0.8]
        nodes = [helper.make_node("Constant", [], [t.name], value=t) for t in turned]
        for node in nodes:
            node.attribute[0].t.ClearField("name")
        names = {tensor.name for tensor in turned}
        replace_all(graph.initializer, [t for t in graph.initializer if t.name not in names])
        replace_all(graph.node, [*nodes, *graph.node])
    return Variant(copy)


def constants_as_initializers(model: ModelProto, rng: Random) -> Variant:
    """Turn Constant nodes of numbers into initializers."""
    copy = copy_model(model)
    for graph in reversed(list(walk_graphs(copy.graph))):
        fixed = {value.name for value in graph.output}
        stored = {node.output[0]: tensor for node in graph.node if (tensor := _stored(node)) is not None}
        for name, tensor in stored.items():
            if name not in fixed:
                tensor.name = name
                graph.initializer.append(tensor)
        replace_all(graph.node, [n for n in graph.node if not n.output or n.output[0] not in stored.keys() - fixed])
    return Variant(copy)


def list_initializers_as_inputs(model: ModelProto, rng: Random) -> Variant:
    """List the initializers among the graph inputs, as models of IR version 3 must, in front of the true inputs."""
    copy = copy_model(model)
    listed = {value.name for value in model.graph.input}
    tensors = [t for t in model.graph.initializer if t.name not in listed]
    inputs = [helper.make_tensor_value_info(t.name, t.data_type, list(t.dims)) for t in tensors]
    replace_all(copy.graph.input, [*inputs, *copy.graph.input])
    return Variant(copy)


def raise_opset(model: ModelProto, rng: Random) -> Variant:
    """Convert to a higher opset.

    Raises:
        UnsupportedError: onnx's converter can't.
    """
    converted = copy_model(convert(model, RAISED_OPSET))
    if opset_version(converted) > opset_version(model):
        raise_ir_version(converted)
    return Variant(converted)


def declare_all(model: ModelProto, rng: Random) -> Variant:
    """Declare the types of all intermediate tensors, as onnx infers them.

    Raises:
        InvalidModelError: Other declarations contradict what it infers.
    """
    bare = drop_value_info(model, rng).model
    try:
        return Variant(onnx.shape_inference.infer_shapes(bare, data_prop=True))
    except onnx.shape_inference.InferenceError as error:
        raise InvalidModelError(f"onnx infers no shapes: {error}") from None


def drop_value_info(model: ModelProto, rng: Random) -> Variant:
    """Take all declarations of intermediate tensors away."""
    copy = copy_model(model)
    for graph in walk_graphs(copy.graph):
        del graph.value_info[:]
    return Variant(copy)


def falsify_value_info(model: ModelProto, rng: Random) -> Variant:
    """Declare wrong shapes for some intermediate tensors, and a tensor that isn't there."""
    copy = copy_model(model)
    _falsify(copy.graph, infer_types(model)[0], rng)
    removed = NameSource(model).fresh("removed")
    copy.graph.value_info.append(helper.make_tensor_value_info(removed, TensorProto.FLOAT, [1, 2, 3]))
    return Variant(copy)


def prepared(model: ModelProto, rng: Random) -> Variant:
    """Prepare it, as onnxq does with each model first: unique node names, stale declarations corrected.

    Raises:
        InvalidModelError: It contradicts itself.
    """
    return Variant(prepare(model).model)


def _falsify(graph: GraphProto, types: GraphTypes, rng: Random) -> None:
    outputs = {value.name for value in graph.output}
    del graph.value_info[:]
    for node in graph.node:
        for name in node.output:
            kind = types.tensors.get(name)
            if kind is not None and kind.is_float and name not in outputs and rng.random() < 0.5:
                shape = rng.choice(WRONG_SHAPES)
                graph.value_info.append(helper.make_tensor_value_info(name, kind.elem_type, shape))
    for position, node in enumerate(graph.node):
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _falsify(attribute.g, types.bodies.get((position, attribute.name), GraphTypes()), rng)


def _stored(node: NodeProto) -> TensorProto | None:
    """What a Constant node holds, as a tensor; None for text, sparse values and other nodes."""
    value = constant_node_value(node) if node.op_type == "Constant" else None
    if value is None or value.dtype == object:
        return None
    if node.attribute[0].name == "value":
        tensor = TensorProto()
        tensor.CopyFrom(node.attribute[0].t)
        return tensor
    return numpy_helper.from_array(value)
