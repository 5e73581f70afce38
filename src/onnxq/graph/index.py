"""One read-only index over a model: who produces and who reads each tensor, in every graph of it.

Nodes and tensors are numbered, so that the rules work on plain lists and never on names. The nodes of a body (If, Loop,
Scan) come right after the node that owns it, so a producer always has a smaller number than its readers, captured
tensors included.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import onnx
from onnx import GraphProto, NodeProto, TensorProto

from onnxq.protos import bodies, is_default_domain
from onnxq.scopes import body_path, tensor_key
from onnxq.tensor_types import GraphTypes, ValueType

ABSENT = -1
"""Number of an optional input or output that is left out, and of the producer of what no node produces."""

MAIN_GRAPH = 0
"""Scope number of the main graph."""

UNKNOWN_TYPE = ValueType(0)

_RANDOM_OPS = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)


class Kind(IntEnum):
    """What a tensor's values depend on, from least to most."""

    CONSTANT = 0
    """Known without running the model: initializers, Constants, and what is computed from such only."""
    SHAPE = 1
    """Depends on the shapes of the inputs but not on their values: Shape, Size, and what is computed from them."""
    DATA = 2
    """Depends on the values of the inputs."""


@dataclass(frozen=True, slots=True)
class Edge:
    """One input of one node.

    Attributes:
        node: Number of the node in the index of the prepared model.
        input: Position among the node's inputs.
    """

    node: int
    input: int


class Use(NamedTuple):
    """A tensor as one graph sees it.

    A body that captures a tensor quantizes it for itself, with a scale of its own: it may run on some samples only, and
    sees other values then than the graph around it. Where both see the same values, the scales come out equal.

    Attributes:
        scope: Number of the graph whose nodes read the tensor.
        tensor: Number of the tensor, which this graph yields or captures.
    """

    scope: int
    tensor: int


@dataclass(frozen=True, slots=True)
class Scope:
    """One graph of the model.

    Attributes:
        graph: The graph.
        owner: Number of the node that holds it as a body; `ABSENT` for the main graph.
        attribute: Name of the attribute that holds it; "" for the main graph.
        path: How reports and keys of tensors name it, see `onnxq.scopes`; "" for the main graph.
    """

    graph: GraphProto
    owner: int
    attribute: str
    path: str


@dataclass(frozen=True, slots=True)
class GraphIndex:
    """The index. Lists are by node number, or by tensor number, as their names say.

    Attributes:
        nodes: Every node, main graph and bodies.
        node_scope: Scope number of each node; 0 is the main graph.
        inputs: Tensor numbers that each node reads, `ABSENT` for an optional input that is left out.
        outputs: Tensor numbers that each node yields, likewise.
        captures: Outer tensors that the bodies of each node read, each once, in order of first use.
        tensor_names: Name of each tensor.
        tensor_types: Type of each tensor.
        tensor_kinds: Kind of each tensor.
        producers: Node that yields each tensor, or `ABSENT`.
        consumers: Edges that read each tensor, in node order, those inside bodies included.
        tensor_scope: Scope number of each tensor.
        origins: For what Identity nodes yield, the tensor at their beginning; each other tensor itself.
        is_output: Whether each tensor is an output of its graph.
        initializers: The stored tensor of each tensor that has a dense one.
        scopes: The graphs.
        graph_inputs: Numbers of the main graph's inputs that no initializer gives a value, in order.
        overridable: Initializers that are inputs of the main graph as well: who runs the model can replace them, so a
            runtime doesn't take them for constants (from IR version 4 on).
    """

    nodes: list[NodeProto]
    node_scope: list[int]
    inputs: list[tuple[int, ...]]
    outputs: list[tuple[int, ...]]
    captures: list[tuple[int, ...]]
    tensor_names: list[str]
    tensor_types: list[ValueType]
    tensor_kinds: list[Kind]
    tensor_scope: list[int]
    origins: list[int]
    producers: list[int]
    consumers: list[list[Edge]]
    is_output: list[bool]
    initializers: dict[int, TensorProto]
    scopes: list[Scope]
    graph_inputs: list[int]
    overridable: frozenset[int]

    def is_variable(self, tensor: int) -> bool:
        """Whether the tensor is there and no constant."""
        return tensor != ABSENT and self.tensor_kinds[tensor] != Kind.CONSTANT

    def is_constant(self, tensor: int) -> bool:
        """Whether the tensor is there and a constant."""
        return tensor != ABSENT and self.tensor_kinds[tensor] == Kind.CONSTANT

    def local_producer(self, tensor: int, node: int) -> int:
        """The node that yields `tensor`, if it stands in the same graph as `node`; else `ABSENT`."""
        producer = self.producers[tensor]
        return producer if producer != ABSENT and self.node_scope[producer] == self.node_scope[node] else ABSENT

    def use(self, edge: Edge) -> Use:
        """The tensor on an edge, as the graph of its node sees it."""
        return Use(self.node_scope[edge.node], self.inputs[edge.node][edge.input])

    def key(self, use: Use) -> str:
        """How reports and calibration name what a graph reads, see `onnxq.scopes`."""
        return tensor_key(self.scopes[use.scope].path, self.tensor_names[use.tensor])

    def data_inputs(self, node: int) -> list[int]:
        """Tensors of kind `DATA` that the node depends on: its inputs and what its bodies capture."""
        kinds = self.tensor_kinds
        return [t for t in (*self.inputs[node], *self.captures[node]) if t != ABSENT and kinds[t] == Kind.DATA]


