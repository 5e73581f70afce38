"""Changes to nodes and names that mean nothing: what is computed stays, and so must every decision.

Each is a pure function of a model and a source of randomness. The model is valid, its nodes are sorted, and it isn't
changed. All work in bodies too. What a body captures is a tensor like any other: names are unique in a model except
between bodies that can't see each other, and new names are unique everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

from onnx import GraphProto, ModelProto, NodeProto, helper

from onnxq.calibration import make_feeds
from onnxq.graph import COMMUTATIVE
from onnxq.protos import NameSource, bodies, is_default_domain, walk_graphs, walk_nodes
from onnxq.relations.variant import Variant, copy_model, replace_all
from onnxq.renaming import rename
from onnxq.shapes import infer_types
from onnxq.tensor_types import GraphTypes

Transform = Callable[[ModelProto, Random], Variant]

SHARE = 0.4
"""Of the places where something can be put in, the part where it is."""


def swap_operands(model: ModelProto, rng: Random) -> Variant:
    """Shuffle the operands of commutative operators: Add, Mul, Sum, Max, ..., never Concat, Sub or Div."""
    copy = copy_model(model)
    for node in walk_nodes(copy.graph.node):
        if node.op_type in COMMUTATIVE and is_default_domain(node):
            operands = list(node.input)
            rng.shuffle(operands)
            # Two operands that stay where they are show nothing, so they always change places.
            node.input[:] = operands if len(operands) > 2 else reversed(node.input)
    return Variant(copy)


def rename_all(model: ModelProto, rng: Random) -> Variant:
    """Give every node, tensor and symbolic dim a new name whose order says nothing about the old one."""
    copy = copy_model(model)
    new: dict[str, str] = {"": ""}
    wanted = sum(1 for _ in _names(model))
    numbers = iter(rng.sample(range(max(10**6, wanted)), wanted))

    def of_tensor(name: str) -> str:
        if name not in new:
            new[name] = f"t{next(numbers):06}"
        return new[name]

    rename(copy, tensors=of_tensor, nodes=lambda _: f"n{next(numbers):06}", dims="s_{}".format)
    return Variant(copy, {changed: name for name, changed in new.items()})


def unname_nodes(model: ModelProto, rng: Random) -> Variant:
    """Take the names of all nodes away."""
    copy = copy_model(model)
    for node in walk_nodes(copy.graph.node):
        node.ClearField("name")
    return Variant(copy)


def name_nodes_alike(model: ModelProto, rng: Random) -> Variant:
    """Give all nodes one name, which ONNX allows. onnxruntime refuses to load such a model."""
    copy = copy_model(model)
    for node in walk_nodes(copy.graph.node):
        node.name = "node"
    return Variant(copy)


def reorder_nodes(model: ModelProto, rng: Random) -> Variant:
    """Put the nodes of each graph in another order that is valid, and its initializers in any."""
    copy = copy_model(model)
    for graph in list(walk_graphs(copy.graph)):
        replace_all(graph.initializer, rng.sample(graph.initializer, len(graph.initializer)))
    # Inner graphs first: setting the nodes of a graph makes copies of its bodies.
    for graph in reversed(list(walk_graphs(copy.graph))):
        replace_all(graph.node, [graph.node[position] for position in _any_order(graph, rng)])
    return Variant(copy)


def insert_identities(model: ModelProto, rng: Random) -> Variant:
    """Put Identity nodes between some nodes and the variable tensors of a float type that they read."""
    return _with_identities(model, rng, on_constants=False)


def insert_identities_on_constants(model: ModelProto, rng: Random) -> Variant:
    """Put Identity nodes between some nodes and their weights and other float constants.

    Not where shapes follow from the values: shape inference reads only stored ones.
    """
    return _with_identities(model, rng, on_constants=True)


def add_dead_nodes(model: ModelProto, rng: Random) -> Variant:
    """Put in nodes that nothing reads: behind weights and inputs, and beside the readers of what nodes yield."""
    copy, names = copy_model(model), NameSource(model)
    for graph, floats, _ in reversed(list(_typed_graphs(copy.graph, infer_types(model)[0], frozenset(), frozenset()))):
        own = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
        nodes = [_dead_node(name, names, rng) for name in sorted(own & floats) if rng.random() < SHARE]
        for node in graph.node:
            nodes.append(node)
            made = [name for name in node.output if name in floats and rng.random() < SHARE]
            nodes += [_dead_node(name, names, rng) for name in made]
        replace_all(graph.node, nodes)
    return Variant(copy)


def union(model: ModelProto, other: ModelProto, rng: Random) -> tuple[Variant, Variant]:
    """Put another model beside a model, in one graph, their nodes interleaved.

    Args:
        model: Keeps its names and the order of its nodes.
        other: Of the same opset. Its nodes and tensors are called "beside_" and what they were; its inputs and outputs
            come behind those of the model.
        rng: Of the order.

    Returns:
        The merged model twice: as a variant of the one, and as a variant of the other.
    """
    merged, beside, names = copy_model(model), copy_model(other), NameSource(model)
    new: dict[str, str] = {"": ""}

    def of_tensor(name: str) -> str:
        if name not in new:
            new[name] = names.fresh(f"beside_{name}")
        return new[name]

    rename(beside, tensors=of_tensor, nodes=lambda name: name and f"beside_{name}")
    graph = merged.graph
    for field in ("input", "output", "initializer", "sparse_initializer", "value_info"):
        getattr(graph, field).extend(getattr(beside.graph, field))
    rests = [list(reversed(part.node)) for part in (model.graph, beside.graph)]
    nodes = []
    while any(rests):
        nodes.append(rng.choices(rests, [len(rest) for rest in rests])[0].pop())
    replace_all(graph.node, nodes)
    mine, its = (next(iter(make_feeds(part, None))) for part in (model, other))
    # In the names of the other model those of the first one mustn't be taken for its own.
    its_names = {name: f"beside_{name}" for name in _names(model)} | {changed: old for old, changed in new.items()}
    return (
        Variant(merged, more_feeds={new[name]: value for name, value in its.items()}),
        Variant(merged, its_names, more_feeds=mine),
    )


def _with_identities(model: ModelProto, rng: Random, *, on_constants: bool) -> Variant:
    copy, names = copy_model(model), NameSource(model)
    old_names: dict[str, str] = {}
    graphs = list(_typed_graphs(copy.graph, infer_types(model)[0], frozenset(), frozenset()))
    for graph, floats, constants in reversed(graphs):
        legal = floats & constants if on_constants else floats - constants
        nodes: list[NodeProto] = []
        for node in graph.node:
            for slot, name in enumerate(node.input):
                shapes_follow = node.op_type in ("Resize", "Upsample") and slot > 0
                if name in legal and not shapes_follow and rng.random() < SHARE:
                    node.input[slot] = names.fresh("inserted")
                    old_names[node.input[slot]] = name
                    nodes.append(helper.make_node("Identity", [name], [node.input[slot]]))
            nodes.append(node)
        replace_all(graph.node, nodes)
    return Variant(copy, old_names)


def _dead_node(tensor: str, names: NameSource, rng: Random) -> NodeProto:
    return helper.make_node(rng.choice(["Identity", "Relu", "Neg"]), [tensor], [names.fresh("dead")])


def _typed_graphs(
    graph: GraphProto, types: GraphTypes, floats: frozenset[str], constants: frozenset[str]
) -> Iterator[tuple[GraphProto, frozenset[str], frozenset[str]]]:
    """The graph and its bodies, outer ones first, each with the float tensors and the constants that it sees."""
    floats |= {name for name, kind in types.tensors.items() if kind.is_float}
    constants |= {tensor.name for tensor in graph.initializer}
    constants |= {name for node in graph.node if node.op_type == "Constant" for name in node.output}
    yield graph, floats, constants
    for position, node in enumerate(graph.node):
        for attribute, body in bodies(node):
            yield from _typed_graphs(body, types.bodies.get((position, attribute), GraphTypes()), floats, constants)


def _any_order(graph: GraphProto, rng: Random) -> Iterator[int]:
    """Positions of the nodes in a random topological order."""
    producers = {name: position for position, node in enumerate(graph.node) for name in node.output if name}
    readers: list[list[int]] = [[] for _ in graph.node]
    missing = []
    for position, node in enumerate(graph.node):
        before = {producers[name] for inner in walk_nodes([node]) for name in _reads(inner) if name in producers}
        before.discard(position)
        missing.append(len(before))
        for producer in sorted(before):
            readers[producer].append(position)
    ready = [position for position, number in enumerate(missing) if not number]
    while ready:
        chosen = rng.randrange(len(ready))
        ready[chosen], ready[-1] = ready[-1], ready[chosen]
        position = ready.pop()
        yield position
        for reader in readers[position]:
            missing[reader] -= 1
            if not missing[reader]:
                ready.append(reader)


def _reads(node: NodeProto) -> Iterator[str]:
    """What a node reads, and what its bodies yield, which they may have captured."""
    yield from node.input
    for _, body in bodies(node):
        yield from (value.name for value in body.output)


def _names(model: ModelProto) -> Iterator[str]:
    for node in walk_nodes(model.graph.node):
        yield node.name
        yield from node.output
    for graph in walk_graphs(model.graph):
        yield from (tensor.name for tensor in graph.initializer)
        yield from (value.name for value in (*graph.input, *graph.output, *graph.value_info))
