"""Ways to make a model's metadata worse without changing what it computes, one function each.

Exporters do all of these. Some add a side branch with an output of its own; what was there before stays as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

import numpy as np
from onnx import AttributeProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from onnxq.protos import NameSource

OPAQUE_DOMAIN = "onnxq.opaque"
"""Domain of an operator that nobody knows."""

Weakness = Callable[[ModelProto], None]
"""Changes a model in place."""


def _no_value_info(model: ModelProto) -> None:
    del model.graph.value_info[:]


def _stale_value_info(model: ModelProto) -> None:
    """Every second result is declared as an int32 of rank 3, and so is a tensor that isn't there."""
    public = {value.name for value in (*model.graph.input, *model.graph.output)}
    names = [name for node in model.graph.node for name in node.output if name and name not in public]
    _no_value_info(model)
    for name in (*names[::2], NameSource(model).fresh("removed")):
        model.graph.value_info.append(helper.make_tensor_value_info(name, TensorProto.INT32, [1, 2, 3]))


def _rank_0_outputs(model: ModelProto) -> None:
    for value in _tensors(model):
        value.type.tensor_type.shape.Clear()
        value.type.tensor_type.shape.SetInParent()


def _wrong_rank_outputs(model: ModelProto) -> None:
    for value in _tensors(model):
        value.type.tensor_type.shape.dim.add(dim_value=7)


def _wrong_dims(model: ModelProto) -> None:
    for value in _tensors(model):
        for dim in value.type.tensor_type.shape.dim:
            dim.dim_value += 1


def _zero_dims(model: ModelProto) -> None:
    """What some exporters write for unknown dims: 0, then -1."""
    for number, value in enumerate(_tensors(model)):
        for dim in value.type.tensor_type.shape.dim:
            dim.dim_value = -(number % 2)


def _missing_dims(model: ModelProto) -> None:
    for value in _tensors(model):
        for dim in value.type.tensor_type.shape.dim:
            dim.Clear()


def _missing_shapes(model: ModelProto) -> None:
    """Outputs have an element type only, which onnx's checker refuses."""
    for value in _tensors(model):
        value.type.tensor_type.ClearField("shape")


def _unnamed_batch(model: ModelProto) -> None:
    """The first dim of every input has neither number nor symbol."""
    stored = {tensor.name for tensor in model.graph.initializer}
    for value in model.graph.input:
        if value.name not in stored and value.type.tensor_type.shape.dim:
            value.type.tensor_type.shape.dim[0].Clear()


def _wrong_types(model: ModelProto) -> None:
    """Results of Casts are declared as what the Cast reads, and an output behind a new Cast as well."""
    _no_value_info(model)
    source, name = next(_tensors(model)).name, NameSource(model).fresh
    result = name("cast_result")
    model.graph.node.append(helper.make_node("Cast", [source], [result], name=name("cast"), to=TensorProto.INT64))
    model.graph.output.append(helper.make_tensor_value_info(result, TensorProto.FLOAT, [1]))
    public = {value.name for value in model.graph.output}
    casts = [node.output[0] for node in model.graph.node if node.op_type == "Cast" and node.output[0] not in public]
    model.graph.value_info.extend(helper.make_tensor_value_info(n, TensorProto.STRING, None) for n in casts)


def _initializers_as_inputs(model: ModelProto) -> None:
    """IR version 3 wanted every initializer to be an input as well."""
    known = {value.name for value in model.graph.input}
    for tensor in model.graph.initializer:
        if tensor.name not in known:
            model.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))


def _constants_as_nodes(model: ModelProto) -> None:
    """Initializers become Constant nodes, in whichever attribute can hold them."""
    graph, public = model.graph, {value.name for value in (*model.graph.input, *model.graph.output)}
    moved = [tensor for tensor in graph.initializer if tensor.name not in public]
    kept = [tensor for tensor in graph.initializer if tensor.name in public]
    nodes = [NodeProto(op_type="Constant", output=[tensor.name]) for tensor in moved]
    for node, tensor in zip(nodes, moved, strict=True):
        node.attribute.append(_constant_attribute(tensor))
    nodes += [NodeProto.FromString(node.SerializeToString()) for node in graph.node]
    del graph.node[:]
    graph.node.extend(nodes)
    del graph.initializer[:]
    graph.initializer.extend(kept)


