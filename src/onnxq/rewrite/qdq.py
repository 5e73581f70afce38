"""Writes QuantizeLinear/DequantizeLinear pairs, each exactly once, on the edges that a placement names.

    t ----------------------------> float readers, graph output        they go on reading t itself
     `--> Q --> DQ --> quantized readers                               all of them share one pair

A weight whose readers need scales along different axes gets a pair for each axis. Symmetric int8 throughout, so every
zero point is 0; it is written out nevertheless, since some runtimes fail to fuse a pair without one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import GraphProto, ModelProto, NodeProto, helper, numpy_helper

from onnxq.graph import Edge, GraphIndex
from onnxq.protos import NameSource, raise_ir_version


@dataclass(frozen=True, slots=True)
class Pair:
    """One Q/DQ pair to write.

    Attributes:
        tensor: Number of the tensor that is quantized.
        axis: Axis of the scales; None for one scale.
        readers: Edges that read the dequantized tensor.
    """

    tensor: int
    axis: int | None
    readers: tuple[Edge, ...]


def pair_up(index: GraphIndex, edges: Mapping[Edge, int | None]) -> list[Pair]:
    """Group quantized edges into pairs: one for each tensor and axis, in order of first use.

    Args:
        index: The model.
        edges: Quantized edge -> axis of its scales.
    """
    readers: dict[tuple[int, int | None], list[Edge]] = {}
    for edge, axis in edges.items():
        readers.setdefault((index.inputs[edge.node][edge.input], axis), []).append(edge)
    return [Pair(tensor, axis, tuple(found)) for (tensor, axis), found in readers.items()]


def write_pairs(model: ModelProto, index: GraphIndex, pairs: Sequence[Pair], scales: Sequence[NDArray[Any]]) -> None:
    """Write the pairs into the main graph of `model`, in place. The index is void afterwards.

    Args:
        model: The model that `index` was built from.
        index: Its index.
        pairs: What to write; their readers stand in the main graph.
        scales: The scale of each pair: a scalar, or one number for each position along the axis. Its dtype must be
            the tensor's element type.
    """
    names = NameSource(model)
    before: dict[int, list[NodeProto]] = {}
    for pair, scale in zip(pairs, scales, strict=True):
        nodes, result = _pair_nodes(model.graph, names, index.tensor_names[pair.tensor], pair.axis, scale)
        for edge in pair.readers:
            index.nodes[edge.node].input[edge.input] = result
        before.setdefault(min(edge.node for edge in pair.readers), []).extend(nodes)
    _insert(model.graph, index, before)
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


def _insert(graph: GraphProto, index: GraphIndex, before: Mapping[int, Iterable[NodeProto]]) -> None:
    """Put new nodes in front of the main-graph nodes with the given numbers, which keeps the order topological."""
    main = (number for number in range(len(index.nodes)) if index.node_scope[number] == 0)
    ordered = [node for number in main for node in (*before.get(number, ()), index.nodes[number])]
    del graph.node[:]
    graph.node.extend(ordered)
