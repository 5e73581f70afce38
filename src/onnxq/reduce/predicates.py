"""Whether a model still has the fault that it is reduced for: a check of a quantizer's result, or any program.

A fault has a cause beside the name of the check, so that the search for a smaller model doesn't slip from one crash to
another one. The cause of a crash is the type of the exception and what it says, without names and numbers, which change
from model to model.
"""

from __future__ import annotations

import re
import shlex
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto

from onnxq.corpus.format import allowed
from onnxq.errors import OnnxqError, PeerError, UsageError
from onnxq.invariants import INVARIANTS, ModelPair, Violation
from onnxq.model_io import save_model
from onnxq.numerics import Outputs, output_sqnr, run_model
from onnxq.quantizers import Quantizer
from onnxq.quantizers.exchange import private_environment, write_feeds
from onnxq.quantizers.process import Ended, run_program
from onnxq.reduce.problem import BFLOAT16, Feed, ReductionProblem
from onnxq.testing import DEFAULT_SQNR_DB, noise_problems, running_problems

CHECKS = ("quantizes", *INVARIANTS, "runs", "close-to-float")
"""Checks that need no ground truth: those of a corpus that a case states nothing for."""

_PLACEHOLDER = re.compile(r"\{(input|output|calibration)\}")


@dataclass(frozen=True)
class Finding:
    """How a model violates a check.

    Attributes:
        cause: What must be the same in a smaller model; "" where the name of the check says it all.
        problems: What is wrong, in readable blocks.
    """

    cause: str
    problems: tuple[str, ...]


@dataclass(frozen=True)
class CheckPredicate:
    """A check of what a quantizer makes of the model.

    Attributes:
        quantizer: The quantizer.
        check: One of `CHECKS`.
        options: What the quantizer is told beside the calibration samples.
        cause: See `Finding`.
    """

    quantizer: Quantizer
    check: str
    options: Mapping[str, Any] = field(default_factory=dict)
    cause: str = ""

    def __call__(self, problem: ReductionProblem) -> bool:
        """Whether the check is violated, for the same cause."""
        found = self.find(problem)
        return found is not None and found.cause == self.cause

    def find(self, problem: ReductionProblem) -> Finding | None:
        """How a model violates the check; None if it doesn't, or if the quantizer does something else wrong before."""
        given = ModelProto()
        given.CopyFrom(problem.model)
        try:
            quantized = self.quantizer.quantize(given, [dict(feed) for feed in problem.feeds], self.options)
        except Exception as error:  # a quantizer may raise anything
            if self.check != "quantizes":
                return None
            return Finding(cause_of(error), (f"{type(error).__name__}: {error}",))
        try:
            return self._look(problem, quantized)
        except OnnxqError:  # the check itself can't be made: the runtime refuses one of the models, for instance
            return None

    def _look(self, problem: ReductionProblem, quantized: ModelProto) -> Finding | None:
        match self.check:
            case "quantizes":
                return None
            case "runs":
                problems = running_problems(quantized, problem.feeds)
                return _finding(problems, without_names(problems[0]) if problems else "")
            case "close-to-float":
                return _finding(_noise(problem, quantized), "")
        pair = ModelPair(problem.model, quantized, self.quantizer.policy)
        violations: list[Violation] = INVARIANTS[self.check](pair)
        cause = without_names(violations[0].found) if violations and self.check == "valid" else ""
        return _finding(map(str, violations), cause)


def check_predicate(
    problem: ReductionProblem, quantizer: Quantizer, check: str, options: Mapping[str, Any] | None = None
) -> tuple[CheckPredicate, Finding]:
    """Let a quantizer's fault be what a reduction keeps.

    Args:
        problem: The original.
        quantizer: The quantizer.
        check: One of `CHECKS`.
        options: What it is told beside the samples, as `onnxq.quantize` has it.

    Returns:
        The predicate, and how the original violates the check.

    Raises:
        UsageError: There is no such check, or the original doesn't violate it.
    """
    if check not in CHECKS:
        raise UsageError(f"--check: {allowed('check', check, CHECKS)}")
    predicate = CheckPredicate(quantizer, check, options or {})
    found = predicate.find(problem)
    if found is None:
        others = [
            name for name in CHECKS if name != check and CheckPredicate(quantizer, name, options or {}).find(problem)
        ]
        said = f"; it violates {', '.join(others)}" if others else ", nor any other check"
        raise UsageError(
            f"what {quantizer.name} {quantizer.version} makes of the model doesn't violate {check}{said}: "
            "there is nothing to reduce"
        )
    return CheckPredicate(quantizer, check, options or {}, found.cause), found


