"""A check of a quantizer's result as the judge of candidates.

The checks are those of a corpus that need no ground truth. What a case states of its nodes can't be one: in a smaller
model another answer may be the right one.

A fault has a cause beside the name of its check, so that the search for a smaller model doesn't slip from one crash to
another one: where it shows and what was found there, without names and numbers, which change from model to model.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from onnx import ModelProto

from onnxq.corpus.case import Case
from onnxq.corpus.checks import CHECKS, check_names
from onnxq.corpus.format import SCHEMA, Definition, Expect, ModelSource, allowed
from onnxq.corpus.given import Given
from onnxq.corpus.run import CaseRun
from onnxq.errors import OnnxqError, UsageError
from onnxq.quantizers import Quantizer
from onnxq.quantizers.exchange import DATA_OPTIONS
from onnxq.reduce.problem import ReductionProblem

REDUCIBLE = check_names(Expect())
"""Checks that a reduction can keep violated."""

_CAUSES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "residual-skip-only": ("where", "expected", "found"),  # which of the inputs have backbones, and which got pairs
        "valid": ("found",),
        "runs": ("message",),
        "close-to-float": (),
    }
)
"""Check -> the parts of a violation that stay the same when the model gets smaller; of other checks it is the place."""

_QUOTED = re.compile(
    r"""
    "[^"]*" | `[^`]*` | (?<!\w)'[^']*'(?!\w)  # an apostrophe inside of a word, as in "can't", quotes nothing
    | \[[^\[\]]*\] | \{[^{}]*\} | \(unnamed,[^()]*\)
    """,
    re.VERBOSE,
)
"""What stands for names and values in a message."""


@dataclass(frozen=True)
class Finding:
    """How a model violates a check.

    Attributes:
        problems: What is wrong, in readable blocks.
        causes: What stays the same of each of them when the model gets smaller.
    """

    problems: tuple[str, ...]
    causes: tuple[str, ...]


@dataclass(frozen=True)
class CheckPredicate:
    """A check of what a quantizer makes of a model.

    Attributes:
        quantizer: The quantizer.
        check: One of `REDUCIBLE`.
        options: What the quantizer is told beside the samples, with the names that `onnxq.quantize` has for it.
        cause: That of a violation must be this one.
    """

    quantizer: Quantizer
    check: str
    options: Mapping[str, Any] = field(default_factory=dict)
    cause: str = ""

    def __call__(self, problem: ReductionProblem) -> bool:
        """Whether the check is violated, for the same cause."""
        found = find_violation(quantized_run(problem, self.quantizer, self.options), self.check)
        return found is not None and self.cause in found.causes


def check_predicate(
    problem: ReductionProblem, quantizer: Quantizer, check: str, options: Mapping[str, Any] | None = None
) -> tuple[CheckPredicate, Finding]:
    """Let a fault of a quantizer be what a reduction keeps.

    Args:
        problem: The original.
        quantizer: The quantizer.
        check: One of `REDUCIBLE`.
        options: What it is told beside the samples, with the names that `onnxq.quantize` has for it.

    Returns:
        The predicate, and how the original violates the check.

    Raises:
        UsageError: There is no such check, or the original doesn't violate it.
    """
    known_check(check)
    told = {name: value for name, value in (options or {}).items() if name not in DATA_OPTIONS}
    run = quantized_run(problem, quantizer, told)
    found = find_violation(run, check)
    if found is None:
        raise UsageError(_no_violation(run, f"{quantizer.name} {quantizer.version}", check))
    return CheckPredicate(quantizer, check, told, found.causes[0]), found


def known_check(check: str) -> None:
    """Refuse a check that there isn't.

    Raises:
        UsageError: Naming the near misses.
    """
    if check not in REDUCIBLE:
        raise UsageError(f"--check: {allowed('check', check, REDUCIBLE)}")


@dataclass(frozen=True)
class Candidate(Given):
    """The float side of a run whose model comes with its samples, and from no case.

    Attributes:
        problem: Both.
    """

    problem: ReductionProblem

    @property
    def model(self) -> ModelProto:
        """The model."""
        return self.problem.model

    @cached_property
    def feeds(self) -> list[Mapping[str, Any]]:
        """The first sample, as in a run of a case."""
        return list(self.problem.feeds[:1])


@dataclass(frozen=True)
class CandidateRun(CaseRun):
    """A run on a candidate."""

    @cached_property
    def noise(self) -> dict[str, float]:
        """As in any run, but for outputs that are zero everywhere: any rounding would be infinitely far from them."""
        outputs = self.given.outputs[0]
        return {name: ratio for name, ratio in super().noise.items() if np.any(outputs[name])}


def quantized_run(problem: ReductionProblem, quantizer: Quantizer, options: Mapping[str, Any]) -> CandidateRun:
    """Give a candidate to a quantizer; what it raises is kept."""
    definition = Definition(SCHEMA, "candidate", "candidate", ModelSource(file="model.onnx"), quantize=dict(options))
    case = Case(Path("candidate"), definition)
    quantized, error = None, None
    given = ModelProto()
    given.CopyFrom(problem.model)
    try:
        quantized = quantizer.quantize(given, [dict(feed) for feed in problem.feeds], options)
    except Exception as raised:  # a quantizer may raise anything
        error = raised
    policy = case.judged_by(quantizer.policy)
    return CandidateRun(Candidate(case, problem), Expect(), policy, quantized, error, quantizer.name)


def find_violation(run: CandidateRun, check: str) -> Finding | None:
    """How a model violates a check; None if it doesn't, or if there is no result to check."""
    if check == "quantizes":
        return None if run.error is None else Finding(tuple(CHECKS[check](run)), (cause_of(run.error),))
    if run.error is not None:
        return None
    try:
        problems = CHECKS[check](run)
    except (AssertionError, OnnxqError):  # the runtime refuses one of the models, for instance: another check's matter
        return None
    causes = (_cause(problem, _CAUSES.get(check, ("where",))) for problem in problems)
    return Finding(tuple(problems), tuple(causes)) if problems else None


def cause_of(error: BaseException) -> str:
    """What stays the same about a crash when the model gets smaller."""
    return f"{type(error).__name__}: {without_names(str(error))}"


def without_names(text: str) -> str:
    """The last line of a message, without what is quoted or in brackets, and without words of digits or slashes."""
    last = next((line for line in reversed(text.splitlines()) if line.strip()), "")
    return " ".join("#" if re.search(r"[\d/\\_]", word) else word for word in _QUOTED.sub("#", last).split())


def _cause(problem: str, parts: Sequence[str]) -> str:
    """Some parts of a block: its first line says where, others begin with "expected:" or "found:"."""
    lines = problem.splitlines()
    labelled = {line.split(":")[0].strip(): line for line in lines[1:]}
    texts = {"where": lines[0].partition(" in body ")[0], "message": problem, **labelled}
    return ", ".join(without_names(texts.get(part, "")) for part in parts)


def _no_violation(run: CandidateRun, quantizer: str, check: str) -> str:
    others = [name for name in REDUCIBLE if find_violation(run, name) is not None]
    if run.error is not None:
        return f"{quantizer} doesn't quantize the model at all ({run.failure}): reduce it with --check quantizes"
    said = f"; it violates {', '.join(others)}" if others else ""
    return f"what {quantizer} makes of the model doesn't violate {check}, so there is nothing to reduce{said}"
