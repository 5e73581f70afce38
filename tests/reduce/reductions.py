"""What the tests of the reducer share: problems with made-up samples, predicates on the structure, single passes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import islice

import numpy as np
from onnx import ModelProto, NodeProto

from onnxq.calibration import make_feeds
from onnxq.protos import walk_nodes
from onnxq.reduce import Predicate, ReductionProblem, problem_of
from onnxq.reduce.search import Edits, Pass, Search


def problem(model: ModelProto, *, samples: int = 1) -> ReductionProblem:
    """A model with seeded samples, each its own."""
    (feed,) = islice(make_feeds(model, None), 1)
    scale = [np.float32(1 + n) for n in range(samples)]
    return problem_of(
        model,
        [{name: (v * s).astype(v.dtype) if v.dtype.kind == "f" else v for name, v in feed.items()} for s in scale],
    )


def op_types(problem: ReductionProblem) -> list[str]:
    """Of the nodes of the main graph, in order."""
    return [node.op_type for node in problem.model.graph.node]


def op_counts(problem: ReductionProblem) -> Counter[str]:
    """Of all nodes, those of bodies included."""
    return Counter(node.op_type for node in walk_nodes(problem.model.graph.node))


def holds(*wanted: str) -> Predicate:
    """Whether nodes of these types are there, as many of each as are given."""
    return lambda problem: Counter(wanted) <= op_counts(problem)


def always(problem: ReductionProblem) -> bool:
    return True


def node_of(problem: ReductionProblem, op_type: str) -> NodeProto:
    """The only node of a type in the main graph."""
    (node,) = (node for node in problem.model.graph.node if node.op_type == op_type)
    return node


def after_pass(apply: Pass, problem: ReductionProblem, predicate: Predicate = always) -> ReductionProblem:
    """What one pass alone makes of a problem."""
    search = Search(problem, predicate)
    apply(search)
    return search.best


def after_edits(edits: Edits, problem: ReductionProblem, predicate: Predicate = always) -> ReductionProblem:
    """What a pass of single changes makes of it."""
    return after_pass(lambda search: search.sweep(edits), problem, predicate)


def asking(predicate: Predicate, seen: list[ReductionProblem]) -> Callable[[ReductionProblem], bool]:
    """A predicate that also writes down what it was asked about."""

    def ask(candidate: ReductionProblem) -> bool:
        seen.append(candidate)
        return predicate(candidate)

    return ask
