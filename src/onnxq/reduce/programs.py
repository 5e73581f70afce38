"""Any program as the judge of candidates: the way in which it ends says whether a model still fails."""

from __future__ import annotations

import re
import shlex
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from onnxq.errors import UsageError
from onnxq.model_io import save_model
from onnxq.quantizers.exchange import private_environment, write_feeds
from onnxq.quantizers.process import Ended, run_program
from onnxq.reduce.problem import BFLOAT16, Feed, ReductionProblem

_PLACEHOLDER = re.compile(r"\{(input|output|calibration)\}")

_FILES = {"input": "model.onnx", "output": "output.onnx", "calibration": "calibration.npz"}


@dataclass(frozen=True)
class CommandPredicate:
    """A program that is run on each candidate.

    Attributes:
        arguments: The program and its arguments, with placeholders.
        time_limit: Seconds that it may take.
        exit_status: With which it ends if the candidate still fails, negative for a signal; None for any above 0.
        is_endless: Whether a candidate that still fails is one that it doesn't end on in time.
    """

    arguments: tuple[str, ...]
    time_limit: float
    exit_status: int | None = None
    is_endless: bool = False

    def __call__(self, problem: ReductionProblem) -> bool:
        """Whether it ends as it has to."""
        return self.is_failure(self.run(problem))

    def is_failure(self, ended: Ended) -> bool:
        """Whether a way to end means that the candidate still fails."""
        if self.is_endless or ended.status is None:
            return self.is_endless and ended.status is None
        return ended.status > 0 if self.exit_status is None else ended.status == self.exit_status

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


def command_predicate(
    problem: ReductionProblem, line: str, *, exit_status: int | None = None, time_limit: float = 300.0
) -> tuple[CommandPredicate, Ended]:
    """Let the failure of a program be what a reduction keeps.

    Args:
        problem: The original.
        line: The command line. It is split as a shell would do it, but no shell runs it. {input} stands for the model,
            {calibration} for its samples as .npz, {output} for a file that the program may write.
        exit_status: With which it ends if a model fails; None for any above 0.
        time_limit: Seconds after which it is killed. That counts as a failure only if the original fails so; likewise
            the signal that ended it.

    Returns:
        The predicate, and how the program ended on the original.

    Raises:
        UsageError: The line is malformed, or the original doesn't fail.
        PeerError: The program can't be started.
    """
    predicate = CommandPredicate(command_words(line), time_limit, exit_status)
    ended = predicate.run(problem)
    if exit_status is None:
        signal = ended.status if ended.status is not None and ended.status < 0 else None
        predicate = replace(predicate, exit_status=signal, is_endless=ended.status is None)
    if not predicate.is_failure(ended):
        wanted = "with another one" if exit_status is None else f"with exit status {exit_status}"
        last = ended.output.rpartition("\n")[2]
        raise UsageError(
            f"the program {ended.how} on the model itself, and where the fault is it has to end {wanted}: there is "
            f"nothing to reduce{f' (it said: {last})' if last else ''}"
        )
    return predicate, ended


def command_words(line: str) -> tuple[str, ...]:
    """Split a command line, and look for the program.

    Raises:
        UsageError: It can't be split, takes no model, or there is no such program.
    """
    try:
        arguments = tuple(shlex.split(line))
    except ValueError as error:
        raise UsageError(f"--command: the line can't be split: {error}") from None
    if not any("{input}" in word for word in arguments[1:]):
        raise UsageError("--command: {input} is missing; write it where the program takes the model")
    if shutil.which(arguments[0]) is None:
        raise UsageError(f'--command: there is no program "{arguments[0]}"')
    return arguments


def write_samples(feeds: Iterable[Feed], file: Path) -> None:
    """Write samples as the .npz that calibration takes; bfloat16, which it can't hold, as float32."""
    write_feeds(
        [{n: v.astype(np.float32) if v.dtype == BFLOAT16 else v for n, v in feed.items()} for feed in feeds], file
    )
