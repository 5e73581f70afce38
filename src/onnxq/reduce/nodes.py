"""Passes that make nodes fewer: cutting out a part, leaving nodes out, passing them by, folding constants."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from onnx import NodeProto, TensorProto, ValueInfoProto, numpy_helper

from onnxq.protos import walk_nodes
from onnxq.reduce.problem import ReductionProblem, is_storable
from onnxq.reduce.search import Edit, Search
from onnxq.reduce.subgraph import declare, keep_nodes, read_instead, rebuild, without_dead_nodes
from onnxq.shapes.graphs import free_names

FOLD_LIMIT = 2**20
"""Elements that folding constants may add."""

_RANDOM = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)


def cut_ends(search: Search) -> None:
    """Find the shortest run of nodes that fails, by bisection: first where it ends, then where it begins.

    So the steps are as many as the logarithm of the nodes, and each has a smaller model than the one before. Where
    failing isn't monotone, the result is only no larger than the original.
    """
    for is_end in (True, False):
        low, high = 0, len(search.best.model.graph.node)
        while high - low > 1:
            middle = (low + high) // 2
            kept = range(middle) if is_end else range(high - middle, high)
            if search.attempt(partial(keep_nodes, search.best, kept)):
                high = middle
            else:
                low = middle


def cut_chunks(search: Search) -> None:
    """Leave out chunks of neighbouring nodes: halves, quarters, and so on to single ones."""
    chunk = len(search.best.model.graph.node) // 2
    while chunk:
        search.sweep(partial(_chunk_edits, chunk))
        chunk //= 2


def bypass_edits(problem: ReductionProblem) -> list[Edit]:
    """Let the readers of a node read one of its inputs of the same type and shape instead."""
    types = problem.types
    return [
        partial(_bypass, problem, position, output, source)
        for position, node in enumerate(problem.model.graph.node)
        for output in node.output
        for source in dict.fromkeys(node.input)
        if output in types and types.get(source) == types[output]
    ]


def folding_edits(problem: ReductionProblem) -> list[Edit]:
    """Store what nodes compute from constants alone: of all such nodes at once, then of each that reads stored ones."""
    stored = _stored_names(problem)
    nodes = list(problem.model.graph.node)
    every = list(_constant_positions(nodes, stored))
    single = [position for position in every if stored.issuperset(free_names(nodes[position]))]
    return [partial(_fold, problem, positions) for positions in (every, *([p] for p in single)) if positions]


def _chunk_edits(length: int, problem: ReductionProblem) -> list[Edit]:
    count = len(problem.model.graph.node)
    return [
        partial(keep_nodes, problem, [*range(start), *range(min(start + length, count), count)])
        for start in range(0, count, length)
    ]


def _bypass(problem: ReductionProblem, position: int, output: str, source: str) -> ReductionProblem | None:
    graph = problem.model.graph
    nodes = [*graph.node[: position + 1], *read_instead(graph.node[position + 1 :], output, source)]
    is_made = any(source in node.output for node in nodes)
    outputs: list[ValueInfoProto] = []
    for value in graph.output:
        if value.name != output:
            outputs.append(value)
        elif is_made and all(other.name != source for other in graph.output):
            outputs.append(declare(source, problem.types[source]))
    return without_dead_nodes(problem, nodes, outputs) if outputs else None


def _fold(problem: ReductionProblem, positions: Sequence[int]) -> ReductionProblem | None:
    graph, folded = problem.model.graph, set(positions)
    others = [node for position, node in enumerate(graph.node) if position not in folded]
    read = {name for node in others for name in free_names(node)} | {value.name for value in graph.output}
    names = [name for position in positions for name in graph.node[position].output if name in read]
    values = problem.observe(names, samples=1)[0]
    if not all(is_storable(value) for value in values.values()):
        return None
    if sum(value.size for value in values.values()) > FOLD_LIMIT:
        return None
    tensors: list[TensorProto] = [numpy_helper.from_array(value, name) for name, value in values.items()]
    return rebuild(problem, others, graph.output, new_initializers=tensors)


def _stored_names(problem: ReductionProblem) -> set[str]:
    graph = problem.model.graph
    return {t.name for t in graph.initializer} | {t.values.name for t in graph.sparse_initializer}


def _constant_positions(nodes: Iterable[NodeProto], stored: Iterable[str]) -> Iterator[int]:
    known = set(stored)
    for position, node in enumerate(nodes):
        if known.issuperset(free_names(node)) and not any(inner.op_type in _RANDOM for inner in walk_nodes([node])):
            known.update(node.output)
            yield position
