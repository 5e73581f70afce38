"""Writes QuantizeLinear/DequantizeLinear pairs, each exactly once, on the edges that a placement names.

    t ----------------------------> float readers, graph output        they go on reading t itself
     `--> Q --> DQ --> quantized readers                               all of them share one pair

A weight whose readers need scales along different axes gets a pair for each axis. What a body captures gets a pair in
the body, with parameters of its own: no pair feeds readers of two graphs, and a branch that doesn't run costs nothing.

    t ----> Q --> DQ --> Conv            readers in the main graph
     `----> If                           the branch reads t itself,
             then: t -> Q -> DQ -> Conv  and has a pair of its own

Symmetric int8 throughout, so every
zero point is 0; it is written out nevertheless, since some runtimes fail to fuse a pair without one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import GraphProto, ModelProto, NodeProto, helper, numpy_helper

from onnxq.graph import Edge, GraphIndex, Use
from onnxq.protos import NameSource, raise_ir_version


@dataclass(frozen=True, slots=True)
class Pair:
    """One Q/DQ pair to write.

    Attributes:
        use: The tensor that is quantized, as the graph sees it that the pair stands in.
        axis: Axis of the scales; None for one scale.
        readers: Edges that read the dequantized tensor.
    """

    use: Use
    axis: int | None
    readers: tuple[Edge, ...]


def pair_up(index: GraphIndex, edges: Mapping[Edge, int | None]) -> list[Pair]:
    """Group quantized edges into pairs: one for each graph, tensor and axis, in order of first use.

    Args:
        index: The model.
        edges: Quantized edge -> axis of its scales.
    """
    readers: dict[tuple[Use, int | None], list[Edge]] = {}
    for edge, axis in edges.items():
        readers.setdefault((index.use(edge), axis), []).append(edge)
    return [Pair(use, axis, tuple(found)) for (use, axis), found in readers.items()]


def write_pairs(model: ModelProto, index: GraphIndex, pairs: Sequence[Pair], scales: Sequence[NDArray[Any]]) -> None:
    """Write the pairs into the graphs of `model`, in place. The index is void afterwards.

    Args:
        model: The model that `index` was built from.
        index: Its index.
        pairs: What to write.
        scales: The scale of each pair: a scalar, or one number for each position along the axis. Its dtype must be
            the tensor's element type.
    """
    names = NameSource(model)
    before: dict[int, list[NodeProto]] = {}
    for pair, scale in zip(pairs, scales, strict=True):
        graph, tensor = index.scopes[pair.use.scope].graph, index.tensor_names[pair.use.tensor]
        nodes, result = _pair_nodes(graph, names, tensor, pair.axis, scale)
        for edge in pair.readers:
            index.nodes[edge.node].input[edge.input] = result
        before.setdefault(min(edge.node for edge in pair.readers), []).extend(nodes)
    _insert(index, before)
    raise_ir_version(model)


def _pair_nodes(
    graph: GraphProto, names: NameSource, tensor: str, axis: int | None, scale: NDArray[Any]
) -> tuple[list[NodeProto], str]:
    """The two nodes of a pair, and the name of its result. Adds scale and zero point to the graph."""
    zero_point = np.zeros(scale.shape, dtype=np.int8)
    parameters = []
    for suffix, value in (("scale", scale), ("zero_point", zero_point)):
        parameters.append(names.fresh(f"{tensor}_{suffix}"))
        graph.initializer.append(numpy_helper.from_array(np.asarray(value), parameters[-1]))
    attributes: dict[str, Any] = {} if axis is None else {"axis": axis}
    nodes, source = [], tensor
    for op in ("QuantizeLinear", "DequantizeLinear"):
        output = names.fresh(f"{tensor}_{op}_Output")
        node = names.fresh(f"{tensor}_{op}")
        nodes.append(helper.make_node(op, [source, *parameters], [output], name=node, **attributes))
        source = output
    return nodes, source


def _insert(index: GraphIndex, before: Mapping[int, Iterable[NodeProto]]) -> None:
    """Put new nodes in front of the nodes with the given numbers, which keeps the order topological."""
    nodes: list[list[NodeProto]] = [[] for _ in index.scopes]
    for number, node in enumerate(index.nodes):
        nodes[index.node_scope[number]] += (*before.get(number, ()), node)
    changed = {index.node_scope[number] for number in before}
    for scope in sorted(changed, reverse=True):  # inner graphs first: rebuilding an outer one copies them
        graph = index.scopes[scope].graph
        del graph.node[:]
        graph.node.extend(nodes[scope])
