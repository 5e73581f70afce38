"""Small facts about ONNX protobuf messages that every layer needs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

import onnx
from google.protobuf.message import Message
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto

M = TypeVar("M", bound=Message)


FREE_INITIALIZERS = 4
"""First IR version whose initializers need not be inputs."""


def bodies(node: NodeProto) -> Iterator[tuple[str, GraphProto]]:
    """The graphs inside a node (If, Loop, Scan, ...), with the attribute that holds each."""
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.name, attribute.g
        elif attribute.type == AttributeProto.GRAPHS:
            for position, graph in enumerate(attribute.graphs):
                yield f"{attribute.name}[{position}]", graph


def walk_graphs(graph: GraphProto) -> Iterator[GraphProto]:
    """The graph itself, then every graph nested in it, outer ones first."""
    yield graph
    for node in graph.node:
        for _, body in bodies(node):
            yield from walk_graphs(body)


def walk_nodes(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """Some nodes, and all nodes in their bodies, each node before what it holds."""
    for node in nodes:
        yield node
        for _, body in bodies(node):
            yield from walk_nodes(body.node)


def walk_tensors(model: ModelProto) -> Iterator[TensorProto]:
    """Every stored tensor: initializers and attribute values, those of bodies and functions included."""
    for graph in walk_graphs(model.graph):
        yield from graph.initializer
        for sparse in graph.sparse_initializer:
            yield sparse.values
            yield sparse.indices
        for node in graph.node:
            yield from _attribute_tensors(node)
    for function in model.functions:
        for node in function.node:
            yield from _attribute_tensors(node)
            for _, body in bodies(node):
                yield from (t for g in walk_graphs(body) for t in g.initializer)


def copy_fields(target: M, source: M, *, leave_out: str) -> None:
    """Add all fields of a message to another but one, which isn't copied on the way."""
    for field, value in source.ListFields():
        if field.name != leave_out:
            target.MergeFrom(type(source)(**{field.name: value}))


def with_initializers(model: ModelProto, initializers: Iterable[TensorProto]) -> ModelProto:
    """A copy of a model whose main graph has other initializers; its own aren't copied on the way."""
    copy = ModelProto()
    copy_fields(copy, model, leave_out="graph")
    copy_fields(copy.graph, model.graph, leave_out="initializer")
    copy.graph.initializer.extend(initializers)
    return copy


def opset_version(model: ModelProto) -> int:
    """Version of the default operator set; 0 when the model doesn't import it."""
    return max((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), default=0)


def is_default_domain(node: NodeProto) -> bool:
    """Whether the node is an operator of the ONNX standard itself."""
    return node.domain in ("", "ai.onnx")


def attribute(node: NodeProto, name: str, default: int) -> int:
    """An integer attribute, or its default when the node doesn't state it."""
    return next((int(a.i) for a in node.attribute if a.name == name), default)


def string_attribute(node: NodeProto, name: str, default: str) -> str:
    """A string attribute, or its default when the node doesn't state it."""
    return next((a.s.decode("utf-8", "replace") for a in node.attribute if a.name == name), default)


def raise_ir_version(model: ModelProto) -> None:
    """Raise the IR version, in place, to what the opset asks for.

    Before IR version 4 every initializer had to be listed among the inputs too, which meant nothing. From 4 on it means
    that a caller may override it, and runtimes fold and fuse no such weight. So what was there for form's sake goes.
    """
    if model.ir_version < FREE_INITIALIZERS:
        stored = {tensor.name for tensor in model.graph.initializer}
        inputs = [value for value in model.graph.input if value.name not in stored]
        del model.graph.input[:]
        model.graph.input.extend(inputs)
    model.ir_version = max(
        model.ir_version, onnx.helper.find_min_ir_version_for(model.opset_import, ignore_unknown=True)
    )


def describe(node: NodeProto) -> str:
    """How messages name a node: `Conv "conv1"`, or by its output where it has no name."""
    if node.name:
        return f'{node.op_type} "{node.name}"'
    output = next((o for o in node.output if o), "")
    return f'{node.op_type} (unnamed, output "{output}")'


class NameSource:
    """Gives names that nothing in the model has yet.

    The caller owns it for the length of one rewriting, so two rewritings never share state.
    """

    def __init__(self, model: ModelProto) -> None:
        self._taken = {
            name
            for graph in walk_graphs(model.graph)
            for names in (
                (v.name for v in (*graph.input, *graph.output, *graph.value_info)),
                (t.name for t in graph.initializer),
                (t.values.name for t in graph.sparse_initializer),
                (name for node in graph.node for name in (node.name, *node.input, *node.output)),
            )
            for name in names
        }

    def fresh(self, wanted: str) -> str:
        """The wanted name, or it with the lowest number that makes it new."""
        name, number = wanted, 0
        while name in self._taken:
            number += 1
            name = f"{wanted}_{number}"
        self._taken.add(name)
        return name


def _attribute_tensors(node: onnx.NodeProto) -> Iterator[TensorProto]:
    for attribute in node.attribute:
        if attribute.HasField("t"):
            yield attribute.t
        yield from attribute.tensors
