"""Writes QuantizeLinear/DequantizeLinear pairs, each exactly once, on the edges that a placement names.

    t ----------------------------> float readers, graph output        they go on reading t itself
     `--> Q --> DQ --> quantized readers                               all of them share one pair

A weight whose readers need scales along different axes gets a pair for each axis. What a body captures gets a pair in
the body, with parameters of its own: no pair feeds readers of two graphs, and a branch that doesn't run costs nothing.

    t ----> Q --> DQ --> Conv            readers in the main graph
     `----> If                           the branch reads t itself,
             then: t -> Q -> DQ -> Conv  and has a pair of its own

A graph output that is quantized keeps its name, which the DequantizeLinear yields then:

    Conv -> y (output, read by Relu)        Conv -> y_unrounded --> Q --> DQ -> y
                                                             `----> Relu

A zero point is written out even where it is 0, since some runtimes fail to fuse a pair without one. What is stored as
integers has no Q:

    integers --> DQ --> quantized readers
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from numpy.typing import NDArray
from onnx import GraphProto, ModelProto, NodeProto, ValueInfoProto, helper, numpy_helper

from onnxq.encoding import Encoding, QuantizationParameters
from onnxq.graph import Edge, GraphIndex, Use
from onnxq.protos import NameSource, raise_ir_version


@dataclass(frozen=True, slots=True)
class Pair:
    """One Q/DQ pair to write.

    Attributes:
        use: The tensor that is quantized, as the graph sees it that the pair stands in.
        encoding: How it is stored.
        readers: Edges that read the dequantized tensor.
        is_output: Whether the dequantized tensor is an output of the graph.
    """

    use: Use
    encoding: Encoding
    readers: tuple[Edge, ...]
    is_output: bool = False


def pair_up(
    index: GraphIndex, edges: Mapping[Edge, Encoding], outputs: Mapping[Use, Encoding] = MappingProxyType({})
) -> list[Pair]:
    """Group quantized edges into pairs: one for each graph, tensor and encoding, in order of first use.

    Args:
        index: The model.
        edges: Quantized edge -> how its tensor is stored.
        outputs: Quantized output of the main graph, which a node yields -> how it is stored.
    """
    readers: dict[tuple[Use, Encoding], list[Edge]] = {}
    for edge, encoding in edges.items():
        readers.setdefault((index.use(edge), encoding), []).append(edge)
    for use, encoding in outputs.items():
        readers.setdefault((use, encoding), [])
    return [
        Pair(use, encoding, tuple(found), outputs.get(use) == encoding) for (use, encoding), found in readers.items()
    ]


def write_pairs(
    model: ModelProto, index: GraphIndex, pairs: Sequence[Pair], parameters: Sequence[QuantizationParameters]
) -> None:
    """Write the pairs into the graphs of `model`, in place. The index is void afterwards.

    Args:
        model: The model that `index` was built from.
        index: Its index.
        pairs: What to write.
        parameters: Of each pair: scalars, or a number for each position along the axis. The dtype of the scale must be
            the tensor's element type.
    """
    names = NameSource(model)
    sources = {pair.use.tensor: _free_output(index, names, pair.use.tensor) for pair in pairs if pair.is_output}
    before: dict[int, list[NodeProto]] = {}
    behind: dict[int, list[NodeProto]] = {}
    for pair, numbers in zip(pairs, parameters, strict=True):
        graph, tensor = index.scopes[pair.use.scope].graph, index.tensor_names[pair.use.tensor]
        nodes, result = _pair_nodes(graph, names, tensor, pair.encoding.axis, numbers)
        nodes[0].input[0] = sources.get(pair.use.tensor, nodes[0].input[0])
        if pair.is_output:
            result = nodes[-1].output[0] = tensor
        for edge in pair.readers:
            index.nodes[edge.node].input[edge.input] = result
        place = (
            (behind, index.producers[pair.use.tensor])
            if pair.is_output
            else (before, min(e.node for e in pair.readers))
        )
        place[0].setdefault(place[1], []).extend(nodes)
    _insert(index, before, behind)
    raise_ir_version(model)


def _free_output(index: GraphIndex, names: NameSource, tensor: int) -> str:
    """Give what a node yields as a graph output another name, under which all readers find it."""
    output, graph = index.tensor_names[tensor], index.scopes[index.tensor_scope[tensor]].graph
    name, producer = names.fresh(f"{output}_unrounded"), index.producers[tensor]
    index.nodes[producer].output[index.outputs[producer].index(tensor)] = name
    for edge in index.consumers[tensor]:
        index.nodes[edge.node].input[edge.input] = name
    declared = next(value for value in graph.output if value.name == output)
    graph.value_info.append(ValueInfoProto(name=name, type=declared.type))
    return name


def _pair_nodes(
    graph: GraphProto, names: NameSource, tensor: str, axis: int | None, numbers: QuantizationParameters
) -> tuple[list[NodeProto], str]:
    """The nodes of a pair, and the name of its result. Adds what is stored to the graph."""

    def store(suffix: str, value: NDArray[Any]) -> str:
        name = names.fresh(f"{tensor}_{suffix}")
        graph.initializer.append(numpy_helper.from_array(value, name))
        return name

    parameters = [store("scale", numbers.scale), store("zero_point", numbers.zero_point)]
    attributes: dict[str, Any] = {} if axis is None else {"axis": axis}
    ops, source = ["QuantizeLinear", "DequantizeLinear"], tensor
    if numbers.stored is not None:
        ops, source = ["DequantizeLinear"], store("quantized", numbers.stored)
    nodes = []
    for op in ops:
        output = names.fresh(f"{tensor}_{op}_Output")
        node = names.fresh(f"{tensor}_{op}")
        nodes.append(helper.make_node(op, [source, *parameters], [output], name=node, **attributes))
        source = output
    return nodes, source


def _insert(
    index: GraphIndex, before: Mapping[int, Iterable[NodeProto]], behind: Mapping[int, Iterable[NodeProto]]
) -> None:
    """Put new nodes in front of the nodes with the given numbers, or behind them; the order stays topological."""
    nodes: list[list[NodeProto]] = [[] for _ in index.scopes]
    for number, node in enumerate(index.nodes):
        nodes[index.node_scope[number]] += (*before.get(number, ()), node, *behind.get(number, ()))
    changed = {index.node_scope[number] for number in (*before, *behind)}
    for scope in sorted(changed, reverse=True):  # inner graphs first: rebuilding an outer one copies them
        graph = index.scopes[scope].graph
        del graph.node[:]
        graph.node.extend(nodes[scope])
