"""Changes to a model that must not change which of its edges are quantized.

Each is a pure function of a model and a source of randomness. It returns the changed model and how the new tensor names
go back to the old ones, so that two placements can be compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from random import Random

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper, version_converter

from onnxq.graph.fingerprint import COMMUTATIVE
from onnxq.placement import Placement
from onnxq.protos import NameSource, bodies, walk_graphs


@dataclass(frozen=True)
class Variant:
    """A changed model, and what the tensors that have new names were called before."""

    model: ModelProto
    old_names: Mapping[str, str] = field(default_factory=dict)


Relation = Callable[[ModelProto, Random], Variant]

Edges = Counter[tuple[str, str, int | None]]
"""Quantized edges: (first output of the reader, tensor, axis of the scales), with their number."""


def quantized_edges(placement: Placement, old_names: Mapping[str, str] | None = None) -> Edges:
    """The quantized edges in a form that doesn't depend on names that were changed, nor on order."""
    old = old_names or {}
    labels = ((placement.labels[edge], placement[edge].axis) for edge in placement.quantized)
    return Counter((old.get(at.output, at.output), old.get(at.tensor, at.tensor), axis) for at, axis in labels)


def swap_operands(model: ModelProto, rng: Random) -> Variant:
    """Shuffle the operands of commutative ops."""
    copy = _copy(model)
    for node in copy.graph.node:
        if node.op_type in COMMUTATIVE:
            operands = list(node.input)
            rng.shuffle(operands)
            node.input[:] = operands
    return Variant(copy)


def rename_all(model: ModelProto, rng: Random) -> Variant:
    """Give every node, tensor and symbolic dim a new name whose order says nothing about the old one."""
    copy = _copy(model)
    new: dict[str, str] = {}

    def fresh(name: str) -> str:
        if name and name not in new:
            new[name] = f"t{rng.randrange(10**6):06}_{len(new)}"
        return new.get(name, "")

    for graph in walk_graphs(copy.graph):
        for value in (*graph.input, *graph.output, *graph.value_info):
            value.name = fresh(value.name)
            for dim in value.type.tensor_type.shape.dim:
                if dim.dim_param:
                    dim.dim_param = f"s_{dim.dim_param}"
        for tensor in graph.initializer:
            tensor.name = fresh(tensor.name)
        for node in graph.node:
            node.name = f"n{rng.randrange(10**6)}_{len(new)}"
            node.input[:] = [fresh(name) for name in node.input]
            node.output[:] = [fresh(name) for name in node.output]
    return Variant(copy, {changed: name for name, changed in new.items()})


def unname_nodes(model: ModelProto, rng: Random) -> Variant:
    """Take the names of all nodes away."""
    copy = _copy(model)
    for node in copy.graph.node:
        node.name = ""
    return Variant(copy)


def reorder_nodes(model: ModelProto, rng: Random) -> Variant:
    """Put the nodes in another order that is valid, and the initializers in any."""
    copy = _copy(model)
    waiting = list(model.graph.node)
    made = {t.name for t in model.graph.initializer} | {v.name for v in model.graph.input} | {""}
    made_by_nodes = {name for node in waiting for name in node.output}
    del copy.graph.node[:]
    while waiting:
        ready = [node for node in waiting if all(n in made or n not in made_by_nodes for n in _reads(node))]
        chosen = rng.choice(ready)
        waiting.remove(chosen)
        made.update(chosen.output)
        copy.graph.node.append(chosen)
    initializers = list(model.graph.initializer)
    rng.shuffle(initializers)
    del copy.graph.initializer[:]
    copy.graph.initializer.extend(initializers)
    return Variant(copy)


def insert_identities(model: ModelProto, rng: Random) -> Variant:
    """Put Identity nodes on some of the edges, those of weights included.

    Not on values that shapes follow from: shape inference reads only stored ones.
    """
    copy = _copy(model)
    integers, names = _integers(model.graph), NameSource(model)
    old_names = {}
    nodes = []
    for node in copy.graph.node:
        for slot, name in enumerate(node.input):
            shapes_follow = node.op_type == "Resize" and slot > 0
            if name and name not in integers and not shapes_follow and rng.random() < 0.3:
                new = names.fresh("inserted")
                old_names[new] = name
                nodes.append(helper.make_node("Identity", [name], [new]))
                node.input[slot] = new
        nodes.append(node)
    kept = [_node_copy(node) for node in nodes]
    del copy.graph.node[:]
    copy.graph.node.extend(kept)
    return Variant(copy, old_names)


def add_dead_nodes(model: ModelProto, rng: Random) -> Variant:
    """Put in nodes that nothing reads."""
    copy = _copy(model)
    integers, names = _integers(model.graph), NameSource(model)
    nodes: list[NodeProto] = []
    for node in model.graph.node:
        nodes.append(node)
        if node.output[0] not in integers and rng.random() < 0.3:
            op = rng.choice(["Relu", "Identity", "Exp"])
            nodes.append(helper.make_node(op, [node.output[0]], [names.fresh("dead")]))
    del copy.graph.node[:]
    copy.graph.node.extend(nodes)
    return Variant(copy)


