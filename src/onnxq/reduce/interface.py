"""Passes that make what is read and yielded less: outputs, inputs of the model, optional inputs of nodes."""

from __future__ import annotations

from functools import partial

import onnx
from onnx import NodeProto

from onnxq.reduce.problem import ReductionProblem
from onnxq.reduce.search import Edit
from onnxq.reduce.subgraph import read_instead, rebuild, without_dead_nodes
from onnxq.shapes.schemas import Operators

_LOOP_CONTROLS = 2
"""Of Loop the trip count and the condition come first: without both it never ends."""


def output_edits(problem: ReductionProblem) -> list[Edit]:
    """Drop nodes that no output needs, then each output with what only it needs."""
    graph = problem.model.graph
    outputs, nodes = list(graph.output), list(graph.node)
    fewer = [outputs[:position] + outputs[position + 1 :] for position in range(len(outputs)) if len(outputs) > 1]
    return [partial(without_dead_nodes, problem, nodes, kept) for kept in (outputs, *fewer)]


def input_edits(problem: ReductionProblem) -> list[Edit]:
    """Let one input of the model stand for another one of the same type and shape."""
    feed = problem.feeds[0]
    return [
        partial(_merge, problem, kept, dropped)
        for number, dropped in enumerate(feed)
        for kept in list(feed)[:number]
        if (feed[kept].dtype, feed[kept].shape) == (feed[dropped].dtype, feed[dropped].shape)
    ]


def operand_edits(problem: ReductionProblem) -> list[Edit]:
    """Drop optional inputs of nodes, such as a bias, and operands of those that take any number."""
    operators = Operators(problem.model)
    return [
        partial(_without_operand, problem, position, slot)
        for position, node in enumerate(problem.model.graph.node)
        for slot in reversed(range(len(node.input)))
        if node.input[slot] and _is_optional(operators.schema(node), node, slot)
    ]


def _merge(problem: ReductionProblem, kept: str, dropped: str) -> ReductionProblem | None:
    graph = problem.model.graph
    if any(value.name == dropped for value in graph.output):
        return None
    return rebuild(problem, read_instead(graph.node, dropped, kept), graph.output)


def _is_optional(schema: onnx.defs.OpSchema | None, node: NodeProto, slot: int) -> bool:
    if schema is None or (node.op_type == "Loop" and slot < _LOOP_CONTROLS):
        return False
    options = onnx.defs.OpSchema.FormalParameterOption
    option = schema.inputs[min(slot, len(schema.inputs) - 1)].option
    if option == options.Variadic:
        return len(node.input) > max(schema.min_input, 1)
    return bool(option == options.Optional)


def _without_operand(problem: ReductionProblem, position: int, slot: int) -> ReductionProblem | None:
    graph = problem.model.graph
    node = NodeProto()
    node.CopyFrom(graph.node[position])
    names = list(node.input)
    names[slot] = ""
    schema = Operators(problem.model).schema(node)
    if schema is not None and slot >= len(schema.inputs) - 1:
        del names[slot]
    while names and not names[-1]:
        names.pop()
    node.input[:] = names
    nodes = [*graph.node[:position], node, *graph.node[position + 1 :]]
    return without_dead_nodes(problem, nodes, graph.output)
