r"""Models made of some of the nodes of another one: what they read and nobody makes becomes an input.

       x
       |
     conv1             t         Only add is kept. Its input t has as samples what it held when the whole model ran on
       |  \            / \        those of x; u likewise.
       t   conv2  ->  |   u
       |  /           |  /
      add             add

Neither onnx.utils.Extractor nor onnx-graphsurgeon serves here. The former cuts between named tensors that have declared
types, so it can't leave out a node in the middle, and it doesn't see what bodies capture. The latter writes the whole
model anew: metadata are lost, bodies get declarations that they didn't have, and faults that depend on such things go.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import onnx
from onnx import GraphProto, ModelProto, NodeProto, ValueInfoProto

from onnxq.protos import bodies, copy_fields, walk_nodes
from onnxq.reduce.problem import Feed, ReductionProblem, is_storable
from onnxq.shapes.graphs import free_names
from onnxq.tensor_types import ValueType

_REBUILT = ("node", "input", "output", "initializer", "sparse_initializer", "value_info", "quantization_annotation")


def keep_nodes(problem: ReductionProblem, positions: Sequence[int]) -> ReductionProblem | None:
    """The part of a problem that some of its nodes are.

    Args:
        problem: The whole.
        positions: Of the nodes in the main graph, in order.

    Returns:
        The part. Outputs are those of the whole that these nodes make, and whatever they make that none of them
        reads. None if an input would be no array, or one whose shape isn't the same in all samples.
    """
    graph = problem.model.graph
    nodes = [graph.node[position] for position in positions]
    if not nodes:
        return None
    known = {t.name for t in graph.initializer} | {t.values.name for t in graph.sparse_initializer}
    made = {name for node in nodes for name in node.output if name}
    read = dict.fromkeys(name for node in nodes for name in free_names(node))
    cut = [name for name in read if name not in made and name not in known and name not in problem.feeds[0]]
    inputs = _cut_inputs(problem, cut)
    outputs = _outputs(problem, nodes, set(read))
    if inputs is None or outputs is None:
        return None
    values, feeds = inputs
    return rebuild(problem, nodes, outputs, new_inputs=values, new_feeds=feeds)


def rebuild(
    problem: ReductionProblem,
    nodes: Iterable[NodeProto],
    outputs: Iterable[ValueInfoProto],
    *,
    new_inputs: Sequence[ValueInfoProto] = (),
    new_feeds: Sequence[Feed] = (),
    new_initializers: Sequence[onnx.TensorProto] = (),
) -> ReductionProblem:
    """A problem with other nodes; what they don't read isn't kept.

    Args:
        problem: What they come from.
        nodes: In topological order.
        outputs: Of the model.
        new_inputs: Inputs that the model didn't have.
        new_feeds: Their values, a mapping for each sample.
        new_initializers: Initializers that the model didn't have, or that replace those of the same name.

    Returns:
        The problem.
    """
    whole, model = problem.model, ModelProto()
    copy_fields(model, whole, leave_out="graph")
    _copy_graph(model.graph, whole.graph)
    graph = model.graph
    graph.node.extend(nodes)
    graph.output.extend(outputs)
    needed = {name for node in graph.node for name in free_names(node)} | {value.name for value in graph.output}
    replaced = {t.name: t for t in new_initializers}
    old = {t.name for t in whole.graph.initializer}
    graph.initializer.extend(replaced.get(t.name, t) for t in whole.graph.initializer if t.name in needed)
    graph.initializer.extend(t for t in new_initializers if t.name not in old and t.name in needed)
    graph.sparse_initializer.extend(t for t in whole.graph.sparse_initializer if t.values.name in needed)
    graph.input.extend(v for v in (*whole.graph.input, *new_inputs) if v.name in needed)
    here = needed | {name for node in graph.node for name in node.output}
    typed = {value.name for value in (*graph.input, *graph.output)}
    graph.value_info.extend(v for v in whole.graph.value_info if v.name in here and v.name not in typed)
    _drop_unused_functions(model)
    feeds = [
        {**feed, **more} for feed, more in zip(problem.feeds, new_feeds or ({},) * len(problem.feeds), strict=True)
    ]
    listed = {value.name for value in graph.input} - {t.name for t in graph.initializer}
    return ReductionProblem(model, tuple({n: v for n, v in feed.items() if n in listed} for feed in feeds))


def without_dead_nodes(
    problem: ReductionProblem, nodes: Sequence[NodeProto], outputs: Sequence[ValueInfoProto]
) -> ReductionProblem:
    """Like `rebuild`, and without the nodes that no output needs."""
    needed = {value.name for value in outputs}
    alive = []
    for node in reversed(nodes):
        if needed.intersection(node.output):
            alive.append(node)
            needed.update(free_names(node))
    return rebuild(problem, reversed(alive), outputs)


def declare(name: str, kind: ValueType) -> ValueInfoProto:
    """A declaration."""
    return onnx.helper.make_tensor_value_info(name, kind.elem_type, kind.shape)


def read_instead(nodes: Iterable[NodeProto], old: str, new: str) -> list[NodeProto]:
    """Copies of nodes that read another tensor in place of one, in their bodies too."""
    return [_renamed(node, old, new) if old in free_names(node) else node for node in nodes]


def _renamed(node: NodeProto, old: str, new: str) -> NodeProto:
    copy = NodeProto()
    copy.CopyFrom(node)
    for inner in walk_nodes([copy]):
        inner.input[:] = [new if name == old else name for name in inner.input]
        for _, body in bodies(inner):
            for value in body.output:
                value.name = new if value.name == old else value.name
    return copy


def _cut_inputs(problem: ReductionProblem, cut: Sequence[str]) -> tuple[list[ValueInfoProto], Sequence[Feed]] | None:
    if any(name not in problem.types for name in cut):
        return None
    feeds = problem.observe(cut)
    for name in cut:
        if not all(is_storable(feed[name]) and feed[name].shape == feeds[0][name].shape for feed in feeds):
            return None
    return [declare(name, problem.types[name]) for name in cut], feeds


def _outputs(
    problem: ReductionProblem, nodes: Sequence[NodeProto], read: Collection[str]
) -> list[ValueInfoProto] | None:
    """The outputs that the nodes make, in order, then what none of them reads; at least one output a node."""
    graph = problem.model.graph
    made = {name for node in nodes for name in node.output if name}
    outputs = [value for value in graph.output if value.name in made]
    shown = {value.name for value in outputs}
    wanted = {name for node in graph.node for name in free_names(node)}
    for node in nodes:
        own = [name for name in node.output if name]
        if any(name in read or name in shown for name in own):
            continue
        leaf = next((name for name in own if name in wanted), own[0])
        if leaf not in problem.types:
            return None
        outputs.append(declare(leaf, problem.types[leaf]))
    return outputs


def _copy_graph(target: GraphProto, source: GraphProto) -> None:
    for field, value in source.ListFields():
        if field.name not in _REBUILT:
            target.MergeFrom(GraphProto(**{field.name: value}))


def _drop_unused_functions(model: ModelProto) -> None:
    used = {(node.domain, node.op_type) for node in walk_nodes(model.graph.node)}
    for function in reversed(list(model.functions)):  # callers may stand before or behind what they call
        used |= {(node.domain, node.op_type) for node in walk_nodes(function.node)}
    kept = [function for function in model.functions if (function.domain, function.name) in used]
    if len(kept) < len(model.functions):
        del model.functions[:]
        model.functions.extend(kept)