def constants_as_nodes(model: ModelProto, rng: Random) -> Variant:
    """Turn some of the initializers into Constant nodes."""
    copy = _copy(model)
    inputs = {value.name for value in model.graph.input}
    turned = [t for t in model.graph.initializer if t.name not in inputs and rng.random() < 0.7]
    names = {tensor.name for tensor in turned}
    kept = [t for t in model.graph.initializer if t.name not in names]
    del copy.graph.initializer[:]
    copy.graph.initializer.extend(kept)
    nodes = [helper.make_node("Constant", [], [t.name], value=t) for t in turned] + list(model.graph.node)
    del copy.graph.node[:]
    copy.graph.node.extend(nodes)
    return Variant(copy)


def constants_as_initializers(model: ModelProto, rng: Random) -> Variant:
    """Turn the Constant nodes into initializers."""
    copy = _copy(model)
    del copy.graph.node[:]
    for node in model.graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            tensor = TensorProto()
            tensor.CopyFrom(node.attribute[0].t)
            tensor.name = node.output[0]
            copy.graph.initializer.append(tensor)
        else:
            copy.graph.node.append(node)
    return Variant(copy)


def list_initializers_as_inputs(model: ModelProto, rng: Random) -> Variant:
    """List the initializers among the graph inputs, as models of IR version 3 must, in front of the true inputs."""
    copy = _copy(model)
    listed = {value.name for value in model.graph.input}
    tensors = [t for t in model.graph.initializer if t.name not in listed]
    inputs = [helper.make_tensor_value_info(t.name, t.data_type, list(t.dims)) for t in tensors]
    inputs += list(model.graph.input)
    del copy.graph.input[:]
    copy.graph.input.extend(inputs)
    return Variant(copy)


def raise_opset(model: ModelProto, rng: Random) -> Variant:
    """Convert to a higher opset."""
    return Variant(version_converter.convert_version(model, 21))


def drop_value_info(model: ModelProto, rng: Random) -> Variant:
    """Take all declarations of intermediate tensors away."""
    copy = _copy(model)
    del copy.graph.value_info[:]
    return Variant(copy)


def falsify_value_info(model: ModelProto, rng: Random) -> Variant:
    """Declare wrong shapes for some intermediate tensors."""
    copy = _copy(model)
    del copy.graph.value_info[:]
    integers = _integers(model.graph)
    outputs = {value.name for value in model.graph.output}
    for node in model.graph.node:
        for name in node.output:
            if name and name not in integers and name not in outputs and rng.random() < 0.5:
                shape = rng.choice([(), (7,), (1, 3, 5, 5), ("a", "b"), (1, 1, 1, 1)])
                copy.graph.value_info.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
    return Variant(copy)


def disjoint_union(left: ModelProto, right: ModelProto, rng: Random) -> tuple[Variant, Variant]:
    """Two models in one graph, their nodes interleaved: once for each, with the old names of its own tensors."""
    merged = _copy(left)
    parts = []
    for prefix, model in (("l_", left), ("r_", right)):
        part = onnx.compose.add_prefix(model, prefix)
        parts.append(part.graph)
    graph = merged.graph
    for name in ("input", "output", "initializer", "value_info"):
        field_ = getattr(graph, name)
        del field_[:]
        for part in parts:
            field_.extend(getattr(part, name))
    del graph.node[:]
    rests = [list(part.node) for part in parts]
    while any(rests):
        rest = rng.choice([r for r in rests if r])
        graph.node.append(rest.pop(0))
    return (
        Variant(merged, {f"l_{name}": name for name in _tensor_names(left.graph)}),
        Variant(merged, {f"r_{name}": name for name in _tensor_names(right.graph)}),
    )


RELATIONS: Mapping[str, Relation] = {
    "swap_operands": swap_operands,
    "rename_all": rename_all,
    "unname_nodes": unname_nodes,
    "reorder_nodes": reorder_nodes,
    "insert_identities": insert_identities,
    "add_dead_nodes": add_dead_nodes,
    "constants_as_nodes": constants_as_nodes,
    "constants_as_initializers": constants_as_initializers,
    "list_initializers_as_inputs": list_initializers_as_inputs,
    "raise_opset": raise_opset,
    "drop_value_info": drop_value_info,
    "falsify_value_info": falsify_value_info,
}
"""Every change of one model, by name."""


def _copy(model: ModelProto) -> ModelProto:
    copy = ModelProto()
    copy.CopyFrom(model)
    return copy


def _node_copy(node: NodeProto) -> NodeProto:
    copy = NodeProto()
    copy.CopyFrom(node)
    return copy


def _reads(node: NodeProto) -> Iterator[str]:
    """Tensors that a node needs, those that its bodies capture included."""
    yield from node.input
    for _, body in bodies(node):
        for inner in body.node:
            yield from _reads(inner)
        yield from (value.name for value in body.output)


def _integers(graph: GraphProto) -> set[str]:
    """Tensors that surely or probably hold integers: stored ones, and what is computed from shapes."""
    found = {t.name for t in graph.initializer if not np.issubdtype(numpy_helper.to_array(t).dtype, np.floating)}
    for node in graph.node:
        stored = node.op_type == "Constant" and node.attribute[0].t.data_type not in (0, TensorProto.FLOAT)
        if stored or node.op_type in ("Shape", "Size") or (node.input and node.input[0] in found):
            found.update(node.output)
    return found


def _tensor_names(graph: GraphProto) -> set[str]:
    values = {v.name for v in (*graph.input, *graph.output)} | {t.name for t in graph.initializer}
    return values | {name for node in graph.node for name in node.output}
