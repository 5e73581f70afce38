"""A placement as it can be compared: keyed by what the float model's nodes yield, wherever it is from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from onnxq.invariants import ModelPair
from onnxq.invariants.integers import element_type, scale_axis
from onnxq.protos import describe

OUTPUT = -1
"""Stands for the position among inputs, where an edge is a graph output that the caller reads."""


@dataclass(frozen=True, slots=True)
class EdgeKey:
    """One input of a node of the float model, whatever the node is called, or an output of the graph.

    Attributes:
        node: Key of the first output of the node: in a body with its path before it, see `onnxq.scopes`. Of a graph
            output its name.
        input: Position among the node's inputs; `OUTPUT` for a graph output.
    """

    node: str
    input: int


@dataclass(frozen=True, slots=True)
class Scaling:
    """How an edge is quantized.

    Attributes:
        element_type: Such as "int8".
        axis: Axis of the scales, None for one in all.
        scale: The scales; None if the model computes them, or a stored placement doesn't tell.
        zero_point: Likewise; None also stands for zeros.
    """

    element_type: str
    axis: int | None = None
    scale: NDArray[Any] | None = None
    zero_point: NDArray[Any] | None = None


@dataclass(frozen=True, slots=True)
class EdgeView:
    """One edge of a placement.

    Attributes:
        graph: Path of the body that the node stands in; "" for the main graph, or if it isn't known.
        tensor: The float tensor on it.
        op_type: Operator of the node that reads it; "" if the caller does.
        node: Name of that node; "" if it isn't known.
        scaling: How it is quantized; None if it is float.
    """

    graph: str
    tensor: str
    op_type: str
    node: str
    scaling: Scaling | None


@dataclass(frozen=True, slots=True)
class PlacementView:
    """One of the two sides.

    Attributes:
        source: Where it is from, as it was given.
        what: "float model", "quantized model" or "placement".
        edges: What is known of each edge, in the order of the float model; of graph outputs only quantized ones.
        is_complete: Whether float edges are listed too, so that an edge that isn't there is unknown rather than float.
        extra: Nodes of the model that the float model has no counterpart of, for a person.
    """

    source: str
    what: str
    edges: Mapping[EdgeKey, EdgeView]
    is_complete: bool = True
    extra: tuple[str, ...] = ()

    @property
    def quantized(self) -> int:
        """Number of quantized edges."""
        return sum(edge.scaling is not None for edge in self.edges.values())


def view_of_pair(source: str, pair: ModelPair, *, what: str) -> PlacementView:
    """The placement of a model, keyed by the float model of the pair.

    Args:
        source: Where the model is from.
        pair: The float model, and the model.
        what: What kind of model it is, for a person.
    """
    index = pair.plan.index
    edges = {}
    for number, slot, tensor, found in pair.edges():
        node = index.nodes[number]
        scaling = None
        if found is not None:
            axis = scale_axis(found, index.tensor_types[index.inputs[number][slot]].rank)
            scaling = Scaling(element_type(pair, found), axis, found.scale, found.zero_point)
        path = index.scopes[index.node_scope[number]].path
        edges[EdgeKey(pair.key(number), slot)] = EdgeView(path, tensor, node.op_type, node.name, scaling)
    for tensor, found in pair.outputs():
        if found is not None:
            scaling = Scaling(element_type(pair, found), None, found.scale, found.zero_point)
            edges[EdgeKey(tensor, OUTPUT)] = EdgeView("", tensor, "", "", scaling)
    return PlacementView(source, what, edges, extra=_extra(pair))


def _extra(pair: ModelPair) -> tuple[str, ...]:
    """Nodes of the main graph and the bodies that compute something and are no node's counterpart."""
    twins = set()
    for number in range(len(pair.plan.index.nodes)):
        graph, twin = pair.graph_of(number), pair.counterpart(number)
        if graph is not None and twin is not None:
            twins.add((graph.path, tuple(twin.output)))
    nodes = ((graph.path, node) for graph in pair.main.walk() for node in graph.graph.node)
    return tuple(
        describe(node)
        for path, node in nodes
        if node.op_type not in WRITTEN_BY_TOOLS and (path, tuple(node.output)) not in twins
    )


WRITTEN_BY_TOOLS = frozenset({"Cast", "Constant", "DequantizeLinear", "Identity", "QuantizeLinear"})
"""Operators that quantizers put in or take out on the way; they compute nothing of the float model."""
