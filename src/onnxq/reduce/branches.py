"""The pass that takes one branch of an If into the graph around it. Loops and scans are only kept or dropped whole."""

from __future__ import annotations

from functools import partial

from onnx import GraphProto, NodeProto, TensorProto, helper

from onnxq.protos import NameSource, bodies, is_default_domain, walk_nodes
from onnxq.reduce.problem import ReductionProblem
from onnxq.reduce.search import Edit
from onnxq.reduce.subgraph import rebuild
from onnxq.shapes.graphs import defined_names


def inlining_edits(problem: ReductionProblem) -> list[Edit]:
    """Put the nodes of one branch in place of each If of the main graph."""
    return [
        partial(_inline, problem, position, branch)
        for position, node in enumerate(problem.model.graph.node)
        if node.op_type == "If" and is_default_domain(node)
        for _, branch in bodies(node)
    ]


def _inline(problem: ReductionProblem, position: int, branch: GraphProto) -> ReductionProblem | None:
    """The branch's tensors get names of their own; its outputs those of the If."""
    if branch.sparse_initializer:
        return None
    graph, owner = problem.model.graph, problem.model.graph.node[position]
    source = NameSource(problem.model)
    made = {name for node in branch.node for name in node.output if name}
    new_names = {name: source.fresh(name) for name in defined_names(branch)}
    nodes: list[NodeProto] = []
    for inner, outer in zip(branch.output, owner.output, strict=True):
        if not outer:
            continue
        if inner.name in made and new_names[inner.name] not in owner.output:
            new_names[inner.name] = outer
        else:  # a captured tensor, a constant, or one that another output already is
            nodes.append(helper.make_node("Identity", [new_names.get(inner.name, inner.name)], [outer]))
    inlined = [_renamed(node, new_names) for node in branch.node]
    stored = [_renamed_tensor(tensor, new_names[tensor.name]) for tensor in branch.initializer]
    whole = [*graph.node[:position], *inlined, *nodes, *graph.node[position + 1 :]]
    return rebuild(problem, whole, graph.output, new_initializers=stored)


def _renamed(node: NodeProto, new_names: dict[str, str]) -> NodeProto:
    copy = NodeProto()
    copy.CopyFrom(node)
    for inner in walk_nodes([copy]):
        inner.input[:] = [new_names.get(name, name) for name in inner.input]
        for _, body in bodies(inner):
            for value in body.output:
                value.name = new_names.get(value.name, value.name)
    copy.output[:] = [new_names.get(name, name) for name in copy.output]
    return copy


def _renamed_tensor(tensor: TensorProto, name: str) -> TensorProto:
    copy = TensorProto()
    copy.CopyFrom(tensor)
    copy.name = name
    return copy
