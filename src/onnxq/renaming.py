"""Neutral names for everything in a model that its makers named, for models whose names give something away."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto

from onnxq.protos import walk_graphs


def rename_all(model: ModelProto) -> dict[str, str]:
    """Rename nodes, tensors, symbolic dims and graphs by their order of appearance, in place.

    What is equal stays equal, and what has no name gets none, since both matter to quantizers. Operators and attributes
    keep their names, as do local functions and what is inside them.

    Args:
        model: The model.

    Returns:
        Old name -> new name of the tensors, for what else refers to them, such as calibration data.
    """
    nodes, dims, graphs = _Names("n"), _Names("d"), _Names("g")
    tensors = _Names("t")
    for value in model.graph.input:
        tensors.add(value.name, "x")
    for value in model.graph.output:
        tensors.add(value.name, "y")
    model.ClearField("domain")
    for graph in walk_graphs(model.graph):
        graph.name = graphs.of(graph.name)
        graph.ClearField("quantization_annotation")
        for node in graph.node:
            for tensor in _attribute_tensors(node):
                tensor.ClearField("name")
    rename(model, tensors=tensors.of, nodes=nodes.of, dims=dims.of)
    return tensors.new


def rename(
    model: ModelProto,
    *,
    tensors: Callable[[str], str] = str,
    nodes: Callable[[str], str] = str,
    dims: Callable[[str], str] = str,
) -> None:
    """Give what is in a model, its bodies included, other names, in place.

    Args:
        model: The model.
        tensors: Name of a tensor -> its new one. It is also asked for "", which stands for no tensor.
        nodes: Name of a node -> its new one; asked once a node, in order.
        dims: Symbol of a dim -> its new one.
    """
    for graph in walk_graphs(model.graph):
        for node in graph.node:
            node.name = nodes(node.name)
            node.input[:] = map(tensors, node.input)
            node.output[:] = map(tensors, node.output)
        for named in _named(graph):
            named.name = tensors(named.name)
        for value in (*graph.input, *graph.output, *graph.value_info):
            for dim in _dims(value.type):
                if dim.HasField("dim_param"):
                    dim.dim_param = dims(dim.dim_param)


class _Names:
    """Numbered names, given in order of appearance."""

    def __init__(self, letter: str) -> None:
        self._letter = letter
        self.new: dict[str, str] = {}

    def of(self, name: str) -> str:
        self.add(name, self._letter)
        return self.new.get(name, "")

    def add(self, name: str, letter: str) -> None:
        if name and name not in self.new:
            self.new[name] = f"{letter}{len(self.new)}"


def _named(graph: GraphProto) -> Iterator[Any]:
    yield from (*graph.input, *graph.output, *graph.value_info, *graph.initializer)
    yield from (sparse.values for sparse in graph.sparse_initializer)


def _attribute_tensors(node: NodeProto) -> Iterator[Any]:
    for attribute in node.attribute:
        if attribute.type == AttributeProto.TENSOR:
            yield attribute.t
        yield from attribute.tensors


def _dims(kind: Any) -> Iterator[Any]:
    """The dims of a tensor type, also inside sequences and optionals."""
    which = kind.WhichOneof("value")
    if which in ("tensor_type", "sparse_tensor_type"):
        yield from getattr(kind, which).shape.dim
    elif which in ("sequence_type", "optional_type"):
        yield from _dims(getattr(kind, which).elem_type)
