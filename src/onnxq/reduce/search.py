"""The search for the smallest model: candidates are tried one by one, and each that passes becomes the best so far."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from onnxq.errors import OnnxqError
from onnxq.reduce.problem import ReductionProblem, Size

Predicate = Callable[[ReductionProblem], bool]
"""Whether a model still has the fault that it is reduced for. It changes neither model nor samples."""

Edit = Callable[[], ReductionProblem | None]
"""Makes a candidate; None where there is nothing to change."""

Edits = Callable[[ReductionProblem], Sequence[Edit]]
"""The changes that one pass can make to a model, in the order in which they are tried."""

Pass = Callable[["Search"], None]
"""Tries one kind of change, by way of the search."""

Progress = Callable[[str], None]

Stopped = Literal["done", "time", "interrupted"]
"""Why a reduction ended: nothing got smaller, the time was up, or Ctrl-C."""


class OutOfTimeError(Exception):
    """The time is up; for the reducer itself."""


@dataclass(frozen=True)
class Limits:
    """What a candidate must be, so that the predicate is asked about it.

    Attributes:
        is_checked: Whether the ONNX checker must accept it, as it does the original.
        is_finite: Whether its outputs must be finite, as those of the original are.
    """

    is_checked: bool
    is_finite: bool

    @staticmethod
    def of(problem: ReductionProblem) -> Limits:
        """What the original is. A model that is broken itself may be what the fault needs."""
        return Limits(not problem.checker_says(), not problem.why_not_finite())

    def allow(self, problem: ReductionProblem) -> bool:
        """Whether a candidate is as good a model as the original: checked, runs, and finite."""
        if self.is_checked and problem.checker_says():
            return False
        return not problem.why_not_run() and not (self.is_finite and problem.why_not_finite())


class Search:
    """The best model so far, and how candidates are tried. One object for one reduction.

    Args:
        problem: The original.
        predicate: Whether a candidate still fails.
        deadline: When the time is up, by `time.monotonic`; None for never.
        progress: Told each time that something got smaller.
    """

    def __init__(
        self,
        problem: ReductionProblem,
        predicate: Predicate,
        deadline: float | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.best = problem
        self.tried = 0
        """Candidates that the predicate was asked about."""
        self._predicate = predicate
        self._limits = Limits.of(problem)
        self._deadline = deadline
        self._progress = progress
        self._seen = {problem.digest}

    def adopt(self, candidate: ReductionProblem | None, *, is_equal_enough: bool = False) -> bool:
        """Try a candidate: if it is smaller, valid, and still fails, it becomes the best.

        Args:
            candidate: None is never adopted.
            is_equal_enough: Whether it needn't be smaller.

        Returns:
            Whether it was adopted.

        Raises:
            OutOfTimeError: The time was up before.
        """
        if self._deadline is not None and time.monotonic() >= self._deadline:
            raise OutOfTimeError
        if candidate is None or not (is_equal_enough or candidate.size < self.best.size):
            return False
        if candidate.digest in self._seen:
            return False
        self._seen.add(candidate.digest)
        if not self._limits.allow(candidate):
            return False
        self.tried += 1
        self._tell()
        if not self._predicate(candidate):
            return False
        self.best = candidate
        return True

    def sweep(self, edits: Edits) -> None:
        """Try all changes of a pass, each on the best so far.

        After a change was adopted, the one that now stands at its place is next. So a pass is linear in the number of
        places, however many of them change.
        """
        place = 0
        while place < len(choices := edits(self.best)):
            best = self.best
            while place < len(choices) and self.best is best:
                if not self.attempt(choices[place]):
                    place += 1

    def attempt(self, edit: Edit) -> bool:
        """Make a candidate and try it; whether it was adopted."""
        try:
            candidate = edit()
        except (OnnxqError, ValueError):  # what would come out is no model: shapes don't fit, for instance
            candidate = None
        return self.adopt(candidate)

    def _tell(self) -> None:
        if self._progress is not None:
            size = self.best.size
            self._progress(f"{size.nodes} nodes, {size.elements} elements left; candidate {self.tried}")


@dataclass(frozen=True)
class Reduction:
    """What a reduction came to.

    Attributes:
        problem: The smallest model found, with its samples.
        before: Size of the original.
        tried: How many candidates the predicate was asked about.
        stopped: Why it ended.
    """

    problem: ReductionProblem
    before: Size
    tried: int
    stopped: Stopped

    @property
    def after(self) -> Size:
        """Size of the result."""
        return self.problem.size


def reduce_problem(
    problem: ReductionProblem,
    predicate: Predicate,
    passes: Sequence[Pass],
    *,
    last: Pass,
    time_limit: float | None = None,
    progress: Progress | None = None,
) -> Reduction:
    """Apply passes in turn until none makes the model smaller.

    Args:
        problem: The original, for which the predicate is true.
        predicate: Whether a candidate still fails.
        passes: Applied again and again.
        last: Applied once, when they are done.
        time_limit: Seconds; what is found by then counts.
        progress: Told how far it is.

    Returns:
        The result. Ctrl-C ends the search, and not the process: the best so far is the result.
    """
    deadline = None if time_limit is None else time.monotonic() + time_limit
    search = Search(problem, predicate, deadline, progress)
    stopped: Stopped = "done"
    try:
        while True:
            before = search.best
            for apply in passes:
                apply(search)
            if search.best is before:
                break
        last(search)
    except OutOfTimeError:
        stopped = "time"
    except KeyboardInterrupt:
        stopped = "interrupted"
    return Reduction(search.best, problem.size, search.tried, stopped)
