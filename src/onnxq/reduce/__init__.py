"""Reducing a model that violates a check to a smallest one that still does.

problem = problem_of(model, feeds)
predicate, finding = check_predicate(problem, quantizer, "residual-skip-only")
reduction = reduce_model(problem, predicate)
reduction.problem.model, reduction.problem.feeds
"""

from __future__ import annotations

from onnxq.reduce.branches import inlining_edits
from onnxq.reduce.checks import REDUCIBLE, CheckPredicate, Finding, check_predicate, known_check
from onnxq.reduce.interface import input_edits, operand_edits, output_edits
from onnxq.reduce.lengths import coarse_edits, length_edits
from onnxq.reduce.nodes import bypass_edits, cut_chunks, cut_ends, folding_edits
from onnxq.reduce.problem import ReductionProblem, Size, is_storable, problem_of
from onnxq.reduce.programs import CommandPredicate, command_predicate, command_words, write_samples
from onnxq.reduce.search import Edits, Pass, Predicate, Progress, Reduction, reduce_problem
from onnxq.reduce.simplify import attribute_edits, declaration_edits, kernel_edits, rename, weight_edits


def sweeping(edits: Edits) -> Pass:
    """A pass that tries all changes of a kind."""
    return lambda search: search.sweep(edits)


PASSES: tuple[Pass, ...] = (
    sweeping(coarse_edits),
    cut_ends,
    cut_chunks,
    *map(
        sweeping,
        (
            output_edits,
            folding_edits,
            bypass_edits,
            inlining_edits,
            operand_edits,
            input_edits,
            length_edits,
            kernel_edits,
            declaration_edits,
            attribute_edits,
            weight_edits,
        ),
    ),
)
"""All passes, those first that make much smaller at little cost."""


def reduce_model(
    problem: ReductionProblem,
    predicate: Predicate,
    *,
    time_limit: float | None = None,
    progress: Progress | None = None,
) -> Reduction:
    """Find a smallest model that still has a fault.

    Before the predicate is asked about a candidate, the ONNX checker has accepted it, it has run in onnxruntime on all
    samples, and its outputs were finite: as far as that is so of the original. A model is smaller if it has fewer
    nodes; of equally many, fewer elements; then fewer inputs and outputs, fewer attributes, simpler weights, fewer
    declarations. A tensor at which the model is cut becomes an input whose samples are what it held. The same call
    gives the same result, unless time runs out.

    Args:
        problem: From `problem_of`.
        predicate: Whether a candidate still has the fault; asked in this process, one candidate after the other. Its
            exceptions aren't caught.
        time_limit: Seconds. What is found by then is the result; a predicate that is being asked is waited for.
        progress: Told in a line how far it is.

    Returns:
        The reduction. Ctrl-C ends the search, and the best so far is the result.
    """
    return reduce_problem(problem, predicate, PASSES, last=rename, time_limit=time_limit, progress=progress)


__all__ = [
    "PASSES",
    "REDUCIBLE",
    "CheckPredicate",
    "CommandPredicate",
    "Finding",
    "Predicate",
    "Reduction",
    "ReductionProblem",
    "Size",
    "check_predicate",
    "command_predicate",
    "command_words",
    "is_storable",
    "known_check",
    "problem_of",
    "reduce_model",
    "write_samples",
]
