"""The part of a model that some of its tensors need, as a model of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import onnx
from onnx import GraphProto, ModelProto, NodeProto

from onnxq.protos import bodies, walk_graphs


def extract(model: ModelProto, outputs: Sequence[str]) -> ModelProto:
    """Cut out what computes some tensors, from graph inputs and initializers on.

    What isn't among their ancestors stays behind, so a fault elsewhere in the model does no harm, and weights that
    aren't needed cost nothing. Linear in the size of the graph.

    Args:
        model: Topologically sorted; it isn't modified, and nothing is shared with it.
        outputs: Tensors of the main graph, in the order wanted; inputs and initializers of it may be among them.

    Returns:
        A model whose outputs are these tensors. They are declared by name only, as are all others between: a
        runtime infers types better than a stale declaration states them. Nodes and inputs keep their order; a node
        name that occurs again is left out, because runtimes refuse it. An initializer that is listed among the
        inputs too (IR 3) is a constant: it is no input here, hence the IR version is at least 4.

    Raises:
        ValueError: A name is no tensor of the main graph.
    """
    graph = model.graph
    needed, nodes = _ancestors(graph, outputs)
    initializers = [t for t in graph.initializer if t.name in needed]
    sparse = [t for t in graph.sparse_initializer if t.values.name in needed]
    constants = {t.name for t in initializers} | {t.values.name for t in sparse}

    part = ModelProto(ir_version=max(model.ir_version, 4), opset_import=model.opset_import, functions=model.functions)
    part.graph.name = graph.name or "part"
    part.graph.node.extend(nodes)
    part.graph.initializer.extend(initializers)
    part.graph.sparse_initializer.extend(sparse)
    part.graph.input.extend(v for v in graph.input if v.name in needed and v.name not in constants)
    part.graph.output.extend(onnx.ValueInfoProto(name=name) for name in dict.fromkeys(outputs))
    _drop_repeated_names(part)
    return part


def _drop_repeated_names(model: ModelProto) -> None:
    taken = set[str]()
    for graph in walk_graphs(model.graph):
        for node in graph.node:
            if node.name in taken:
                node.name = ""
            taken.add(node.name)


def _ancestors(graph: GraphProto, outputs: Sequence[str]) -> tuple[set[str], list[NodeProto]]:
    """Names of all tensors that `outputs` need, themselves included, and the nodes that yield them, in graph order."""
    nodes = list(graph.node)
    producer = {name: position for position, node in enumerate(nodes) for name in node.output if name}
    sources = {v.name for v in graph.input} | {t.name for t in graph.initializer}
    sources |= {t.values.name for t in graph.sparse_initializer}

    needed, positions, pending = set(outputs), set[int](), list(outputs)
    while pending:
        name = pending.pop()
        position = producer.get(name)
        if position is None:
            if name not in sources:
                raise ValueError(f'"{name}" is no tensor of the main graph')
            continue
        if position in positions:
            continue
        positions.add(position)
        new = set(_reads(nodes[position])) - needed
        needed |= new
        pending.extend(new)
    return needed, [nodes[position] for position in sorted(positions)]


def _reads(node: NodeProto) -> Iterator[str]:
    """Tensors of the graph around a node that it needs: its inputs, and what its bodies capture."""
    yield from (name for name in node.input if name)
    for _, body in bodies(node):
        yield from _captured(body)


def _captured(body: GraphProto) -> set[str]:
    read = {name for node in body.node for name in _reads(node)}
    read.update(v.name for v in body.output)
    read.difference_update(v.name for v in body.input)
    read.difference_update(t.name for t in body.initializer)
    read.difference_update(t.values.name for t in body.sparse_initializer)
    read.difference_update(name for node in body.node for name in node.output)
    return read
