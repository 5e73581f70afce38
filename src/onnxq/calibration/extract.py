"""The part of a model that some of its tensors need, as a model of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import onnx
from onnx import GraphProto, ModelProto, NodeProto

from onnxq.protos import bodies, walk_graphs
from onnxq.scopes import Site, locate


def extract(model: ModelProto, outputs: Sequence[str]) -> ModelProto:
    """Cut out what computes some tensors, from graph inputs and initializers on.

    What isn't among their ancestors stays behind, so a fault elsewhere in the model does no harm, and weights that
    aren't needed cost nothing. Linear in the size of the graph.

    Args:
        model: Topologically sorted; it isn't modified, and nothing is shared with it.
        outputs: Keys of tensors (see `onnxq.scopes`) in the order wanted; inputs and initializers may be among them.

    Returns:
        A model whose outputs are those of these tensors that are in the main graph. For a tensor of a body the node
        that holds the body is kept, bodies and all, with what it needs. Outputs are declared by name only, as are
        all tensors between: a runtime infers types better than a stale declaration states them. Nodes and inputs keep
        their order; a node name that occurs again is left out, because runtimes refuse it. An initializer that is
        listed among the inputs too (IR 3) is a constant: it is no input here, hence the IR version is at least 4.

    Raises:
        ValueError: A key is that of no tensor.
    """
    located = locate(model, outputs)
    for key in outputs:
        if key not in located:
            raise ValueError(f'"{key}" is no tensor of the model')
    roots = {found.site.root for found in located.values() if found.site.root is not None}
    names = [key for key in dict.fromkeys(outputs) if located[key].site.root is None]
    return _cut(model, (model.graph,), names, sorted(roots))


def extract_constants(model: ModelProto, site: Site, names: Sequence[str]) -> ModelProto:
    """Cut out what computes some constants that one graph of a model sees, be they its own or captured.

    Args:
        model: Topologically sorted; it isn't modified, and nothing is shared with it.
        site: The graph.
        names: The tensors, by their names in it. What they are computed from may stand in any graph around.

    Returns:
        As `extract`, as if all were in one graph. It has inputs if the tensors are no constants after all.

    Raises:
        ValueError: A name is unknown, or what computes it holds a body.
    """
    return _cut(model, site.graphs, list(dict.fromkeys(names)), [])


def _cut(model: ModelProto, graphs: Sequence[GraphProto], outputs: list[str], kept: Sequence[int]) -> ModelProto:
    """The ancestors of some tensors, and of the nodes at some positions, as one graph.

    Several graphs are those around a body and itself: names don't clash, since none may hide another one.
    """
    needed, nodes = _ancestors(graphs, outputs, kept)
    initializers = [t for graph in graphs for t in graph.initializer if t.name in needed]
    sparse = [t for graph in graphs for t in graph.sparse_initializer if t.values.name in needed]
    constants = {t.name for t in initializers} | {t.values.name for t in sparse}

    part = ModelProto(ir_version=max(model.ir_version, 4), opset_import=model.opset_import, functions=model.functions)
    part.graph.name = model.graph.name or "part"
    part.graph.node.extend(nodes)
    part.graph.initializer.extend(initializers)
    part.graph.sparse_initializer.extend(sparse)
    inputs = (v for graph in graphs for v in graph.input)
    part.graph.input.extend(v for v in inputs if v.name in needed and v.name not in constants)
    part.graph.output.extend(onnx.ValueInfoProto(name=name) for name in outputs)
    _drop_repeated_names(part)
    return part


def _drop_repeated_names(model: ModelProto) -> None:
    taken = set[str]()
    for graph in walk_graphs(model.graph):
        for node in graph.node:
            if node.name in taken:
                node.name = ""
            taken.add(node.name)


def _ancestors(
    graphs: Sequence[GraphProto], outputs: Sequence[str], kept: Sequence[int]
) -> tuple[set[str], list[NodeProto]]:
    """Names of all tensors that are needed, `outputs` themselves included, and the nodes that yield them, in order."""
    nodes = [node for graph in graphs for node in graph.node]
    producer = {name: position for position, node in enumerate(nodes) for name in node.output if name}
    sources = {v.name for graph in graphs for v in graph.input}
    sources |= {t.name for graph in graphs for t in graph.initializer}
    sources |= {t.values.name for graph in graphs for t in graph.sparse_initializer}

    positions = set(kept)
    needed = set(outputs).union(*(reads(nodes[position]) for position in kept))
    pending = list(needed)
    while pending:
        name = pending.pop()
        if name not in producer:
            if name not in sources:
                raise ValueError(f'"{name}" is no tensor of the main graph')
            continue
        position = producer[name]
        if position in positions:
            continue
        positions.add(position)
        new = set(reads(nodes[position])) - needed
        needed |= new
        pending.extend(new)
    return needed, [nodes[position] for position in sorted(positions)]


def reads(node: NodeProto) -> Iterator[str]:
    """Tensors of the graph around a node that it needs: its inputs, and what its bodies capture."""
    yield from (name for name in node.input if name)
    for _, body in bodies(node):
        yield from _captured(body)


def _captured(body: GraphProto) -> set[str]:
    read = {name for node in body.node for name in reads(node)}
    read.update(v.name for v in body.output)
    read.difference_update(v.name for v in body.input)
    read.difference_update(t.name for t in body.initializer)
    read.difference_update(t.values.name for t in body.sparse_initializer)
    read.difference_update(name for node in body.node for name in node.output)
    return read