@dataclass(frozen=True)
class CommandPredicate:
    """A program that is run on each candidate.

    Attributes:
        arguments: The program and its arguments, with placeholders.
        time_limit: Seconds that it may take.
        exit_status: With which it ends if the candidate still fails; None for any but 0. "time" stands for a program
            that doesn't end in time.
    """

    arguments: tuple[str, ...]
    time_limit: float
    exit_status: int | str | None = None

    def __call__(self, problem: ReductionProblem) -> bool:
        """Whether it ends as it has to."""
        return self.is_failure(self.run(problem))

    def is_failure(self, ended: Ended) -> bool:
        """Whether a way to end means that the candidate still fails."""
        if ended.status is None:
            return self.exit_status == "time"
        return bool(ended.status) if self.exit_status is None else ended.status == self.exit_status

    def run(self, problem: ReductionProblem) -> Ended:
        """Run it once.

        Raises:
            PeerError: It can't be started.
        """
        with tempfile.TemporaryDirectory(prefix="onnxq-", ignore_cleanup_errors=True) as temporary:
            folder = Path(temporary)
            files = {name: folder / file for name, file in _FILES.items()}
            save_model(problem.model, files["input"])
            write_samples(problem.feeds, files["calibration"])
            words = [_PLACEHOLDER.sub(lambda match: str(files[match[1]]), word) for word in self.arguments]
            return run_program(words, time_limit=self.time_limit, environment=private_environment(folder))


_FILES = {"input": "model.onnx", "output": "output.onnx", "calibration": "calibration.npz"}


def command_predicate(
    problem: ReductionProblem, line: str, *, exit_status: int | None = None, time_limit: float = 300.0
) -> tuple[CommandPredicate, Ended]:
    """Let the failure of a program be what a reduction keeps.

    Args:
        problem: The original.
        line: The command line. It is split as a shell would do it, but no shell runs it. {input} stands for the model,
            {calibration} for its samples as .npz, {output} for a file that the program may write.
        exit_status: With which it ends if a model fails; None for any but 0.
        time_limit: Seconds after which it is killed. That counts as a failure only if the original fails so.

    Returns:
        The predicate, and how the program ended on the original.

    Raises:
        UsageError: The line is malformed, or the original doesn't fail.
        PeerError: The program can't be started.
    """
    try:
        arguments = tuple(shlex.split(line))
    except ValueError as error:
        raise UsageError(f"--command: the line can't be split: {error}") from None
    if not any("{input}" in word for word in arguments[1:]):
        raise UsageError("--command: {input} is missing; write it where the program takes the model")
    if shutil.which(arguments[0]) is None:
        raise UsageError(f'--command: there is no program "{arguments[0]}"')
    predicate = CommandPredicate(arguments, time_limit, exit_status)
    ended = predicate.run(problem)
    if ended.status is None and exit_status is None:
        predicate = CommandPredicate(arguments, time_limit, "time")
    if not predicate.is_failure(ended):
        wanted = "with another one" if exit_status is None else f"with {exit_status}"
        last = ended.output.rpartition("\n")[2]
        raise UsageError(
            f"the program {ended.how} on the model itself, and where the fault is it has to end {wanted}: there is "
            f"nothing to reduce{f' (it said: {last})' if last else ''}"
        )
    return predicate, ended


def write_samples(feeds: Iterable[Feed], file: Path) -> None:
    """Write samples as the .npz that calibration takes; bfloat16, which it can't hold, as float32."""
    write_feeds(
        [{n: v.astype(np.float32) if v.dtype == BFLOAT16 else v for n, v in feed.items()} for feed in feeds], file
    )


def cause_of(error: BaseException) -> str:
    """What stays the same about a crash when the model gets smaller."""
    said = error.output.rpartition("\n")[2] if isinstance(error, PeerError) and error.output else str(error)
    return f"{type(error).__name__}: {without_names(said)}"


def without_names(text: str) -> str:
    """The last line of a message without what is quoted, paths, numbers, and words that hold digits or slashes."""
    last = next((line for line in reversed(text.splitlines()) if line.strip()), "")
    quoted = re.sub(r"\"[^\"]*\"|'[^']*'|`[^`]*`|\([^()]*\)|\[[^\[\]]*\]|\{[^{}]*\}", "#", last)
    return " ".join("#" if re.search(r"[\d/\\_]|:$", word) else word for word in quoted.split())


def _finding(problems: Iterable[str], cause: str) -> Finding | None:
    found = tuple(problems)
    return Finding(cause, found) if found else None


def _noise(problem: ReductionProblem, quantized: ModelProto) -> list[str]:
    """Outputs that are too far off. One that is zero everywhere in the float model has no ratio, so it doesn't count."""
    reference = run_model(problem.model, problem.feeds)
    ratios = output_sqnr(reference, run_model(quantized, problem.feeds))
    return noise_problems({n: r for n, r in ratios.items() if _has_signal(n, reference)}, DEFAULT_SQNR_DB)


def _has_signal(name: str, reference: Iterable[Outputs]) -> bool:
    return all(np.any(outputs[name]) for outputs in reference)
