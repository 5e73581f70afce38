"""The quantized model, graph by graph: all reading of Q/DQ happens here.

They are read in whatever form a tool writes them: a Q/DQ pair, a stored int8 weight behind a lone DequantizeLinear,
with or without Casts after it. What a body reads may be quantized inside it or in a graph around it.
"""

from __future__ import annotations

from collections import ChainMap, Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from numpy.typing import NDArray
from onnx import GraphProto, NodeProto

from onnxq.graph import constant_node_value
from onnxq.protos import attribute, bodies
from onnxq.scopes import body_path, tensor_key
from onnxq.tensor_data import tensor_values

QDQ = ("QuantizeLinear", "DequantizeLinear")


@dataclass(frozen=True, slots=True)
class Quantization:
    """How one tensor is quantized in the quantized model.

    Attributes:
        dequantize: The DequantizeLinear that readers see; the QuantizeLinear of an output that is integers outside.
        quantize: The QuantizeLinear before it; None for a weight that is stored as integers.
        scale: Its scale, [] or [n]; None if the model computes it.
        zero_point: Its zero point, of the same shape; None if it is left out or computed.
        axis: Axis of the scales; None for a single scale.
    """

    dequantize: NodeProto
    quantize: NodeProto | None
    scale: NDArray[Any] | None
    zero_point: NDArray[Any] | None
    axis: int | None


@dataclass(frozen=True)
class QuantizedGraph:
    """One graph of the quantized model, and what is derived from it once.

    Attributes:
        graph: The graph.
        path: Its path, see `onnxq.scopes`.
        outer: The graph around it; None for the main graph.
    """

    graph: GraphProto
    path: str = ""
    outer: QuantizedGraph | None = None

    @cached_property
    def own_producers(self) -> dict[str, NodeProto]:
        """Tensor name -> the node of this graph that yields it."""
        return {output: node for node in self.graph.node for output in node.output if output}

    @cached_property
    def producers(self) -> Mapping[str, NodeProto]:
        """Tensor name -> the node that yields it, here or in a graph around."""
        return ChainMap(self.own_producers, *(graph.own_producers for graph in self.around()))

    @cached_property
    def constants(self) -> Mapping[str, NDArray[Any]]:
        """Values stored here or in a graph around, except big ones that no Q or DQ asks for."""
        return ChainMap(self._own_constants, *(graph._own_constants for graph in self.around()))

    @cached_property
    def _own_constants(self) -> dict[str, NDArray[Any]]:
        readers = (node for graph in self.walk() for node in graph.graph.node if node.op_type in QDQ)
        used = {name for node in readers for name in node.input}
        found = {t.name: tensor_values(t) for t in self.graph.initializer if t.name in used}
        for node in self.graph.node:
            value = constant_node_value(node) if node.op_type == "Constant" and node.output[0] in used else None
            if value is not None:
                found[node.output[0]] = value
        return found

    @cached_property
    def bodies(self) -> Mapping[tuple[str, str], QuantizedGraph]:
        """(First output of a node, attribute that holds a body) -> the body."""
        return {
            (_first_output(node), name): QuantizedGraph(body, body_path(self.path, node, name), self)
            for node in self.graph.node
            for name, body in bodies(node)
        }

    def walk(self) -> Iterator[QuantizedGraph]:
        """The graph itself, then those in it."""
        yield self
        for body in self.bodies.values():
            yield from body.walk()

    def around(self) -> Iterator[QuantizedGraph]:
        """The graphs around it, innermost first."""
        graph = self.outer
        while graph is not None:
            yield graph
            graph = graph.outer

    def home(self, tensor: str) -> QuantizedGraph:
        """The graph that yields a tensor that this one reads."""
        return next((graph for graph in (self, *self.around()) if tensor in graph.own_producers), self)

    def key(self, tensor: str) -> str:
        """Key of a tensor that this graph reads or yields."""
        return tensor_key(self.path, tensor)

    def body(self, owner: NodeProto, name: str) -> QuantizedGraph | None:
        """The body that attribute `name` of a node of this graph holds."""
        return self.bodies.get((_first_output(owner), name))

    def twin(self, node: NodeProto) -> NodeProto | None:
        """What has become of a node of the float model's graph; None if it is gone.

        It is found by the tensor that it yields first: every quantizer in use keeps those names, and many rename nodes.
        """
        found = self.own_producers.get(_first_output(node))
        while found is not None and found.op_type in (*QDQ, "Cast") and found.op_type != node.op_type:
            found = self.own_producers.get(found.input[0])  # the tool put a pair or Cast behind it, under its name
        if found is not None and found.op_type == node.op_type:
            return found
        named = self._named.get(node.name)  # the tool dropped a Relu, and gave its output away
        return named if named is not None and named.op_type == node.op_type else None

    @cached_property
    def _named(self) -> Mapping[str, NodeProto]:
        """Node name -> the node of this graph, where the name is there and unique."""
        counts = Counter(node.name for node in self.graph.node)
        return {node.name: node for node in self.graph.node if node.name and counts[node.name] == 1}

    def quantization(self, tensor: str, *, as_output: bool = False) -> Quantization | None:
        """How the tensor that a node of this graph reads is quantized; None if it is float.

        Args:
            tensor: Its name.
            as_output: Whether it is an output of the graph, so that a QuantizeLinear may yield it for the caller.
        """
        producer = self.producers.get(tensor)
        while producer is not None and producer.op_type == "Cast":
            producer = self.producers.get(producer.input[0])
        if producer is None or producer.op_type not in (QDQ if as_output else QDQ[1:]):
            return None
        before = producer if producer.op_type == "QuantizeLinear" else self.producers.get(producer.input[0])
        scale = self.constants.get(producer.input[1])
        zero_point = self.constants.get(producer.input[2]) if len(producer.input) > 2 else None
        axis = attribute(producer, "axis", 1) if scale is not None and scale.ndim else None
        return Quantization(
            producer,
            before if before is not None and before.op_type == "QuantizeLinear" else None,
            scale,
            zero_point,
            axis,
        )


def _first_output(node: NodeProto) -> str:
    return next((name for name in node.output if name), "")
