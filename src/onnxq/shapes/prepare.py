"""The preparation of a model, from validity to corrected declarations: one function, its steps in order."""

from __future__ import annotations

from dataclasses import dataclass

from onnx import GraphProto, ModelProto

from onnxq.protos import bodies, describe, opset_version
from onnxq.shapes.changes import Change
from onnxq.shapes.graphs import body_place
from onnxq.shapes.inference import Inferred, infer
from onnxq.shapes.naming import name_nodes
from onnxq.shapes.opset import raise_opset
from onnxq.shapes.outer_outputs import own_outputs
from onnxq.shapes.stale import correct_declarations, merged_types
from onnxq.shapes.validity import check_model, sort_nodes
from onnxq.tensor_types import GraphTypes, ValueType, value_type


@dataclass(frozen=True, slots=True)
class Prepared:
    """A model that later steps can rely on.

    Attributes:
        model: The prepared model. It equals the given one where nothing was wrong with that.
        types: Type of every value of every graph. Symbols are the model's own; unknown dims are None. A value that
            nothing tells about (a custom operator's) has element type 0.
        changes: What was changed, in order.
        warnings: What couldn't be inferred or checked.
    """

    model: ModelProto
    types: GraphTypes
    changes: tuple[Change, ...]
    warnings: tuple[str, ...]


def prepare(model: ModelProto, *, min_opset: int = 1, copy: bool = True) -> Prepared:
    """Sort and name the nodes, correct stale declarations, and infer the types of all values.

    Preparing a prepared model changes nothing, and a model that needs nothing comes out equal.

    Args:
        model: Any model. Not changed while `copy` holds.
        min_opset: The lowest version of the standard operators that later steps can do with; an older model is
            converted.
        copy: False hands the model over: it may be changed in place and must not be used afterwards.

    Returns:
        The prepared model, its types, and what was changed.

    Raises:
        InvalidModelError: The model contradicts itself in a way that can't be mended.
        UnsupportedError: It can't be converted to `min_opset`.
    """
    if copy:
        original, model = model, ModelProto()
        model.CopyFrom(original)
    changes = own_outputs(model)
    check_model(model)
    changes += sort_nodes(model.graph)
    changes += name_nodes(model.graph)
    before = opset_version(model)
    model = raise_opset(model, min_opset)
    after = opset_version(model)
    if after != before:
        changes.append(Change("F9", "model", f"opset {before} converted to {after}"))
        changes += name_nodes(model.graph)
    inferred, notes = infer(model)
    corrections, unchecked = correct_declarations(model.graph, inferred)
    warnings = [*notes, *_untyped(model.graph, inferred, ""), *unchecked]
    return Prepared(model, _types(model.graph, inferred), (*changes, *corrections), tuple(warnings))


def _types(graph: GraphProto, inferred: Inferred, *, is_body: bool = False) -> GraphTypes:
    tensors = {name: value_type(proto) for name, proto in merged_types(inferred.types, graph, is_body=is_body).items()}
    for node in graph.node:
        tensors.update({name: ValueType(0) for name in node.output if name and name not in tensors})
    below = {
        (position, attribute): _types(body, inferred.bodies[position, attribute], is_body=True)
        for position, node in enumerate(graph.node)
        for attribute, body in bodies(node)
    }
    return GraphTypes(tensors, below)


def _untyped(graph: GraphProto, inferred: Inferred, place: str) -> list[str]:
    warnings = []
    for position, node in enumerate(graph.node):
        warnings += [
            f'the type of "{name}", made by {describe(node)}{place}, is unknown: declare it in value_info'
            for name in node.output
            if name and name not in inferred.types
        ]
        for attribute, body in bodies(node):
            warnings += _untyped(body, inferred.bodies[position, attribute], body_place(node, attribute, place))
    return warnings
