"""Runs cases without pytest: the same checks and the same verdicts as the plugin gives."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from onnxq.corpus.case import Case, load_case
from onnxq.corpus.checks import run_check
from onnxq.corpus.given import Given
from onnxq.corpus.golden import compare_golden, golden_checks
from onnxq.corpus.run import CaseRun, run_case
from onnxq.errors import CorpusError
from onnxq.quantizers import Quantizer

Status = Literal["passed", "failed", "known", "skipped", "unreadable"]
"""Verdict on one check: "known" fails as the case says it does, "skipped" says nothing, since the case asks for more
than the quantizer offers, "unreadable" is a fault of the case itself."""


@dataclass(frozen=True)
class Outcome:
    """What one check of one case came to.

    Attributes:
        case: The case file.
        quantizer: Name of the quantizer; "" if the case can't be read.
        check: Name of the check; "" if the case can't be read.
        status: The verdict.
        message: What is wrong, or the reason of a known failure or a skip.
    """

    case: Path
    quantizer: str
    check: str
    status: Status
    message: str = ""


def run_cases(
    cases: Iterable[Path], quantizers: Iterable[Quantizer], *, only: Collection[str] | None = None
) -> Iterator[Outcome]:
    """Run cases one by one; only the models of one are in memory.

    Args:
        cases: Case files.
        quantizers: Each runs every case.
        only: Names of checks; None for all.

    Yields:
        The outcomes of each case, in the order of the checks.
    """
    tools = list(quantizers)
    for file in cases:
        try:
            case = load_case(file)
            given = Given(case)
            for quantizer in tools:
                yield from outcomes(case, quantizer, only=only, given=given)
        except CorpusError as error:
            yield Outcome(file, "", "", "unreadable", str(error))


def outcomes(
    case: Case, quantizer: Quantizer, *, only: Collection[str] | None = None, given: Given | None = None
) -> list[Outcome]:
    """Run one case.

    Args:
        case: The case.
        quantizer: What is under test.
        only: Names of checks; None for all.
        given: The float side of the case, from an earlier run of it; None for a new one.

    Returns:
        The outcome of each check. If quantizing fails, and is known to, of this one only.

    Raises:
        CorpusError: The case itself is at fault.
    """
    names = [*case.checks(quantizer.policy), *golden_checks(case, quantizer.name)]
    chosen = [name for name in names if only is None or name in only]
    if not chosen:
        return []
    run = run_case(case, quantizer, given)
    if run.error is not None and case.known_failure(quantizer.name, quantizer.version, "quantizes") is not None:
        chosen = [name for name in chosen if name in ("raises", "quantizes")]
    return [_outcome(run, quantizer, name) for name in chosen]


def _outcome(run: CaseRun, quantizer: Quantizer, check: str) -> Outcome:
    if run.not_offered and check != "raises":
        return Outcome(run.case.path, quantizer.name, check, "skipped", run.not_offered)
    problems = _problems(run, quantizer.name, check)
    known = run.case.known_failure(quantizer.name, quantizer.version, check)
    if known is None:
        status: Status = "failed" if problems else "passed"
        return Outcome(run.case.path, quantizer.name, check, status, "\n".join(problems))
    if problems:
        return Outcome(run.case.path, quantizer.name, check, "known", known.reason)
    message = f"passes, and the case lists it as a known failure: delete that entry. Its reason was: {known.reason}"
    return Outcome(run.case.path, quantizer.name, check, "failed", message)


def _problems(run: CaseRun, quantizer: str, check: str) -> list[str]:
    if not check.startswith("golden-") or run.quantized is None:
        return run_check(check, run)
    compared = compare_golden(run, quantizer, check)
    return [] if compared.state == "same" else [f"{compared.path}: {compared.state}\n{compared.diff()}"]