def _topk_computed(model: ModelProto) -> None:
    """A side branch -> TopK whose K is computed from a shape -> Cast of the indices; both outputs of wrong rank."""
    name, length, wanted = (NameSource(model).fresh(n) for n in ("topk", "topk_length", "topk_wanted"))
    graph, source = model.graph, next(_tensors(model)).name
    flat, shape = f"{name}_flat", f"{name}_shape"
    graph.initializer.extend(
        numpy_helper.from_array(np.array([value]), constant) for constant, value in ((length, -1), (wanted, 3))
    )
    graph.node.extend(
        [
            NodeProto(op_type="Reshape", input=[source, length], output=[flat]),
            NodeProto(op_type="Shape", input=[flat], output=[shape]),
            NodeProto(op_type="Min", input=[shape, wanted], output=[f"{name}_k"]),
        ]
    )
    _add_topk(model, name, flat, f"{name}_k")


def _topk_above_axis(model: ModelProto) -> None:
    """The same with a constant K that is more than there are elements, with which onnxruntime refuses the model."""
    name, k = (NameSource(model).fresh(n) for n in ("topk_above_axis", "topk_above_axis_k"))
    model.graph.initializer.append(numpy_helper.from_array(np.array([10**6]), k))
    _add_topk(model, name, next(_tensors(model)).name, k)


def _opaque_branch(model: ModelProto) -> None:
    """A side branch through an operator that nobody knows, without a declaration of what it yields."""
    name, source = NameSource(model).fresh("opaque"), next(_tensors(model)).name
    model.opset_import.add(domain=OPAQUE_DOMAIN, version=1)
    model.graph.node.extend(
        [
            NodeProto(op_type="Opaque", domain=OPAQUE_DOMAIN, input=[source], output=[f"{name}_raw"]),
            NodeProto(op_type="Relu", input=[f"{name}_raw"], output=[name]),
        ]
    )
    model.graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, []))


def _add_topk(model: ModelProto, name: str, source: str, k: str) -> None:
    cast = helper.make_node("Cast", [f"{name}_indices"], [f"{name}_numbers"], to=TensorProto.FLOAT)
    values = f"{name}_values"
    model.graph.node.extend([NodeProto(op_type="TopK", input=[source, k], output=[values, f"{name}_indices"]), cast])
    elem_type = next(_tensors(model)).type.tensor_type.elem_type
    model.graph.output.append(helper.make_tensor_value_info(values, elem_type, []))
    model.graph.output.append(helper.make_tensor_value_info(cast.output[0], TensorProto.FLOAT, [1, 1, 1, 1, 1]))


def _constant_attribute(tensor: TensorProto) -> AttributeProto:
    array = numpy_helper.to_array(tensor)
    if array.dtype == np.float32 and array.ndim == 0:
        return helper.make_attribute("value_float", float(array))
    if array.dtype == np.float32 and array.ndim == 1 and array.size:
        return helper.make_attribute("value_floats", array.tolist())
    if array.dtype == np.int64 and array.ndim == 0:
        return helper.make_attribute("value_int", int(array))
    if array.dtype == np.int64 and array.ndim == 1 and array.size:
        return helper.make_attribute("value_ints", array.tolist())
    return helper.make_attribute("value", tensor)


def _tensors(model: ModelProto) -> Iterator[ValueInfoProto]:
    return (value for value in model.graph.output if value.type.HasField("tensor_type"))


WEAKNESSES: Mapping[str, Weakness] = MappingProxyType(
    {
        "no_value_info": _no_value_info,
        "topk_computed": _topk_computed,
        "topk_above_axis": _topk_above_axis,
        "opaque_branch": _opaque_branch,
        "wrong_types": _wrong_types,
        "stale_value_info": _stale_value_info,
        "rank_0_outputs": _rank_0_outputs,
        "wrong_rank_outputs": _wrong_rank_outputs,
        "wrong_dims": _wrong_dims,
        "zero_dims": _zero_dims,
        "missing_dims": _missing_dims,
        "missing_shapes": _missing_shapes,
        "unnamed_batch": _unnamed_batch,
        "constants_as_nodes": _constants_as_nodes,
        "initializers_as_inputs": _initializers_as_inputs,
    }
)
"""Every weakness by name, the simplest first, in the order in which several are applied."""
