"""Golden files: what a quantizer made of a case the last time that a person looked, as text to read in a review.

`expected/placement.txt` holds a line for each quantized edge, in the order of the float model's nodes:

    # onnxq placement, schema 1
    conv1 = Conv input 0 x: int8
    conv1 = Conv input 1 conv1_w: int8 per axis 0
    add = Add input 1 skip: int8
    -> output y: int8

The last line is there if the graph output `y` is quantized (`quantize_outputs`).

Everything in it is named by tensors of the float model, and read off the quantized model, so it can be made of any
quantizer's result, and inserted Q/DQ renumber nothing. Columns aren't aligned: one changed edge is one changed line.

The files of onnxq lie in `expected/`, those of another quantizer in `expected/<its name>/`: what one tool did is no
standard for another. What every quantizer must do stands under `[expect]` in the case file.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from onnxq.corpus.case import Case
from onnxq.corpus.discover import CASE_FILE
from onnxq.corpus.format import GOLDEN_KINDS, GoldenKind, golden_check
from onnxq.corpus.golden_text import golden_text, within_tolerance
from onnxq.corpus.run import CaseRun
from onnxq.errors import CorpusError
from onnxq.model_io import write_text
from onnxq.quantizers import DEFAULT

FOLDER = "expected"
"""Where the goldens of a case are."""

SIZE_LIMIT = 4 * 2**20
"""Bytes that a golden file may have."""

DIFF_LIMIT = 40
"""Lines of a difference that are shown."""

Update = Literal["none", "new", "changed", "all"]
"""Which goldens are written: those that are missing, those that differ, both, or none."""

State = Literal["same", "new", "changed"]


@dataclass(frozen=True)
class Comparison:
    """One golden and what was found now.

    Attributes:
        kind: What it is about.
        path: Its file.
        expected: Content of the file; None if there is none.
        actual: What the file should hold according to the quantizer. What is within the tolerance is as in the file.
        written: Whether the file was written.
    """

    kind: GoldenKind
    path: Path
    expected: str | None
    actual: str
    written: bool = False

    @property
    def state(self) -> State:
        """How the two compare: "same", "changed", or "new" if there is no file."""
        if self.expected is None:
            return "new"
        return "same" if self.expected.splitlines() == self.actual.splitlines() else "changed"

    def diff(self, limit: int = DIFF_LIMIT) -> str:
        """A unified diff, "-" before what the file has; what is over the limit is only counted."""
        expected = (self.expected or "").splitlines()
        lines = list(difflib.unified_diff(expected, self.actual.splitlines(), "expected", "actual", lineterm=""))
        left_out = len(lines) - limit
        return "\n".join([*lines[:limit], *([f"... {left_out} more lines"] if left_out > 0 else [])])


def golden_path(case: Case, quantizer: str, kind: GoldenKind) -> Path:
    """The file of a golden, whether or not it is there."""
    return _folder(case, quantizer) / f"{kind}.txt"


def golden_checks(case: Case, quantizer: str, update: Update = "none") -> tuple[str, ...]:
    """Names of the golden checks of a case for a quantizer.

    Args:
        case: The case.
        quantizer: Name of the quantizer.
        update: Which goldens are written.

    Returns:
        A check for each golden that is there or that the case file lists under `goldens`; if new ones are written and
        none is listed, "golden-placement" too. None for a case whose right answer is a refusal.
    """
    if case.expect.raises is not None:
        return ()
    wanted: set[str] = set(case.definition.goldens)
    if update in ("new", "all") and not wanted:
        wanted = {"placement"}
    return tuple(
        golden_check(kind)
        for kind in GOLDEN_KINDS
        if kind in wanted or os.path.lexists(golden_path(case, quantizer, kind))
    )


def compare_golden(run: CaseRun, quantizer: str, check: str, update: Update = "none") -> Comparison:
    """Compare a golden with what was found, and write it if it is to be updated.

    Args:
        run: A run of the case without error.
        quantizer: Name of the quantizer.
        check: Which golden, one of `golden_checks`.
        update: Which goldens are written; a file appears whole or not at all.

    Returns:
        The comparison, as it was before the file was written.

    Raises:
        CorpusError: The file can't be read or written, or leads out of the folder of the case.
    """
    kind = next(k for k in GOLDEN_KINDS if golden_check(k) == check)
    path = golden_path(run.case, quantizer, kind)
    expected = read_golden(run.case, path)
    actual = golden_text(run.pair, kind)
    if kind == "ranges" and expected is not None:
        actual = within_tolerance(expected, actual)
    found = Comparison(kind, path, expected, actual)
    if update not in (found.state, "all") or found.state == "same":
        return found
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(actual, path)
    return replace(found, written=True)


def read_golden(case: Case, path: Path) -> str | None:
    """The content of a golden; None if there is none.

    Raises:
        CorpusError: It leads out of the folder of the case, is too big, or no text.
    """
    _check_inside(case, path)
    if not os.path.lexists(path):
        return None
    try:
        if not path.is_file():
            raise CorpusError(f"{path}: no regular file")
        if path.stat().st_size > SIZE_LIMIT:
            raise CorpusError(f"{path}: {path.stat().st_size} bytes; a golden may have {SIZE_LIMIT}")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise CorpusError(f"{path}: can't be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise CorpusError(f"{path}: not UTF-8 text: {error.reason} at byte {error.start}") from None


def unused_goldens(case: Case, quantizers: Iterable[str]) -> list[Path]:
    """Files below `expected/` that no check of the case reads.

    Args:
        case: The case.
        quantizers: Names of the quantizers that are tested. The goldens of others can't be judged.

    Returns:
        The files, sorted: those of tested quantizers that no check reads, and those that no quantizer could read.
    """
    folder = case.folder / FOLDER
    tested = set(quantizers)
    names = {f"{kind}.txt" for kind in GOLDEN_KINDS}
    used = {
        golden_path(case, quantizer, kind)
        for quantizer in tested
        for kind in GOLDEN_KINDS
        if golden_check(kind) in golden_checks(case, quantizer)
    }
    judged = {_folder(case, quantizer) for quantizer in tested}

    def is_unused(path: Path) -> bool:
        foreign = path.name in names and path.parent not in judged and path.parent.parent in (folder, case.folder)
        return path not in used and not foreign

    # walking doesn't follow links, so all this lies in the folder of the case; unless expected/ itself is a link
    files = () if folder.is_symlink() else (Path(p) / name for p, _, names in os.walk(folder) for name in names)
    return sorted(path for path in files if is_unused(path))


def delete_goldens(paths: Iterable[Path]) -> None:
    """Delete some golden files, and the folders that they leave empty, `expected/` included."""
    for path in paths:
        path.unlink(missing_ok=True)
        for folder in path.parents:
            if (folder / CASE_FILE).exists() or any(folder.iterdir()):
                break
            folder.rmdir()


def _folder(case: Case, quantizer: str) -> Path:
    """Where the goldens of a quantizer are. Its name may be a whole command line."""
    folder = case.folder / FOLDER
    return folder if quantizer == DEFAULT else folder / (re.sub(r"[^\w.-]+", "-", quantizer).strip("-.") or "unnamed")


def _check_inside(case: Case, path: Path) -> None:
    try:
        inside = path.resolve().is_relative_to(case.folder.resolve())
    except (OSError, RuntimeError):  # links that go round in circles
        inside = False
    if not inside:
        raise CorpusError(f"{path}: leads out of the folder of the case")
