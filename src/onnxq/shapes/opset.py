"""Raising the version of the standard operators (rule F9).

ONNX's own version converter does the work. It goes through an internal form that drops or rewrites much of what isn't
a node (declarations, symbols, doc strings, metadata, local functions, payloads); all that is put back here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableSequence
from itertools import chain
from typing import TypeVar

import onnx
from google.protobuf.message import Message
from onnx import GraphProto, ModelProto, NodeProto, TypeProto

from onnxq.errors import InvalidModelError, UnsupportedError
from onnxq.protos import bodies, copy_fields, describe, is_default_domain, opset_version
from onnxq.shapes.graphs import defined_names, walk
from onnxq.shapes.inference import Inferred, infer
from onnxq.shapes.skeleton import without_payload
from onnxq.shapes.validity import check_model
from onnxq.tensor_data import is_large

M = TypeVar("M", bound=Message)

WAY_OUT = "convert the model yourself, or ask for nothing that needs newer operators"
RESIZE_WITH_COORDINATES = 11
"""From this opset on Resize has `coordinate_transformation_mode`; before, it was always asymmetric and rounded down."""


def raise_opset(model: ModelProto, minimum: int) -> ModelProto:
    """Convert a model to a newer version of the standard operators, if it is older.

    Args:
        model: Sorted and valid. Not changed.
        minimum: The lowest version wanted.

    Returns:
        The model itself if it is new enough or uses no standard operators, else the converted one. Inputs, outputs,
        weights, declarations of tensors that still exist, and all metadata are those of the model.

    Raises:
        UnsupportedError: The model can't be converted; names the node where that can be told.
    """
    version = opset_version(model)
    if version >= minimum or not version:
        return model
    newest = onnx.defs.onnx_opset_version()
    if minimum > newest:
        raise UnsupportedError(f"opset {minimum} is wanted, but the installed onnx ends at {newest}; upgrade onnx")
    light = _light_copy(model)
    converted = ModelProto()
    try:
        converted.graph.CopyFrom(onnx.version_converter.convert_version(light, minimum).graph)
    except Exception as error:  # the converter raises whatever its adapters do
        reason = _culprit(light, minimum) or str(error).strip().partition("\n")[0]
        raise UnsupportedError(f"opset {version} can't be converted to {minimum}: {reason}; {WAY_OUT}") from None
    _restore(converted.graph, model.graph, version)
    copy_fields(converted, model, leave_out="graph")
    for entry in converted.opset_import:
        if entry.domain in ("", "ai.onnx"):
            entry.version = minimum
    _check(converted, model)
    return converted


def _light_copy(model: ModelProto) -> ModelProto:
    """What the converter needs: nodes, names, small constants."""
    light = ModelProto(ir_version=model.ir_version)
    for entry in model.opset_import:
        light.opset_import.add(domain="" if entry.domain == "ai.onnx" else entry.domain, version=entry.version)
    light.graph.CopyFrom(without_payload(model.graph))
    return light


def _restore(graph: GraphProto, original: GraphProto, version: int) -> None:
    """Put back what the converter dropped or rewrote, in the graph and its bodies."""
    graph.name = original.name
    if original.doc_string:
        graph.doc_string = original.doc_string
    _replace(graph.input, original.input)
    _replace(graph.output, original.output)
    known = defined_names(original)
    added = [tensor for tensor in graph.initializer if tensor.name not in known]
    _replace(graph.initializer, [*original.initializer, *added])
    _replace(graph.sparse_initializer, original.sparse_initializer)
    _replace(graph.quantization_annotation, original.quantization_annotation)
    _replace(graph.metadata_props, original.metadata_props)
    gone = known.keys() - defined_names(graph).keys()
    _replace(graph.value_info, [value for value in original.value_info if value.name not in gone])
    before = {tuple(node.output): node for node in original.node}
    for node in graph.node:
        old = before.get(tuple(node.output))
        if old is not None:
            _restore_node(node, old, version)


def _restore_node(node: NodeProto, old: NodeProto, version: int) -> None:
    for field in ("name", "doc_string"):
        _copy_field(node, old, field)
    _replace(node.metadata_props, old.metadata_props)
    if old.op_type in ("Resize", "Upsample") and node.op_type == "Resize" and version < RESIZE_WITH_COORDINATES:
        _keep_coordinates(node)
    if old.op_type != node.op_type:
        return
    for field in ("domain", "overload"):
        _copy_field(node, old, field)
    graphs = dict(bodies(old))
    for name, body in bodies(node):
        _restore(body, graphs[name], version)
    if node.op_type == "Constant" and is_default_domain(node):
        _replace(node.attribute, old.attribute)


def _copy_field(node: NodeProto, old: NodeProto, field: str) -> None:
    """Set or unset a field as it was, since an empty text isn't the same bytes as none."""
    node.ClearField(field)
    if old.HasField(field):
        setattr(node, field, getattr(old, field))


def _keep_coordinates(node: NodeProto) -> None:
    """The converter leaves the new attributes at their defaults, which compute other values than the old operator."""
    present = {entry.name for entry in node.attribute}
    for name, value in (("coordinate_transformation_mode", "asymmetric"), ("nearest_mode", "floor")):
        if name not in present:
            node.attribute.append(onnx.helper.make_attribute(name, value))


def _replace(field: MutableSequence[M], values: Iterable[M]) -> None:
    del field[:]
    field.extend(values)


def _check(converted: ModelProto, original: ModelProto) -> None:
    """The converter doesn't look at its work: names may clash in bodies, functions may stay behind.

    What the checker objects to in the original already, such as an output without a shape, isn't the converter's fault.
    """
    try:
        check_model(converted)
        reason = _objection(converted)
    except InvalidModelError as error:
        reason = str(error)
    if reason and not _objection(original):
        steps = f"opset {opset_version(original)} can't be converted to {opset_version(converted)}"
        raise UnsupportedError(f"{steps}: the result is invalid: {reason.partition(chr(10))[0]}; {WAY_OUT}")


def _objection(model: ModelProto) -> str:
    """What the ONNX checker objects to; empty for a model that is valid, or too large to be asked about."""
    if is_large(model):
        return ""
    try:
        onnx.checker.check_model(model)
    except onnx.checker.ValidationError as error:
        return str(error).strip() or "it is invalid"
    return ""


def _culprit(light: ModelProto, minimum: int) -> str:
    """The first node that can't be converted alone; empty if each can."""
    types = dict(_all_types(infer(light)[0]))
    constants = {tensor.name: tensor for graph, _ in walk(light.graph) for tensor in graph.initializer}
    for graph, place in walk(light.graph):
        for node in graph.node:
            if any(True for _ in bodies(node)) or not is_default_domain(node):
                continue
            single = ModelProto(ir_version=light.ir_version, opset_import=light.opset_import)
            single.graph.name = "single"
            single.graph.node.append(node)
            for name in dict.fromkeys(name for name in node.input if name):
                if name in constants:
                    single.graph.initializer.append(constants[name])
                single.graph.input.add(name=name).type.CopyFrom(types.get(name, TypeProto()))
            for name in filter(None, node.output):
                single.graph.output.add(name=name).type.CopyFrom(types.get(name, TypeProto()))
            try:
                onnx.version_converter.convert_version(single, minimum)
            except Exception:  # whatever it is, the whole model had the same trouble
                return describe(node) + place
    return ""


def _all_types(inferred: Inferred) -> Iterator[tuple[str, TypeProto]]:
    yield from inferred.types.items()
    yield from chain.from_iterable(_all_types(body) for body in inferred.bodies.values())