def build_index(model: onnx.ModelProto, types: GraphTypes) -> GraphIndex:
    """Index a prepared model in one pass.

    Args:
        model: Topologically sorted, each tensor with one producer.
        types: Types of its values, as `onnxq.shapes.prepare` gives them.

    Returns:
        The index; it refers to the nodes of `model`, which must not change while it is in use.
    """
    builder = _Builder()
    builder.add_graph(model.graph, types, Scope(model.graph, ABSENT, "", ""), {})
    inputs = [builder.main[v.name] for v in model.graph.input]
    true_inputs = [t for t in inputs if builder.kinds[t] == Kind.DATA]
    return builder.finish(true_inputs, frozenset(inputs).difference(true_inputs))


class _Builder:
    """Collects the lists of a `GraphIndex` while it walks the graphs."""

    def __init__(self) -> None:
        self.main: dict[str, int] = {}
        self.nodes: list[NodeProto] = []
        self.node_scope: list[int] = []
        self.inputs: list[tuple[int, ...]] = []
        self.outputs: list[tuple[int, ...]] = []
        self.captures: list[tuple[int, ...]] = []
        self.names: list[str] = []
        self.types: list[ValueType] = []
        self.kinds: list[Kind] = []
        self.tensor_scope: list[int] = []
        self.origins: list[int] = []
        self.producers: list[int] = []
        self.consumers: list[list[Edge]] = []
        self.is_output: list[bool] = []
        self.initializers: dict[int, TensorProto] = {}
        self.scopes: list[Scope] = []

    def add_graph(self, graph: GraphProto, types: GraphTypes, scope: Scope, outer: Mapping[str, int]) -> None:
        number = len(self.scopes)
        self.scopes.append(scope)
        visible = dict(outer)
        for tensor in graph.initializer:
            visible[tensor.name] = self._tensor(tensor.name, types, number, ABSENT, Kind.CONSTANT)
            self.initializers[visible[tensor.name]] = tensor
        for sparse in graph.sparse_initializer:
            visible[sparse.values.name] = self._tensor(sparse.values.name, types, number, ABSENT, Kind.CONSTANT)
        initialized = visible.keys() - outer.keys()
        for value in graph.input:
            if value.name not in initialized:
                visible[value.name] = self._tensor(value.name, types, number, ABSENT, Kind.DATA)
        if number == 0:
            self.main = visible
        for position, node in enumerate(graph.node):
            self._add_node(node, position, types, number, visible)
        for value in graph.output:
            if value.name in visible:
                self.is_output[visible[value.name]] = True

    def _add_node(self, node: NodeProto, position: int, types: GraphTypes, scope: int, visible: dict[str, int]) -> None:
        number = len(self.nodes)
        inputs = tuple(visible[name] if name else ABSENT for name in node.input)
        self.nodes.append(node)
        self.node_scope.append(scope)
        self.inputs.append(inputs)
        self.outputs.append(())
        self.captures.append(())
        for slot, tensor in enumerate(inputs):
            if tensor != ABSENT:
                self.consumers[tensor].append(Edge(number, slot))
        held = list(bodies(node))
        if held:
            known, first = len(self.names), number + 1
            for attribute, body in held:
                inner = types.bodies.get((position, attribute), GraphTypes())
                path = body_path(self.scopes[scope].path, node, attribute)
                self.add_graph(body, inner, Scope(body, number, attribute, path), visible)
            self.captures[number] = self._captured(first, known)
        kind = Kind.DATA if held else self._kind(node, inputs)
        self.outputs[number] = tuple(
            self._tensor(name, types, scope, number, kind) if name else ABSENT for name in node.output
        )
        if node.op_type == "Identity" and is_default_domain(node):
            self.origins[self.outputs[number][0]] = self.origins[inputs[0]]
        visible.update((name, t) for name, t in zip(node.output, self.outputs[number], strict=True) if name)

    def _captured(self, first: int, known: int) -> tuple[int, ...]:
        """Outer tensors, which have numbers below `known`, that nodes from number `first` on read."""
        read = (t for inputs in self.inputs[first:] for t in inputs if t != ABSENT)
        return tuple(dict.fromkeys(t for t in read if t < known))

    def _kind(self, node: NodeProto, inputs: tuple[int, ...]) -> Kind:
        if not is_default_domain(node) or node.op_type in _RANDOM_OPS:
            return Kind.DATA
        kind = max((self.kinds[t] for t in inputs if t != ABSENT), default=Kind.CONSTANT)
        return min(kind, Kind.SHAPE) if node.op_type in ("Shape", "Size") else kind

    def _tensor(self, name: str, types: GraphTypes, scope: int, producer: int, kind: Kind) -> int:
        self.names.append(name)
        self.types.append(types.tensors.get(name, UNKNOWN_TYPE))
        self.kinds.append(kind)
        self.tensor_scope.append(scope)
        self.origins.append(len(self.origins))
        self.producers.append(producer)
        self.consumers.append([])
        self.is_output.append(False)
        return len(self.names) - 1

    def finish(self, graph_inputs: list[int], overridable: frozenset[int]) -> GraphIndex:
        return GraphIndex(
            nodes=self.nodes,
            node_scope=self.node_scope,
            inputs=self.inputs,
            outputs=self.outputs,
            captures=self.captures,
            tensor_names=self.names,
            tensor_types=self.types,
            tensor_kinds=self.kinds,
            tensor_scope=self.tensor_scope,
            origins=self.origins,
            producers=self.producers,
            consumers=self.consumers,
            is_output=self.is_output,
            initializers=self.initializers,
            scopes=self.scopes,
            graph_inputs=graph_inputs,
            overridable=overridable,
        )
